"""What Weft costs a latency program by itself: many processes of it, with and without.

    python3 bench/hardware/overhead.py OUT.json [--weft FILE] [--limit SECONDS] [--mps] [--graph]
    python3 bench/hardware/overhead.py --from OUT.json [OUT.json ...]

Two processes of one program are not equally fast, and a host is not equally fast from one second to the next. So a batch
of sixteen processes is started at once, half of them under Weft, with a daemon each, and with --mps all of them under an
MPS server each. They take turns in answering ten requests one after the other, on the same cores and in an order that
changes, sixty times over; then comes the next batch. What half of the ten take, of which a process has a median, is
compared by batch. The range is the middle 90% of what comes out when batches, and processes within them, are drawn again
with replacement.

A request is an image to ResNet50, kernel by kernel, or as a graph with --graph. Needs a GPU, PyTorch and torchvision,
nvidia-cuda-mps-control and eight cores.
"""

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
KINDS = ["alone", "weft"]
EACH = 8
TURNS, REQUESTS, WARM = 60, 10, 2
CORES = 8
MEASURED, REST = {2, 3}, set(range(4, os.cpu_count() or CORES))
DRAWS = 2000


class Process:
    """A program of one kind, with a folder for what only it uses."""

    def __init__(self, kind, weft, program, mps):
        self.kind, self.helper, self.turns = kind, None, []
        self.folder = tempfile.mkdtemp(prefix="weft-cost-")
        pipes = os.path.join(self.folder, "mps")
        self.environment = {**os.environ, "CUDA_MPS_PIPE_DIRECTORY": pipes, "CUDA_MPS_LOG_DIRECTORY": pipes}
        command = program
        if kind == "weft":
            socket = self.environment["WEFT_SOCKET"] = os.path.join(self.folder, "node.sock")
            self.helper = self.popen([weft, "node", "--idle-exit", "900s"])
            while not os.path.exists(socket) and self.helper.poll() is None:
                time.sleep(0.01)
            way = "space" if mps else "time"
            command = [weft, "run", "--class", "latency", "--share", way, "--gpu", "all", "--", *program]
            if mps:
                # It says itself where its server is.
                del self.environment["CUDA_MPS_PIPE_DIRECTORY"], self.environment["CUDA_MPS_LOG_DIRECTORY"]
        elif mps:
            os.mkdir(pipes)
            self.helper = self.popen(["nvidia-cuda-mps-control", "-f"])
            time.sleep(0.2)
        self.process = self.popen(command)

    def popen(self, command):
        pipe = subprocess.PIPE
        with open(os.path.join(self.folder, "log"), "a") as log:
            return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=log, text=True, env=self.environment)

    def ready(self):
        while line := self.process.stdout.readline():
            if line.strip() == "ready":
                return
        with open(os.path.join(self.folder, "log")) as log:
            sys.exit(f"a program of kind `{self.kind}` ended before it was ready: {log.read()[-2000:]}")

    def pin(self):
        """Whoever is measured has cores to itself: no daemon is there."""
        pin(self.process.pid, MEASURED)
        if self.helper:
            pin(self.helper.pid, REST)

    def measure(self):
        """What half of some requests took, in us."""
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()

    def end(self):
        wait(self.process)
        if self.helper:
            if self.kind == "alone":
                control = ["nvidia-cuda-mps-control"]
                subprocess.run(control, input="quit -t 2\n", text=True, env=self.environment, capture_output=True)
            else:
                self.helper.terminate()
            wait(self.helper)
        shutil.rmtree(self.folder, ignore_errors=True)


def wait(process):
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def pin(process, cores):
    for task in tasks(process):
        try:
            os.sched_setaffinity(task, cores)
        except ProcessLookupError:
            pass


def tasks(process):
    """The threads of a process and of those that it started."""
    found = []
    try:
        for task in os.listdir(f"/proc/{process}/task"):
            found.append(int(task))
            with open(f"/proc/{process}/task/{task}/children") as children:
                for child in children.read().split():
                    found += tasks(int(child))
    except (FileNotFoundError, ProcessLookupError):
        pass
    return found


