"""Measures what this package costs per batch: everything between a message's arrival and its answer, but the system
calls, for an echo of 16 floats.

    PYTHONPATH=python python python/tests/overhead.py
"""

import time

import numpy as np

from test_protocol import Node
from weft import worker

ROUNDS = 20_000


class Silent:
    """A socket that sends nothing, so that only Python is measured."""

    def send(self, message):
        return len(message)


def main():
    node = Node()
    channel = node.channel
    node.run(("x", 11, (1, 16), np.zeros(16, np.float32).tobytes()))
    message = channel.receive()
    channel.connection = Silent()

    def predict(inputs):
        return {"y": inputs["x"]}

    best = float("inf")
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(ROUNDS):
            names, arrays = worker.arrange(predict(channel.inputs(message)), ("y",))
            channel.answer(names, arrays)
        best = min(best, (time.perf_counter() - start) / ROUNDS)
    print(f"{best * 1e6:.2f} us per batch")


if __name__ == "__main__":
    main()
