/* --threads threads with a stream each launch --count kernels of --us microseconds, on one context. */
#include "cuda.h"
#include <pthread.h>

USE(cuCtxGetCurrent, CUcontext *)
USE(cuStreamQuery, CUstream)

static CUcontext context;
static int launches, microseconds;

static void *work(void *result) {
    CUstream stream;
    CHECK(CALL(cuCtxSetCurrent)(context));
    CUfunction kernel = cuda_kernel(microseconds);
    CHECK(CALL(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < launches; i++) cuda_launch(kernel, stream);
    CHECK(CALL(cuStreamSynchronize)(stream));
    CHECK(CALL(cuStreamQuery)(stream));
    *(int *)result = launches;
    return NULL;
}

int main(int count, char **arguments) {
    int threads = option(count, arguments, "--threads", 8), sum = 0;
    pthread_t thread[64];
    int result[64] = {0};
    launches = option(count, arguments, "--count", 500);
    microseconds = option(count, arguments, "--us", 10);
    if (threads > 64) threads = 64;
    cuda_start();
    cuda_kernel(microseconds);
    CHECK(CALL(cuCtxGetCurrent)(&context));
    for (int i = 0; i < threads; i++) pthread_create(&thread[i], NULL, work, &result[i]);
    for (int i = 0; i < threads; i++) pthread_join(thread[i], NULL), sum += result[i];
    printf("%d threads, %d launches\n", threads, sum);
    return 0;
}
