/* Frees what was never allocated, and frees twice: the driver's errors, and nothing counted. */
#include "cuda.h"

USE(cuMemAlloc, CUdeviceptr *, size_t)
USE(cuMemFree, CUdeviceptr)
USE(cuMemRelease, CUmemHandle)
USE(cuMemGetInfo, size_t *, size_t *)
USE(cuDeviceTotalMem, size_t *, int)

int main(void) {
    size_t left, total, device;
    CUdeviceptr pointer, huge = 0;
    cuda_start();
    CHECK(CALL(cuMemAlloc)(&pointer, 64 << 20));
    CHECK(CALL(cuMemGetInfo)(&left, &total));
    CHECK(CALL(cuDeviceTotalMem)(&device, 0));
    printf("total %zu MiB, left %zu MiB, device %zu MiB\n", total >> 20, left >> 20, device >> 20);
    printf("unknown: %s\n", CALL(cuMemFree)(0x1234) ? "error" : "freed");
    printf("null: %d\n", CALL(cuMemFree)(0));
    printf("unknown handle: %s\n", CALL(cuMemRelease)(0x1234) ? "error" : "released");
    printf("huge: %d\n", CALL(cuMemAlloc)(&huge, ~(size_t)0));
    printf("half a terabyte: %d\n", CALL(cuMemAlloc)(&huge, (size_t)1 << 39));
    CHECK(CALL(cuMemFree)(pointer));
    printf("again: %s\n", CALL(cuMemFree)(pointer) ? "error" : "freed");
    CHECK(CALL(cuMemGetInfo)(&left, &total));
    printf("total %zu MiB, left %zu MiB\n", total >> 20, left >> 20);
    return 0;
}
