"""Measures how long a model waits for its weights: without sharing, as the first worker and as a later one, and the
memory of eight workers. Each is a process of its own; the weights come from a file of numpy's that was just written.

    PYTHONPATH=python python python/tests/start.py [MEGABYTES]
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile

import numpy as np

ROUNDS, WORKERS = 5, 8

PROGRAM = """
import json, os, sys, time
import numpy as np
import weft
import member
from weft import _weights

folder, path = sys.argv[1:]
def load():
    with np.load(path) as file:
        return dict(file)
if folder:
    _weights.enter(_weights.Place(folder, "model", 1, [], 60_000, member.__file__))
start = time.perf_counter()
weights = weft.shared(load, files=[path]) if folder else load()
took_ms = (time.perf_counter() - start) * 1e3
total = sum(float(array.sum()) for array in weights.values())
print(took_ms, total, flush=True)
for line in sys.stdin:
    print(member.proportional_bytes(), flush=True)
"""


def main():
    megabytes = int(sys.argv[1]) if len(sys.argv) > 1 else 64
    own, first, later, memory = [], [], [], []
    for _ in range(ROUNDS):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "weights.npz")
            rows = megabytes * 1024 // 32
            np.savez(path, **{f"layer{index}": np.ones((rows, 256), np.float32) for index in range(32)})
            alone = Process("", path)
            own.append(alone.took_ms)
            alone.end()
            workers = [Process(os.path.join(folder, "weights"), path) for _ in range(WORKERS)]
            first.append(workers[0].took_ms)
            later += [each.took_ms for each in workers[1:]]
            assert len({each.total for each in workers + [alone]}) == 1
            memory.append(sum(each.memory() for each in workers) / 2**20)
            for each in workers:
                each.end()
    for name, times in (("without sharing", own), ("the first worker", first), ("a later worker", later)):
        print(f"{name:<18} {statistics.median(times):9.1f} ms  [{min(times):.1f}, {max(times):.1f}]")
    print(f"{WORKERS} workers have {statistics.median(memory):.1f} MiB of {megabytes} MiB of weights in all")


class Process:
    """A process with the weights; it ends when it is told."""

    def __init__(self, *arguments):
        pipe = subprocess.PIPE
        command = [sys.executable, "-c", PROGRAM, *arguments]
        here = os.path.dirname(os.path.abspath(__file__))
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([os.path.dirname(here), here])}
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment)
        self.took_ms, self.total = map(json.loads, self.process.stdout.readline().split())

    def memory(self):
        self.process.stdin.write("memory\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def end(self):
        self.process.communicate()


if __name__ == "__main__":
    main()
