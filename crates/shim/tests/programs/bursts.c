/* --threads threads with a stream each launch --bursts times --every kernels of --us microseconds and wait for them. What
 * comes last is waited for together. With --turns 1, one thread at a time. Once in so many bursts, in the middle of one:
 * --graph: a graph is captured and launched, --side: as many kernels go to another stream, which is waited for, too.
 * --second 1: GPU 1 is used as well, once, in the middle of all. */
#include "cuda.h"
#include <pthread.h>

USE(cuCtxGetCurrent, CUcontext *)
USE(cuStreamBeginCapture, CUstream, unsigned)
USE(cuStreamEndCapture, CUstream, CUgraph *)
USE(cuGraphInstantiate, CUgraphExec *, CUgraph, unsigned long long)
USE(cuGraphLaunch, CUgraphExec, CUstream)

#define THREAD_LOCAL 1

static CUcontext context;
static int bursts, every, graph, side, second, turns, microseconds;
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;

static int once_in(int number, int burst) { return number && burst % number == number - 1; }

static void launch_graph(CUfunction kernel, CUstream stream) {
    CUgraph graph;
    CUgraphExec executable;
    CHECK(CALL(cuStreamBeginCapture)(stream, THREAD_LOCAL));
    for (int i = 0; i < 3; i++) cuda_launch(kernel, stream);
    CHECK(CALL(cuStreamEndCapture)(stream, &graph));
    CHECK(CALL(cuGraphInstantiate)(&executable, graph, 0));
    CHECK(CALL(cuGraphLaunch)(executable, stream));
}

static void use_another_gpu(void) {
    CUcontext other;
    CHECK(CALL(cuDevicePrimaryCtxRetain)(&other, 1));
    CHECK(CALL(cuCtxSetCurrent)(other));
    CUfunction kernel = cuda_load(microseconds);
    for (int i = 0; i < 30; i++) cuda_launch(kernel, NULL);
    CHECK(CALL(cuCtxSynchronize)());
    CHECK(CALL(cuCtxSetCurrent)(context));
}

static void *work(void *none) {
    CUstream stream, other;
    CHECK(CALL(cuCtxSetCurrent)(context));
    CUfunction kernel = cuda_kernel(microseconds);
    CHECK(CALL(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(CALL(cuStreamCreate)(&other, CU_STREAM_NON_BLOCKING));
    for (int burst = 0; burst < bursts; burst++) {
        int aside = once_in(side, burst);
        if (turns) pthread_mutex_lock(&turn);
        for (int i = 0; i < every; i++) {
            cuda_launch(kernel, stream);
            if (aside) cuda_launch(kernel, other);
            if (once_in(graph, burst) && i == every / 2) launch_graph(kernel, stream);
            if (second && burst == bursts / 2 && i == every / 2) use_another_gpu();
        }
        CHECK(CALL(cuStreamSynchronize)(stream));
        if (aside) CHECK(CALL(cuStreamSynchronize)(other));
        if (turns) pthread_mutex_unlock(&turn);
    }
    for (int i = 0; i < every; i++) cuda_launch(kernel, stream);
    return none;
}

int main(int count, char **arguments) {
    int threads = option(count, arguments, "--threads", 1);
    pthread_t thread[16];
    bursts = option(count, arguments, "--bursts", 400);
    every = option(count, arguments, "--every", 20);
    graph = option(count, arguments, "--graph", 0);
    side = option(count, arguments, "--side", 0);
    turns = option(count, arguments, "--turns", 0);
    second = option(count, arguments, "--second", 0);
    microseconds = option(count, arguments, "--us", 20);
    if (threads > 16) threads = 16;
    cuda_start();
    cuda_kernel(microseconds);
    CHECK(CALL(cuCtxGetCurrent)(&context));
    for (int i = 0; i < threads; i++) pthread_create(&thread[i], NULL, work, NULL);
    for (int i = 0; i < threads; i++) pthread_join(thread[i], NULL);
    CHECK(CALL(cuCtxSynchronize)());
    printf("%d threads, %d bursts\n", threads, bursts);
    return 0;
}
