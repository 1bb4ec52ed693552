"""One GPU program for `run.py`: python workload.py NAME [SECONDS]. Prints one line of JSON."""

import json
import os
import subprocess
import sys
import time


def resnet(seconds):
    """ResNet50, batch 1, eager, one request after the other."""
    import torch
    import torchvision

    model = torchvision.models.resnet50(weights=None).cuda().eval()
    picture = torch.randn(1, 3, 224, 224, device="cuda")
    took = []
    with torch.no_grad():
        for _ in range(50):
            model(picture)
        torch.cuda.synchronize()
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            start = time.perf_counter()
            model(picture)
            torch.cuda.synchronize()
            took.append(time.perf_counter() - start)
    took.sort()
    at = lambda part: took[min(int(len(took) * part), len(took) - 1)] * 1e3
    return {"per_second": len(took) / seconds, "p50_ms": at(0.5), "p99_ms": at(0.99)}


def training(seconds):
    """A transformer in training, with long kernels."""
    import torch

    layer = torch.nn.TransformerEncoderLayer(768, 12, 3072, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 6).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    text = torch.randn(64, 512, 768, device="cuda")
    steps, end = 0, time.perf_counter() + seconds
    while time.perf_counter() < end:
        model(text).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        torch.cuda.synchronize()
        steps += 1
    return {"per_second": steps / seconds}


def own_launches():
    """What Weft has counted for this process's tenant so far: launches and graphs."""
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    status = subprocess.run([os.environ["WEFT"], "top", "--json"], capture_output=True, env=environment, check=True)
    tenants = [tenant for gpu in json.loads(status.stdout)["gpus"] for tenant in gpu["tenants"]]
    own = [tenant for tenant in tenants if os.getpid() in tenant["processes"]]
    return own[0]


def device_memory():
    """What the driver says is in use on the GPU, asked from outside the share."""
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    return int(subprocess.run(query, capture_output=True, env=environment, check=True).stdout.split()[0]) << 20


def counted(step, torch, times=20):
    """Launches that CUPTI saw in some steps, and those that Weft counted."""
    for _ in range(5):
        step()
    torch.cuda.synchronize()
    before = own_launches()["launches"]
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        for _ in range(times):
            step()
        torch.cuda.synchronize()
    seen = own_launches()["launches"] - before
    names = ("cudaLaunchKernel", "cuLaunchKernel", "cudaGraphLaunch", "cuGraphLaunch", "cudaLaunchCooperativeKernel")
    truth = sum(event.count for event in profile.key_averages() if event.key.startswith(names))
    return {"launches_true": truth, "launches_seen": seen}


def allocated(allocate):
    """What an allocation takes from the GPU, and what Weft counted for it."""
    device, own = device_memory(), own_launches()["memory_bytes"]
    kept = allocate()
    seen, truth = own_launches()["memory_bytes"] - own, device_memory() - device
    del kept
    return {"bytes_true": truth, "bytes_seen": seen}


def eager():
    import torch
    import torchvision

    model = torchvision.models.resnet50(weights=None).cuda().eval()
    picture = torch.randn(1, 3, 224, 224, device="cuda")
    with torch.no_grad():
        launches = counted(lambda: model(picture), torch)
    return launches | allocated(lambda: torch.empty(3 << 30, dtype=torch.uint8, device="cuda"))


def graphs():
    import torch

    x = torch.randn(512, 512, device="cuda")
    for _ in range(3):
        (x @ x).relu()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = (x @ x).relu().sum()
    return counted(graph.replay, torch) | allocated(lambda: torch.empty(3 << 30, dtype=torch.uint8, device="cuda"))


def compiled():
    import torch

    x = torch.randn(1024, 1024, device="cuda")
    step = torch.compile(lambda x: (x * 2 + 1).sin().sum(dim=1).relu())
    return counted(lambda: step(x), torch)


def triton():
    import torch
    import triton
    import triton.language as tl

    @triton.jit
    def double(x, n, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(x + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)

    x = torch.ones(1 << 20, device="cuda")
    return counted(lambda: double[(1024,)](x, x.numel(), BLOCK=1024), torch)


def segments():
    """Expandable segments: PYTORCH_CUDA_ALLOC_CONF says so."""
    import torch

    # Fills what a pool takes from the driver at first, so that nothing of the next is there already.
    first = torch.empty(32 << 20, dtype=torch.uint8, device="cuda")
    return {"first": first.numel()} | allocated(lambda: torch.empty(3 << 30, dtype=torch.uint8, device="cuda"))


def cupy():
    import cupy

    kernel = cupy.RawKernel('extern "C" __global__ void one(float* x) { x[threadIdx.x] += 1; }', "one")
    x = cupy.zeros(32, dtype=cupy.float32)
    for _ in range(5):
        kernel((1,), (32,), (x,))
    cupy.cuda.Device().synchronize()
    before = own_launches()["launches"]
    for _ in range(1000):
        kernel((1,), (32,), (x,))
    cupy.cuda.Device().synchronize()
    launches = {"launches_true": 1000, "launches_seen": own_launches()["launches"] - before}
    return launches | allocated(lambda: cupy.empty(3 << 30, dtype=cupy.uint8))


def jax():
    import jax
    import jax.numpy as numpy

    # One loop over the array, which is one kernel.
    step = jax.jit(lambda x: x * 2 + 1)
    x = numpy.ones((512, 512))
    for _ in range(5):
        step(x).block_until_ready()
    before, times = own_launches()["launches"], 500
    for _ in range(times):
        x = step(x)
    x.block_until_ready()
    launches = {"launches_true": times, "launches_seen": own_launches()["launches"] - before}
    return launches | allocated(lambda: jax.device_put(numpy.zeros(3 << 28, dtype=numpy.float32)).block_until_ready())


def refused():
    """More than the cap: an ordinary error, and the program goes on."""
    import torch

    try:
        torch.empty(8 << 30, dtype=torch.uint8, device="cuda")
        return {"refused": False}
    except torch.OutOfMemoryError:
        fits = torch.ones(1 << 20, device="cuda").sum().item()
        free, total = torch.cuda.mem_get_info()
        return {"refused": True, "goes_on": fits == float(1 << 20), "free": free, "total": total}


if __name__ == "__main__":
    name, seconds = sys.argv[1], [float(word) for word in sys.argv[2:]]
    print(json.dumps(globals()[name](*seconds)), flush=True)
