"""A program to share a GPU with: python workload.py NAME [--batch N] [--graph | --train] [--busy-poll] [--every MS].

Says `ready` when it is warm and then does what it is told, a line of JSON each on standard input:

    {"at_ns": 123, "seconds": 3, "rate": 40, "seed": 1}

From `at_ns` on (CLOCK_MONOTONIC), for so many seconds: requests that come at random at this rate, or one after the other
where the rate is 0. It is busy in the same way before that, so that what is measured is warm. With `--busy-poll` it
spins instead of sleeping until the next one comes, which needs cores of its own and spares them waking up. With `--every`
requests come at regular times wherever they would come at random, whatever the rate. The answer is a line, too:

    {"done": 120, "seconds": 2.99, "latencies_us": [5100, ...], "came_us": [17, ...]}

`seconds` is until the last one that was done in time, and `came_us` when each came, from `at_ns` on. Training adds
`per_second`, in which half a step is half a step.
Ends with its input.
"""

import argparse
import fcntl
import json
import os
import random
import sys
import tempfile
import time

import torch

import models


def busy(work, command, busy_poll, every_ms):
    """Requests from now until the end, of which those that came after the beginning are told of."""
    begin, end = command["at_ns"], command["at_ns"] + int(command["seconds"] * 1e9)
    rate, random_numbers = command.get("rate", 0), random.Random(command.get("seed", 0))
    pause_ns = lambda: int(every_ms * 1e6 or random_numbers.expovariate(rate) * 1e9)
    told, came, latencies, times, last = begin, time.monotonic_ns(), [], [], begin
    while True:
        if rate > 0:
            came += pause_ns()
            while (wait := came - time.monotonic_ns()) > 0 and came < end:
                if not busy_poll:
                    time.sleep(max(wait - 200_000, 0) / 1e9)
        else:
            came = time.monotonic_ns()
        if came >= end:
            return latencies, times, (last - begin) / 1e9
        work()
        now = time.monotonic_ns()
        if rate > 0:
            measured = came >= begin
        else:
            # What began before and ended after the beginning is half a request; it is where the clock starts.
            measured = came >= begin and now <= end
            if came < begin <= now:
                last, begin = now, now
        if measured:
            latencies.append((now - came) // 1000)
            times.append((came - told) // 1000)
            last = max(last, min(now, end)) if rate == 0 else end


def warm(work, times):
    for _ in range(times):
        work()
    torch.cuda.empty_cache()
    return work


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("name", choices=sorted({*models.INFERENCE, *models.TRAINING}))
    arguments.add_argument("--batch", type=int, default=0)
    arguments.add_argument("--busy-poll", action="store_true", help="spin instead of sleeping between requests")
    arguments.add_argument("--every", type=float, default=0, metavar="MS", help="requests at regular times")
    # The name of the last version.
    arguments.add_argument("--awake", action="store_true", dest="busy_poll", help=argparse.SUPPRESS)
    kind = arguments.add_mutually_exclusive_group()
    kind.add_argument("--graph", action="store_true")
    kind.add_argument("--train", action="store_true")
    asked = arguments.parse_args()
    if asked.name not in (models.TRAINING if asked.train else models.INFERENCE):
        arguments.error(f"{asked.name} is {'no training' if asked.train else 'only a training'}")
    torch.set_num_threads(2)
    if asked.train:
        # A GPU has no memory for two trainings of GPT-2, and one that waits for its turn has given its own back.
        with open(os.path.join(tempfile.gettempdir(), "weft-workload.lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            work = warm(models.training(asked.name, asked.batch), 2)
    else:
        work = warm(models.inference(asked.name, asked.batch or 1, asked.graph), 20)
    print("ready", flush=True)
    for line in sys.stdin:
        command = json.loads(line)
        progress, seen, looks = getattr(work, "progress", None), [], []
        if progress:
            ends = (command["at_ns"], command["at_ns"] + int(command["seconds"] * 1e9))
            looks = [progress.at(when, seen) for when in ends]
        latencies, times, seconds = busy(work, command, asked.busy_poll, asked.every)
        answer = {"done": len(latencies), "seconds": seconds, "latencies_us": latencies, "came_us": times}
        for look in looks:
            look.join()
        if len(seen) == 2:
            (steps, began), (more, ended) = seen
            answer["per_second"] = max(0.0, more - steps) / ((ended - began) / 1e9)
        print(json.dumps(answer), flush=True)
        torch.cuda.empty_cache()


main()
