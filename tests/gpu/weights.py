"""What sharing weights saves on a real GPU: `python3 tests/gpu/weights.py --out FILE`.

Eight workers of one model of a gigabyte, over eight that have a CUDA context and no weights: memory in all, how long
the first and later ones take, and what the death of the first worker and of the keeper does to the others. Needs an
NVIDIA GPU, PyTorch and numpy, and neither `weft` nor anything else installed. Writes JSON; ends with status 1 if a
check fails.
"""

import argparse
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "python"))

WIDTH, LAYER_BYTES = 4096, 4096 * 4096 * 2
PATIENCE_S = 120
GIGABYTE = 1 << 30


# The model.


def build(layers):
    import torch

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            make = lambda: torch.nn.Linear(WIDTH, WIDTH, bias=False, dtype=torch.bfloat16)
            self.layers = torch.nn.ModuleList([make() for _ in range(layers)])
            # Tied, so that it must cost nothing.
            self.head = make()
            self.head.weight = self.layers[0].weight
            self.register_buffer("scale", torch.full((), 0.5, dtype=torch.bfloat16), persistent=False)

        def forward(self, x):
            for layer in self.layers:
                x = torch.relu(layer(x))
            return self.head(x) * self.scale

    return Net()


def write_model(path, layers):
    """A state_dict with the same numbers whenever it is made, through which what goes in neither grows nor shrinks."""
    import torch

    torch.manual_seed(1)
    state = {}
    for index in range(layers):
        weight = torch.randn(WIDTH, WIDTH, dtype=torch.float32) * (2 / WIDTH) ** 0.5
        state[f"layers.{index}.weight"] = weight.to(torch.bfloat16)
    state["head.weight"] = state["layers.0.weight"]
    torch.save(state, path)


def outcome(module):
    """What the model answers, in short."""
    import torch

    generator = torch.Generator().manual_seed(2)
    x = torch.randn(8, WIDTH, generator=generator).to(torch.bfloat16).cuda()
    with torch.inference_mode():
        y = module(x).float().cpu()
    return {"digest": hashlib.sha256(y.numpy().tobytes()).hexdigest()[:16], "mean": float(y.abs().mean())}


# A worker.


def work(told):
    import torch

    import weft
    from weft import _format, _weights

    loads, memory = [], []

    def load():
        loads.append(1)
        return torch.load(told["model"], map_location="cpu", weights_only=True)

    on_gpu = _format.on_gpu
    _format.on_gpu = lambda given, *rest: memory.append(given) or on_gpu(given, *rest)
    if told["way"] != "any":
        _weights.ways = (told["way"],)
    torch.cuda.init()
    torch.zeros(1, device="cuda")
    start = time.perf_counter()
    if told["mode"] == "empty":
        # A layer at a time: the libraries are as they are with the model, and nothing stays.
        for _ in range(2):
            layer = torch.nn.Linear(WIDTH, WIDTH, bias=False, dtype=torch.bfloat16, device="cuda")
            layer(torch.zeros(8, WIDTH, dtype=torch.bfloat16, device="cuda"))
        del layer
        module = None
    elif told["mode"] == "private":
        module = build(told["layers"])
        module.load_state_dict(load())
        module = module.eval().cuda()
    else:
        _weights.enter(_weights.Place(told["folder"], "gpu", 1, [], PATIENCE_S * 1000, os.path.abspath(__file__)))
        module = weft.shared_module(lambda: build(told["layers"]), load, device="cuda", files=[told["model"]])
    torch.cuda.synchronize()
    said = {"took_s": time.perf_counter() - start, "loaded": len(loads)}
    if module is not None:
        said.update(outcome(module))
        said["tied"] = module.head.weight.data_ptr() == module.layers[0].weight.data_ptr()
    if memory:
        inside = lambda tensor: 0 <= tensor.data_ptr() - memory[0].address < (told["layers"] + 1) * LAYER_BYTES
        said.update(way=memory[0].way, read_only=memory[0].read_only, keeper=memory[0].keeper,
                    mapped=all(map(inside, module.parameters())))  # fmt: skip
    torch.cuda.empty_cache()
    said["since_start_s"] = time.time() - told["started"]
    print(json.dumps(said), flush=True)
    for line in sys.stdin:
        if line.strip() == "run":
            print(json.dumps(outcome(module)), flush=True)
        elif line.strip() == "write":
            try:
                module.layers[0].weight.fill_(0)
                torch.cuda.synchronize()
                print(json.dumps({"error": None}), flush=True)
            except Exception as error:
                print(json.dumps({"error": str(error).splitlines()[0]}), flush=True)
                os._exit(0)


