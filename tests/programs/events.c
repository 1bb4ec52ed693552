/* Events, dated, in order, and waited for; a host function in a stream. */
#include "cuda.h"

USE(cuEventCreate, CUevent *, unsigned)
USE(cuEventRecord, CUevent, CUstream)
USE(cuEventQuery, CUevent)
USE(cuEventSynchronize, CUevent)
USE(cuEventElapsedTime, float *, CUevent, CUevent)
USE(cuEventDestroy, CUevent)
USE(cuStreamQuery, CUstream)
USE(cuLaunchHostFunc, CUstream, void (*)(void *), void *)
USE(cuLaunchKernelEx, const CUlaunchConfig *, CUfunction, void **, void **)

static void host(void *argument) { *(int *)argument = 1; }

int main(void) {
    cuda_start();
    CUfunction kernel = cuda_kernel(5000);
    CUstream stream;
    CUevent start, end;
    float milliseconds;
    int called = 0;
    CHECK(CALL(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(CALL(cuEventCreate)(&start, 0));
    CHECK(CALL(cuEventCreate)(&end, 0));
    printf("not recorded: query %d, elapsed %d\n", CALL(cuEventQuery)(end), CALL(cuEventElapsedTime)(&milliseconds, start, end));
    CHECK(CALL(cuEventRecord)(start, stream));
    for (int i = 0; i < 20; i++) {
        CUlaunchConfig config = {1, 1, 1, 1, 1, 1, 0, stream, NULL, 0};
        CHECK(CALL(cuLaunchKernelEx)(&config, kernel, NULL, NULL));
    }
    CHECK(CALL(cuEventRecord)(end, stream));
    CHECK(CALL(cuLaunchHostFunc)(stream, host, &called));
    printf("at once: event %d, stream %d\n", CALL(cuEventQuery)(end), CALL(cuStreamQuery)(stream));
    CHECK(CALL(cuEventSynchronize)(end));
    printf("after waiting: event %d\n", CALL(cuEventQuery)(end));
    CHECK(CALL(cuStreamSynchronize)(stream));
    printf("host function called: %d, stream %d\n", called, CALL(cuStreamQuery)(stream));
    CHECK(CALL(cuEventElapsedTime)(&milliseconds, start, end));
    printf("elapsed is the kernels' time: %s\n", milliseconds >= 99 && milliseconds < 150 ? "yes" : "no");
    fprintf(stderr, "elapsed %.4f ms\n", milliseconds);
    CHECK(CALL(cuEventDestroy)(start));
    CHECK(CALL(cuEventDestroy)(end));
    return 0;
}
