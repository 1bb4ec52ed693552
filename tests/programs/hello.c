/* The smallest whole program: start, allocate, copy there and back, launch, free. */
#include "cuda.h"

USE(cuMemAlloc, CUdeviceptr *, size_t)
USE(cuMemFree, CUdeviceptr)
USE(cuMemcpyHtoD, CUdeviceptr, const void *, size_t)
USE(cuMemcpyDtoH, void *, CUdeviceptr, size_t)

int main(void) {
    cuda_start();
    char text[64] = "hello from the device", back[64] = "";
    CUdeviceptr memory;
    CHECK(CALL(cuMemAlloc)(&memory, sizeof text));
    CHECK(CALL(cuMemcpyHtoD)(memory, text, sizeof text));
    cuda_launch(cuda_kernel(100), NULL);
    CHECK(CALL(cuCtxSynchronize)());
    CHECK(CALL(cuMemcpyDtoH)(back, memory, sizeof back));
    CHECK(CALL(cuMemFree)(memory));
    puts(back);
    return 0;
}