class Worker:
    """A process of this script that holds the model."""

    def __init__(self, **told):
        self.errors = tempfile.TemporaryFile("w+")
        told = json.dumps({**TOLD, **told, "started": time.time()})
        command = [sys.executable, os.path.abspath(__file__), "--worker", told]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=self.errors, text=True)

    def hear(self):
        import select

        if not select.select([self.process.stdout], [], [], PATIENCE_S)[0]:
            raise RuntimeError(f"a worker says nothing; {self.said()}")
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"a worker ended; {self.said()}")
        return json.loads(line)

    def said(self):
        self.errors.seek(0)
        return self.errors.read()[-3000:]

    def ask(self, what):
        self.process.stdin.write(what + "\n")
        self.process.stdin.flush()
        return self.hear()

    def kill(self):
        self.process.kill()
        self.end()

    def end(self):
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass
        self.process.wait(PATIENCE_S)
        self.process.stdout.close()


# What is measured.


def used():
    """Bytes of the GPU that anybody has."""
    import torch

    free, total = torch.cuda.mem_get_info()
    return total - free


def settled(goal=None):
    """As above, once it stays the same, or is down at `goal`: the driver takes a while to clear up after a process."""
    until, last = time.monotonic() + 20, used()
    while time.monotonic() < until:
        time.sleep(0.5)
        now = used()
        if now == last and (goal is None or now <= goal):
            return now
        last = now
    return last


def gone(process):
    try:
        with open(f"/proc/{process}/stat") as file:
            return ") Z " in file.read()
    except FileNotFoundError:
        return True


