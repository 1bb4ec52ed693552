/* Keeps two GPUs busy for --seconds, with a thread for each that waits after every ten kernels of --us. */
#include "cuda.h"
#include <pthread.h>

static double until;
static int microseconds;

static void *work(void *argument) {
    CUcontext context;
    CHECK(CALL(cuDevicePrimaryCtxRetain)(&context, (CUdevice)(long)argument));
    CHECK(CALL(cuCtxSetCurrent)(context));
    CUfunction kernel = cuda_load(microseconds);
    while (seconds() < until) {
        for (int i = 0; i < 10; i++) cuda_launch(kernel, NULL);
        CHECK(CALL(cuCtxSynchronize)());
    }
    return NULL;
}

int main(int count, char **arguments) {
    pthread_t threads[2];
    microseconds = option(count, arguments, "--us", 100);
    CHECK(CALL(cuInit)(0));
    until = seconds() + option(count, arguments, "--seconds", 1);
    for (long gpu = 0; gpu < 2; gpu++) pthread_create(&threads[gpu], NULL, work, (void *)gpu);
    for (int gpu = 0; gpu < 2; gpu++) pthread_join(threads[gpu], NULL);
    return 0;
}
