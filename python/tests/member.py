"""A worker without a node: shares weights as it is told, says so, and does what it reads until its input ends.

    python member.py '{"folder": ..., "megabytes": 64}'
"""

import json
import os
import sys
import time

import numpy as np

import weft
from weft import _weights

TOLD = {"model": "model", "version": 1, "env": {}, "patience_ms": 20_000, "megabytes": 1, "load_s": 0.0}


def main():
    told = {**TOLD, **json.loads(sys.argv[1])}
    loads = []

    def load():
        loads.append(1)
        print("loading", flush=True)
        time.sleep(told["load_s"])
        return {"w": np.arange(told["megabytes"] << 17, dtype=np.float64), "one": np.float32(1)}

    os.environ.update(told["env"])
    place = {field: told[field] for field in _weights.Place._fields if field != "file"}
    place["env"] = list(told["env"])
    _weights.enter(_weights.Place(**place, file=os.path.abspath(__file__)))
    start = time.perf_counter()
    weights = weft.shared(load)
    took_s = time.perf_counter() - start
    total = float(weights["w"].sum())
    print(json.dumps({"loaded": len(loads), "took_s": took_s, "sum": total, "pid": os.getpid()}), flush=True)
    for line in sys.stdin:
        if line.strip() == "memory":
            print(json.dumps({"pss": proportional_bytes(), "sum": float(weights["w"].sum())}), flush=True)


def proportional_bytes():
    """This process's part of the memory of shared weights, where each page counts once among all that have it."""
    bytes_, inside = 0, False
    with open("/proc/self/smaps") as maps:
        for line in maps:
            first = line.split()[0]
            if "-" in first and not first.endswith(":"):
                inside = ".weights" in line
            elif inside and first == "Pss:":
                bytes_ += int(line.split()[1]) * 1024
    return bytes_


if __name__ == "__main__":
    main()
