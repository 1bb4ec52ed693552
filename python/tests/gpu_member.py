"""As `member.py`, with its weights on a stand-in for a GPU (`cuda.c`), whose memory can be read as the host's.

    LD_LIBRARY_PATH=... python gpu_member.py '{"folder": ...}'
"""

import ctypes
import json
import os
import sys

import numpy as np

import weft
from weft import _cuda, _format, _weights


def main():
    told = json.loads(sys.argv[1])
    loads, seen = [], []

    def load():
        loads.append(1)
        return {"w": np.arange(1 << 17, dtype=np.float64), "part": np.arange(3)}

    def on_gpu(memory, number, header):
        seen.append(memory)
        size = header.body_bytes
        body = np.frombuffer((ctypes.c_ubyte * size).from_address(memory.address), np.uint8)
        values = {}
        for entry in header.entries:
            values[entry.name] = np.ndarray(
                entry.shape, _format._numpy_type(entry), body.data, entry.offset, entry.strides
            )
        return values

    image = _format.Image
    _format.Image = lambda key, value, library: image(key, value)
    _format.on_gpu = on_gpu
    _weights._find_gpu = lambda device: _cuda.Gpu(0)
    _weights._free = lambda loaded, device: None
    place = _weights.Place(told["folder"], "model", 1, [], told.get("patience_ms", 20_000), os.path.abspath(__file__))
    _weights.enter(place)
    weights = weft.shared(load, device="cuda")
    memory = seen[0] if seen else None
    said = {"loaded": len(loads), "sum": float(weights["w"].sum()), "part": weights["part"].tolist()}
    said.update({"way": memory.way, "read_only": memory.read_only, "keeper": memory.keeper} if memory else {})
    print(json.dumps(said), flush=True)
    for line in sys.stdin:
        if line.strip() == "memory":
            print(json.dumps({"sum": float(weights["w"].sum())}), flush=True)


if __name__ == "__main__":
    main()
