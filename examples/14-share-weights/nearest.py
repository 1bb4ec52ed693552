"""Finds what is most like a vector, among 65,536 others: 64 MiB that every worker reads and none changes."""

import numpy as np
import weft

COUNT, WIDTH = 65_536, 256


def load():
    print("loading the table")
    table = np.random.default_rng(seed=1).standard_normal((COUNT, WIDTH), dtype=np.float32)
    return {"table": table / np.linalg.norm(table, axis=1, keepdims=True)}


class Nearest(weft.Model):
    inputs = [weft.Tensor("VECTOR", "FP32", [-1, WIDTH])]
    outputs = [weft.Tensor("INDEX", "INT64", [-1, 1])]

    def load(self):
        # The first worker calls `load`; the others map what it made.
        self.table = weft.shared(load)["table"]
        print("the table is there")

    def predict(self, inputs):
        likeness = inputs["VECTOR"] @ self.table.T
        return {"INDEX": likeness.argmax(axis=1).reshape(-1, 1)}