def measure(result, options):
    import torch

    checks = result["checks"]

    def check(name, good, **details):
        checks.append({"check": name, "good": bool(good), **details})
        print(f"{'ok    ' if good else 'MISSED'}  {name}  {details or ''}", flush=True)

    torch.zeros(1, device="cuda")
    result.update(gpu=torch.cuda.get_device_name(), torch=torch.__version__, python=sys.version.split()[0])
    nothing = settled()

    print("workers without weights", flush=True)
    empty = [Worker(mode="empty") for _ in range(options.workers)]
    for each in empty:
        each.hear()
    baseline = settled()
    for each in empty:
        each.end()
    nothing = settled(nothing)
    result.update(used_before=nothing, used_by_empty_workers=baseline - nothing)

    print("a worker with weights of its own", flush=True)
    private = Worker(mode="private")
    alone = private.hear()
    result["private"] = {**alone, "used": settled() - nothing}
    private.end()
    settled(nothing)

    print("workers that share", flush=True)
    workers, said = [], []
    for _ in range(options.workers):
        workers.append(Worker(mode="shared"))
        said.append(workers[-1].hear())
        print(f"        {said[-1]}", flush=True)
    # Why, where they do not.
    complaints = {line for each in workers for line in each.said().splitlines() if line.startswith("weft:")}
    result["complaints"] = sorted(complaints)
    for line in result["complaints"]:
        print(f"        {line}", flush=True)
    shared = settled()
    weights = shared - baseline
    result.update(workers=said, way=said[0].get("way"), read_only=said[0].get("read_only"))
    result.update(used_by_sharing_workers=shared - nothing, used_by_weights=weights)
    result.update(first_s=said[0]["took_s"], later_s=sorted(each["took_s"] for each in said[1:])[(len(said) - 1) // 2])
    check("weights of all workers, GB", weights < 2 * GIGABYTE, gigabytes=round(weights / GIGABYTE, 3),
          of_one=round(options.layers * LAYER_BYTES / GIGABYTE, 3))  # fmt: skip
    check("one load", [each["loaded"] for each in said] == [1] + [0] * (len(said) - 1))
    check("every parameter lies in the shared memory", all(each.get("mapped") for each in said))
    check("tied weights are tied", all(each["tied"] for each in said))
    digests = {each["digest"] for each in said}
    check("the same outputs in all", len(digests) == 1, mean=said[0]["mean"])
    check("and without sharing", digests == {alone["digest"]})
    check("a later worker starts faster", result["later_s"] < result["first_s"] / 2, first_s=result["first_s"],
          later_s=result["later_s"], private_s=alone["took_s"])  # fmt: skip

    def all_answer(some):
        return {each.ask("run")["digest"] for each in some} == digests

    workers.pop(0).kill()
    check("others go on when the first worker is killed", all_answer(workers))
    workers.append(Worker(mode="shared"))
    next_one = workers[-1].hear()
    check("and the next one shares with them", next_one["loaded"] == 0 and next_one["digest"] in digests)
    after = settled()
    check(
        "and memory is as before", abs(after - shared) < GIGABYTE / 4, gigabytes=round((after - shared) / GIGABYTE, 3)
    )

    keeper = said[0].get("keeper")
    if result["way"] == "file":
        os.kill(keeper, signal.SIGKILL)
        time.sleep(1)
        check("others go on when the keeper is killed", all_answer(workers))
        again = [Worker(mode="shared")]
        one = again[0].hear()
        again.append(Worker(mode="shared"))
        other = again[1].hear()
        check("the next worker loads again, and the one after it shares", (one["loaded"], other["loaded"]) == (1, 0))
        check("with the same outputs", {one["digest"], other["digest"]} == digests)
        workers += again
        keeper = one["keeper"]
    else:
        result["skipped"] = "the death of the keeper: this way its memory goes with it"

    if said[0].get("read_only"):
        writer = workers.pop(0)
        try:
            error = writer.ask("write")["error"]
        except RuntimeError:
            error = "it ended"
        check("who writes to the weights fails", error is not None, error=error)
        writer.kill()
        check("and nobody else", all_answer(workers))

    for each in workers:
        each.end()
    until = time.monotonic() + 10
    while not gone(keeper) and time.monotonic() < until:
        time.sleep(0.1)
    check("the keeper ends with the last worker", gone(keeper))
    left = settled(nothing)
    check("the memory is given back", left - nothing < GIGABYTE / 16, megabytes=(left - nothing) >> 20)
    # The keeper that was killed left none either: its files became its successor's.
    check("no file is left", os.listdir(TOLD["folder"]) == [], files=len(os.listdir(TOLD["folder"])))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", help="where the JSON goes")
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--layers", type=int, default=32, help="of 32 MiB each")
    parser.add_argument("--way", choices=["any", "file", "ipc"], default="any", help="how memory is shared")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        return work(json.loads(options.worker))

    result = {"command": "python3 tests/gpu/weights.py", "way_asked": options.way, "checks": []}
    shm = set(os.listdir("/dev/shm")) if os.path.isdir("/dev/shm") else set()
    with tempfile.TemporaryDirectory() as folder:
        TOLD.update(folder=os.path.join(folder, "weights"), model=os.path.join(folder, "model.pt"), way=options.way,
                    layers=options.layers)  # fmt: skip
        try:
            write_model(TOLD["model"], options.layers)
            measure(result, options)
        except Exception:
            traceback.print_exc()
            result["failed"] = traceback.format_exc().replace(os.path.dirname(HERE), "").replace(folder, "")[-4000:]
    result["left_in_shm"] = sorted(set(os.listdir("/dev/shm")) - shm) if os.path.isdir("/dev/shm") else []
    result["good"] = "failed" not in result and all(each["good"] for each in result["checks"])
    if options.out:
        with open(options.out, "w") as file:
            json.dump(result, file, indent=1)
            file.write("\n")
    print("good" if result["good"] else "NOT GOOD", flush=True)
    sys.exit(0 if result["good"] else 1)


TOLD = {}

if __name__ == "__main__":
    main()
