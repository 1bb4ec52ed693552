"""Whether a preempted training comes back: a latency program of CUDA graphs beside a training, on a real GPU.

Runs the pair once, kills the daemon with -9 while nobody is attached, and runs the pair again, in which both take turns
on the GPU. In each run the latency program answers requests at random and then pauses; the training must make steps in
every pause. Prints a line per round and a table last; with --out FOLDER also JSON. Ends with 1 when the training hung.

Example: python3 tests/gpu/comes_back.py --weft target/carry/weft --rounds 3 --out "$OUT"
"""

import argparse
import glob
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

LATENCY = """
import random, sys, time, torch
from torchvision.models import efficientnet_b0
torch.manual_seed(0)
model = efficientnet_b0().eval().half().cuda()
x = torch.randn(8, 3, 224, 224, device="cuda", dtype=torch.half)
stream = torch.cuda.Stream()
with torch.inference_mode(), torch.cuda.stream(stream):
    for _ in range(3):
        model(x)
torch.cuda.synchronize()
graph = torch.cuda.CUDAGraph()
with torch.inference_mode(), torch.cuda.graph(graph):
    y = model(x)
def request():
    graph.replay()
    torch.cuda.synchronize()
for _ in range(50):
    request()
start = time.perf_counter()
for _ in range(100):
    request()
alone = (time.perf_counter() - start) / 100
print("ready", alone, flush=True)
for line in sys.stdin:
    kind, seconds = line.split()
    end, took, due = time.perf_counter() + float(seconds), [], time.perf_counter()
    while time.perf_counter() < end:
        if kind == "random":
            due += random.expovariate(0.5 / alone)
            while time.perf_counter() < due:
                time.sleep(0.00005)
        begun = max(due, 0) if kind == "random" else time.perf_counter()
        request()
        took.append(time.perf_counter() - begun)
    took.sort()
    print("done", len(took), took[len(took) // 2], took[int(len(took) * 0.99)], flush=True)
"""

TRAINING = """
import sys, torch
from torchvision.models import vit_l_16
torch.manual_seed(0)
model = vit_l_16().cuda()
x = torch.randn(16, 3, 224, 224, device="cuda")
labels = torch.randint(0, 1000, (16,), device="cuda")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
step = 0
while True:
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = torch.nn.functional.cross_entropy(model(x), labels)
    loss.backward()
    optimizer.step()
    torch.cuda.synchronize()
    step += 1
    print(step, flush=True)
"""


