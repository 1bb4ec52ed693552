"""Stands in for a training: steps of ten kernels of two milliseconds, for as long as it is let."""

from demo_gpu import Gpu

gpu = Gpu(microseconds=2000, memory_bytes=8 << 30)
while True:
    gpu.run(kernels=10)
