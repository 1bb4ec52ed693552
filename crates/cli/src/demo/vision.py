"""Stands in for a vision model on a GPU: sixteen kernels of 250 microseconds for each batch."""

import numpy as np
import weft
from demo_gpu import Gpu


class Vision(weft.Model):
    inputs = [weft.Tensor("IMAGE", "FP32", [-1, 16])]
    outputs = [weft.Tensor("CLASS", "INT32", [-1, 1])]

    def load(self):
        self.gpu = Gpu(microseconds=250, memory_bytes=2 << 30)

    def predict(self, inputs):
        self.gpu.run(kernels=16)
        return {"CLASS": np.zeros((len(inputs["IMAGE"]), 1), dtype=np.int32)}