class Program:
    def __init__(self, arguments, text, name):
        words = [arguments.weft, "run", *arguments.share, "--name", name]
        words += ["--class", "latency" if name == "serve" else "best-effort", "--"]
        self.log = open(f"/tmp/{name}.log", "a")
        self.process = subprocess.Popen(
            words + ["python3", "-c", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True
        )
        os.set_blocking(self.process.stdout.fileno(), False)
        self.rest = ""

    def lines(self, limit):
        """Lines as they come, until the time is over."""
        end = time.monotonic() + limit
        while True:
            try:
                chunk = os.read(self.process.stdout.fileno(), 65536).decode()
                if chunk == "":
                    return
                self.rest += chunk
            except BlockingIOError:
                pass
            while "\n" in self.rest:
                line, self.rest = self.rest.split("\n", 1)
                yield line
            if time.monotonic() > end:
                return
            time.sleep(0.005)

    def wait(self, word, limit):
        for line in self.lines(limit):
            if line.startswith(word):
                return line
        raise SystemExit(f"waited in vain for {word!r}")

    def say(self, text):
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()

    def end(self):
        self.process.kill()
        self.process.wait()


def threads():
    """What every thread of a python on this machine waits for."""
    found = []
    for path in glob.glob("/proc/[0-9]*/task/[0-9]*/comm"):
        folder = os.path.dirname(path)
        try:
            name = open(path).read().strip()
            if "python" in open(f"{folder}/../../comm").read() and (name.startswith("weft") or folder.split("/")[2] == folder.split("/")[4]):
                line = [folder, name] + [open(f"{folder}/{what}").read().split("\n")[0] for what in ("wchan", "syscall")]
                found.append(" ".join(line))
        except OSError:
            pass
    return found


def daemons(socket):
    """The daemons that this script's programs started: nobody else's."""
    found = []
    for path in glob.glob("/proc/[0-9]*/environ"):
        try:
            words = open(os.path.join(os.path.dirname(path), "cmdline")).read().split("\0")
            if "node" in words[1:2] and f"WEFT_SOCKET={socket}" in open(path).read().split("\0"):
                found.append(int(path.split("/")[2]))
        except OSError:
            pass
    return found


def steps_within(training, limit):
    """When steps were done, in seconds from now."""
    begun, times = time.monotonic(), []
    for line in training.lines(limit):
        times.append(time.monotonic() - begun)
    return times


def run_pair(arguments, number, results):
    serve = Program(arguments, LATENCY, "serve")
    alone = float(serve.wait("ready", 120).split()[1])
    training = Program(arguments, TRAINING, "train")
    training.wait("3", 120)
    for round_ in range(arguments.rounds if number else 1):
        for kind in ("random", "one-after-other"):
            steps_within(training, 0)
            serve.say(f"{kind} {arguments.busy}")
            begun, beside, done = time.monotonic(), 0, None
            while done is None and time.monotonic() < begun + arguments.busy + 20:
                beside += len(steps_within(training, 0.05))
                for line in serve.lines(0):
                    done = line
            after = steps_within(training, arguments.pause)
            row = {"run": number, "round": round_, "kind": kind, "alone_ms": alone * 1e3, "beside": beside, "done": done}
            row.update(after=len(after), first_step_s=after[0] if after else None)
            top = subprocess.run([arguments.weft, "top", "--once", "--json"], capture_output=True, text=True, check=False)
            tenants = json.loads(top.stdout or "{}").get("gpus", [{}])[0].get("tenants", [])
            row["preemptions"] = sum(tenant.get("preemptions", tenant.get("asides", 0)) for tenant in tenants)
            results.append(row)
            if not after:
                for _ in range(3):
                    print("\n".join(threads()), flush=True)
                    time.sleep(0.3)
                subprocess.run([arguments.weft, "top", "--once", "--json"], check=False)
                subprocess.run(["nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv"], check=False)
                late = steps_within(training, arguments.patience)
                print("HUNG: steps in the next seconds:", len(late), flush=True)
                row["hung"] = not late
                if not late:
                    serve.end()
                    training.end()
                    return
    serve.end()
    training.end()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weft", default="target/release/weft")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--busy", type=float, default=3.0, help="seconds of requests")
    parser.add_argument("--pause", type=float, default=3.0, help="seconds without")
    parser.add_argument("--patience", type=float, default=20.0, help="seconds until a training counts as hung")
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--share", nargs="*", default=[], help="flags of weft run, such as --share time")
    parser.add_argument("--out")
    arguments = parser.parse_args()
    arguments.share = [f"--{word}" if i == 0 else word for i, word in enumerate(arguments.share)]
    # A daemon of our own.
    os.environ["WEFT_SOCKET"] = os.path.join(tempfile.mkdtemp(prefix="weft-"), "node.sock")
    results = []
    for number in range(arguments.runs):
        if number:
            time.sleep(1.0)
            found = daemons(os.environ["WEFT_SOCKET"])
            print("daemons killed with -9:", found, flush=True)
            for pid in found:
                os.kill(pid, signal.SIGKILL)
        run_pair(arguments, number, results)
        time.sleep(1.0)
    if arguments.out:
        with open(os.path.join(arguments.out, "comes-back.json"), "w") as file:
            json.dump(results, file, indent=1)
    print(f"{'run':>3} {'kind':>16} {'beside':>7} {'p99 ms':>7} {'preempted':>9} {'after':>6} {'first step':>10}")
    for row in results:
        first = "-" if row["first_step_s"] is None else f"{row['first_step_s']:.3f} s"
        p99 = float(row["done"].split()[3]) * 1e3 if row["done"] else float("nan")
        preempted = row.get("preemptions", 0)
        print(f"{row['run']:>3} {row['kind']:>16} {row['beside']:>7} {p99:>7.2f} {preempted:>9} {row['after']:>6} {first:>10}")
    sys.exit(any(row["after"] == 0 for row in results))


if __name__ == "__main__":
    main()
