/* Threads that are the first of their process to use the GPU, all at once: each asks for 64 MiB and launches ten kernels. */
#include "cuda.h"
#include <pthread.h>

USE(cuMemAlloc, CUdeviceptr *, size_t)

#define THREADS 8

static pthread_barrier_t barrier;

static void *use(void *got) {
    CUdeviceptr memory;
    pthread_barrier_wait(&barrier);
    cuda_start();
    *(int *)got = !CALL(cuMemAlloc)(&memory, 64 << 20);
    for (int i = 0; i < 10; i++) cuda_launch(cuda_kernel(10), NULL);
    CHECK(CALL(cuCtxSynchronize)());
    return NULL;
}

int main(void) {
    pthread_t thread[THREADS];
    int got[THREADS], sum = 0;
    pthread_barrier_init(&barrier, NULL, THREADS);
    for (int i = 0; i < THREADS; i++) pthread_create(&thread[i], NULL, use, &got[i]);
    for (int i = 0; i < THREADS; i++) pthread_join(thread[i], NULL), sum += got[i];
    printf("%d got memory\n", sum);
    return 0;
}
