"""As much of the CUDA driver as the demo needs, by ctypes: kernels that keep a GPU busy for a while.

A real GPU waits inside the kernel until its clock says so. The stand-in GPU computes nothing; it takes the time from the
kernel's name.
"""

import ctypes

PTX = """
.version 6.0
.target sm_60
.address_size 64
.visible .entry busy_{microseconds}us()
{{
    .reg .u64 %start, %now, %gone;
    .reg .pred %early;
    mov.u64 %start, %globaltimer;
again:
    mov.u64 %now, %globaltimer;
    sub.u64 %gone, %now, %start;
    setp.lt.u64 %early, %gone, {nanoseconds};
    @%early bra again;
    ret;
}}
"""
#: Enough blocks for the largest GPUs, each of one warp.
BLOCKS, THREADS = 1024, 32


class Gpu:
    """A GPU with memory that is held and a kernel that takes so long."""

    def __init__(self, microseconds, memory_bytes):
        self.driver = ctypes.CDLL("libcuda.so.1")
        device, context, module = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
        self.kernel, self.memory = ctypes.c_void_p(), ctypes.c_uint64()
        self.call("cuInit", 0)
        self.call("cuDeviceGet", ctypes.byref(device), 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxSetCurrent", context)
        image = PTX.format(microseconds=microseconds, nanoseconds=microseconds * 1000).encode()
        self.call("cuModuleLoadData", ctypes.byref(module), image)
        self.call("cuModuleGetFunction", ctypes.byref(self.kernel), module, f"busy_{microseconds}us".encode())
        self.call("cuMemAlloc_v2", ctypes.byref(self.memory), ctypes.c_size_t(memory_bytes))

    def run(self, kernels):
        """Runs kernels, one after the other, and waits for the last."""
        for _ in range(kernels):
            self.call("cuLaunchKernel", self.kernel, BLOCKS, 1, 1, THREADS, 1, 1, 0, None, None, None)
        self.call("cuCtxSynchronize")

    def call(self, name, *arguments):
        code = getattr(self.driver, name)(*arguments)
        if code != 0:
            raise RuntimeError(f"{name}: CUDA error {code}")
