"""Whether a training can be put away and taken back: its memory to the host, the GPU free, and then on as if nothing had been.

    python bench/hardware/checkpoint.py [--gigabytes 4 --gigabytes 40] [--steps 60]

Starts a training in PyTorch twice with the same seed, once left alone and once stopped half-way with the driver's
functions for checkpoints, and compares every loss. Prints one line of JSON for each size: how long it took to stop, to put
away, to take back and to go on, how much of the GPU's memory was in use before, meanwhile and after, and whether the
losses are the same. A driver that refuses says so in `refused`.
"""

import argparse
import ctypes
import json
import os
import subprocess
import sys
import time

TRAINING = """
import sys, torch
gigabytes, steps = int(sys.argv[1]), int(sys.argv[2])
torch.manual_seed(0)
torch.use_deterministic_algorithms(True)
ballast = torch.zeros(gigabytes << 28, dtype=torch.float32, device="cuda")
model = torch.nn.Sequential(*[torch.nn.Linear(2048, 2048) for _ in range(4)]).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
x = torch.randn(512, 2048, device="cuda")
for step in range(steps):
    optimizer.zero_grad()
    loss = ((model(x) - x) ** 2).mean() + ballast[step]
    loss.backward()
    optimizer.step()
    ballast[step + 1] += loss.detach() / 1024
    print(step, loss.item().hex(), flush=True)
"""
# `CUcheckpointLockArgs` is a timeout and reserved words; the others are reserved words. All are 64 bytes.
ARGUMENTS = 64


class Refused(Exception):
    """What the driver said no to."""


class Driver:
    def __init__(self):
        self.cuda = ctypes.CDLL("libcuda.so.1")
        self.check("cuInit", ctypes.c_uint(0))

    def check(self, name, *arguments):
        try:
            function = getattr(self.cuda, name)
        except AttributeError:
            raise Refused(f"{name} is not there") from None
        result = function(*arguments)
        if result:
            raise Refused(f"{name} says {result}")

    def timed(self, name, process):
        """Milliseconds that a function for checkpoints took."""
        began = time.monotonic()
        self.check(name, ctypes.c_int(process), ctypes.create_string_buffer(ARGUMENTS))
        return round((time.monotonic() - began) * 1e3, 1)


def used_gigabytes():
    query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    return int(subprocess.run(query, capture_output=True, text=True, check=True).stdout.split()[0]) / 1024


def train(gigabytes, steps, meanwhile=None):
    """The losses. `meanwhile` is called with the process half-way."""
    command = [sys.executable, "-c", TRAINING, str(gigabytes), str(steps)]
    environment = {**os.environ, "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    losses = []
    try:
        for line in process.stdout:
            losses.append(line.split()[1])
            if meanwhile and len(losses) == steps // 2:
                meanwhile(process.pid)
    finally:
        process.kill()
        process.wait()
    return losses


def measure(driver, gigabytes, steps):
    alone = train(gigabytes, steps)
    told = {"gigabytes": gigabytes, "steps": len(alone)}

    def put_away(process):
        told["used_gb"] = round(used_gigabytes(), 2)
        told["lock_ms"] = driver.timed("cuCheckpointProcessLock", process)
        told["put_away_ms"] = driver.timed("cuCheckpointProcessCheckpoint", process)
        told["used_meanwhile_gb"] = round(used_gigabytes(), 2)
        told["take_back_ms"] = driver.timed("cuCheckpointProcessRestore", process)
        told["unlock_ms"] = driver.timed("cuCheckpointProcessUnlock", process)
        told["used_after_gb"] = round(used_gigabytes(), 2)

    try:
        stopped = train(gigabytes, steps, put_away)
        told["same_losses"] = stopped == alone and len(alone) == steps
    except Refused as refusal:
        told["refused"] = str(refusal)
    return told


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=int, action="append", help="memory beside the model's own [4 and 40]")
    parser.add_argument("--steps", type=int, default=60)
    arguments = parser.parse_args()
    driver = Driver()
    for gigabytes in arguments.gigabytes or [4, 40]:
        print(json.dumps(measure(driver, gigabytes, arguments.steps)), flush=True)


if __name__ == "__main__":
    main()
