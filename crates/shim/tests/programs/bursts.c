/* --threads threads with a stream each launch --bursts times --every kernels of --us microseconds and wait for them. Every
 * --graph times they capture a graph and launch it in between, and what comes last is waited for together. */
#include "cuda.h"
#include <pthread.h>

USE(cuCtxGetCurrent, CUcontext *)
USE(cuStreamBeginCapture, CUstream, unsigned)
USE(cuStreamEndCapture, CUstream, CUgraph *)
USE(cuGraphInstantiate, CUgraphExec *, CUgraph, unsigned long long)
USE(cuGraphLaunch, CUgraphExec, CUstream)

#define THREAD_LOCAL 1

static CUcontext context;
static int bursts, every, graph_every, microseconds;

static void launch_graph(CUfunction kernel, CUstream stream) {
    CUgraph graph;
    CUgraphExec executable;
    CHECK(CALL(cuStreamBeginCapture)(stream, THREAD_LOCAL));
    for (int i = 0; i < 3; i++) cuda_launch(kernel, stream);
    CHECK(CALL(cuStreamEndCapture)(stream, &graph));
    CHECK(CALL(cuGraphInstantiate)(&executable, graph, 0));
    CHECK(CALL(cuGraphLaunch)(executable, stream));
}

static void *work(void *none) {
    CUstream stream;
    CHECK(CALL(cuCtxSetCurrent)(context));
    CUfunction kernel = cuda_kernel(microseconds);
    CHECK(CALL(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
    for (int burst = 0; burst < bursts; burst++) {
        for (int i = 0; i < every; i++) {
            cuda_launch(kernel, stream);
            if (graph_every && burst % graph_every == graph_every - 1 && i == every / 2) launch_graph(kernel, stream);
        }
        CHECK(CALL(cuStreamSynchronize)(stream));
    }
    for (int i = 0; i < every; i++) cuda_launch(kernel, stream);
    return none;
}

int main(int count, char **arguments) {
    int threads = option(count, arguments, "--threads", 1);
    pthread_t thread[16];
    bursts = option(count, arguments, "--bursts", 400);
    every = option(count, arguments, "--every", 20);
    graph_every = option(count, arguments, "--graph", 0);
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
