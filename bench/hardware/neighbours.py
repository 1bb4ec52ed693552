"""What kinds of kernels do to a latency program beside them under MPS, by the part of the SMs that they may use.

    python3 bench/hardware/neighbours.py OUT.json

ResNet50 answers one request after the other, first by itself and then beside one kernel of GPT-2's training after the
other, in programs that MPS lets use 25 to 100% of the SMs. Two rounds, the second in the opposite order. Needs a GPU,
PyTorch and torchvision, and nvidia-cuda-mps-control.
"""

import json
import os
import subprocess
import sys
import tempfile
import time

PARTS = [100, 90, 75, 50, 25]
SECONDS = 0.8
ROWS, WIDTH, WORDS = 64 * 512, 768, 50257
NAMES = ["matmul of a layer", "matmul of the head", "activation", "softmax"]


def kernels():
    """By name: something that launches one kernel."""
    import torch

    hidden = torch.randn(ROWS, WIDTH, device="cuda")
    wide = torch.randn(ROWS, 4 * WIDTH, device="cuda")
    into, out = torch.randn(WIDTH, 4 * WIDTH, device="cuda"), torch.empty(ROWS, 4 * WIDTH, device="cuda")
    logits = torch.randn(ROWS // 4, WORDS, device="cuda")
    head = torch.randn(WIDTH, WORDS, device="cuda")
    launches = [
        lambda: torch.matmul(hidden, into, out=out),
        lambda: torch.matmul(hidden[: ROWS // 4], head, out=logits),
        lambda: torch.nn.functional.gelu(wide),
        lambda: torch.log_softmax(logits, -1),
    ]
    return dict(zip(NAMES, launches, strict=True))


def neighbour():
    import torch

    work = kernels()
    for launch in work.values():
        launch()
    torch.cuda.synchronize()
    print("ready", flush=True)
    for line in sys.stdin:
        name, seconds = json.loads(line)
        launch, done, begin, marks = work[name], 0, time.monotonic(), []
        while (now := time.monotonic()) < begin + seconds:
            launch()
            marks.append(torch.cuda.Event())
            marks[-1].record()
            # Some ahead, so that the GPU is never out of work.
            if len(marks) > 8:
                marks.pop(0).synchronize()
                done += 1
        rate = done / (now - begin)
        torch.cuda.synchronize()
        print(json.dumps(rate), flush=True)


def latency():
    sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../workloads"))
    import models

    request = models.inference("resnet50", 1, False)
    for _ in range(20):
        request()
    print("ready", flush=True)
    for line in sys.stdin:
        end, took = time.monotonic() + json.loads(line), []
        while (began := time.monotonic()) < end:
            request()
            took.append((time.monotonic() - began) * 1e3)
        took.sort()
        at = {name: took[int(len(took) * part)] for name, part in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99))}
        print(json.dumps({"rate": len(took) / sum(took) * 1e3, **at}), flush=True)


class Program:
    def __init__(self, role, environment):
        command = [sys.executable, __file__, role]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment}
        )

    def ready(self):
        assert self.process.stdout.readline().strip() == "ready"
        return self

    def tell(self, order):
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()

    def answer(self):
        return json.loads(self.process.stdout.readline())


def over(key, runs):
    """What requests took beside others, of what they took alone."""
    return sum(run["beside"][key] / run["alone"][key] for run in runs) / len(runs)


def measure(path):
    folder = tempfile.mkdtemp(prefix="weft-mps-")
    mps = {"CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}
    control = ["nvidia-cuda-mps-control"]
    subprocess.run([*control, "-d"], env={**os.environ, **mps}, check=True)
    try:
        served = Program("latency", mps)
        low = {**mps, "CUDA_MPS_CLIENT_PRIORITY": "1"}
        beside = {part: Program("neighbour", {**low, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(part)}) for part in PARTS}
        for program in [served, *beside.values()]:
            program.ready()
        runs = []
        for turn in range(2):
            order = [(name, part) for name in NAMES for part in PARTS]
            for name, part in order if turn == 0 else reversed(order):
                served.tell(SECONDS / 2)
                alone = served.answer()
                beside[part].tell([name, SECONDS / 2])
                by_itself = beside[part].answer()
                beside[part].tell([name, SECONDS + 0.2])
                time.sleep(0.1)
                served.tell(SECONDS)
                together, rate = served.answer(), beside[part].answer()
                rates = {"rate_alone": by_itself, "rate": rate}
                runs.append({"kernel": name, "part": part, "alone": alone, "beside": together, **rates})
    finally:
        subprocess.run(control, input="quit -t 2\n", text=True, env={**os.environ, **mps}, check=False)
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    gpu = subprocess.run(query, capture_output=True, text=True)
    with open(path, "w") as file:
        json.dump({"machine": gpu.stdout.strip(), "seconds": SECONDS, "runs": runs}, file, indent=1)
    print(f"{'kernel':20} {'part':>5} {'its own rate':>12} {'requests':>9} {'p50':>6} {'p99':>6}  (over alone)")
    for name in NAMES:
        whole = [run["rate_alone"] for run in runs if run["kernel"] == name and run["part"] == 100]
        for part in PARTS:
            mine = [run for run in runs if run["kernel"] == name and run["part"] == part]
            rate, p50, p99 = (over(key, mine) for key in ("rate", "p50", "p99"))
            own = sum(run["rate_alone"] for run in mine) / sum(whole)
            print(f"{name:20} {part:4}% {own:12.2f} {rate:9.2f} {p50:6.2f} {p99:6.2f}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    {"neighbour": neighbour, "latency": latency}.get(sys.argv[1], lambda: measure(sys.argv[1]))()