def batch(number, *setup):
    """By kind and process, what requests took in each turn: the median, in us."""
    kinds = [kind for kind in KINDS for _ in range(EACH)]
    dice = random.Random(number)
    dice.shuffle(kinds)
    processes = []
    try:
        for kind in kinds:
            processes.append(Process(kind, *setup))
        for process in processes:
            process.ready()
            process.pin()
        for _ in range(TURNS):
            dice.shuffle(processes)
            for process in processes:
                process.turns.append(process.measure())
    finally:
        for process in processes:
            process.close()
        for process in processes:
            process.end()
    return {kind: [process.turns for process in processes if process.kind == kind] for kind in KINDS}


def typical(batches):
    """By batch and kind, what each process takes."""
    return [{kind: [statistics.median(turns) for turns in batch[kind]] for kind in KINDS} for batch in batches]


def ratio(batches):
    """What requests take under Weft, of what they take alone, on average over the batches."""
    return statistics.fmean(statistics.fmean(batch["weft"]) / statistics.fmean(batch["alone"]) for batch in batches)


def drawn(batches, dice):
    again = dice.choices(batches, k=len(batches))
    return [{kind: dice.choices(processes, k=len(processes)) for kind, processes in batch.items()} for batch in again]


def show(batches):
    dice, took = random.Random(0), typical(batches)
    ratios = sorted(ratio(drawn(took, dice)) for _ in range(DRAWS))
    low, high = [ratios[int(DRAWS * part)] for part in (0.05, 0.95)]
    processes = sum(len(batch["weft"]) for batch in batches)
    print(f"requests take {ratio(took):.4f} ({low:.4f} to {high:.4f}) under Weft, {processes} processes with and without")


def measured(path):
    """The batches in a file that this wrote."""
    try:
        with open(path) as file:
            return json.load(file)["median_us"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        sys.exit(f"{path} is nothing that this wrote: {error!r}")


def work(graph):
    """A process that is measured."""
    sys.path.insert(0, os.path.join(HERE, "../workloads"))
    import models

    models.torch.set_num_threads(2)
    request = models.inference("resnet50", 1, graph)
    for _ in range(30):
        request()
    print("ready", flush=True)
    for _ in sys.stdin:
        took = []
        for _ in range(WARM + REQUESTS):
            began = time.perf_counter_ns()
            request()
            took.append((time.perf_counter_ns() - began) / 1e3)
        print(round(statistics.median(took[WARM:]), 1), flush=True)


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("out", nargs="?")
    arguments.add_argument("--weft", default="target/release/weft")
    arguments.add_argument("--limit", type=float, default=540, help="begin no batch that would end later (seconds)")
    arguments.add_argument("--mps", action="store_true")
    arguments.add_argument("--graph", action="store_true")
    arguments.add_argument("--from", dest="files", nargs="+", help="what was measured before, put together")
    arguments.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    asked = arguments.parse_args()
    if asked.work:
        return work(asked.graph)
    if asked.files:
        return show([batch for file in asked.files for batch in measured(file)])
    if not asked.out:
        arguments.error("say where to write what is measured, or --from where to read it")
    if (os.cpu_count() or 1) < CORES:
        sys.exit(f"{CORES} cores are needed, so that nothing else runs on those that are measured")
    for file in [asked.weft, "nvidia-smi", *["nvidia-cuda-mps-control"] * asked.mps]:
        if shutil.which(file) is None:
            sys.exit(f"{file} is not there: build weft with `cargo build --release -p weft -p weft-shim`, and run this on a GPU")
    program = [sys.executable, os.path.abspath(__file__), "--work", *["--graph"] * asked.graph]
    began, took, batches = time.monotonic(), 0.0, []
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    machine = subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip()
    while (before := time.monotonic()) + took < began + asked.limit:
        batches.append(batch(len(batches), os.path.abspath(asked.weft), program, asked.mps))
        took = time.monotonic() - before
        print(f"batch {len(batches)} took {took:.0f} s", file=sys.stderr, flush=True)
    about = {"machine": machine, "mps": asked.mps, "graph": asked.graph, "turns": TURNS, "requests": REQUESTS}
    with open(asked.out, "w") as file:
        json.dump({**about, "median_us": batches}, file)
    show(batches)


main()
