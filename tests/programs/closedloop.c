/* Launches kernels of --us microseconds for --seconds seconds, waiting for them after every --every launches, or whole
 * graphs of --every kernels with --graphs 1. Prints one line when it is done: how much it did is for whoever reads it. */
#include "cuda.h"

USE(cuStreamBeginCapture, CUstream, unsigned)
USE(cuStreamEndCapture, CUstream, CUgraph *)
USE(cuGraphInstantiate, CUgraphExec *, CUgraph, unsigned long long)
USE(cuGraphLaunch, CUgraphExec, CUstream)
USE(cuMemAlloc, CUdeviceptr *, size_t)

int main(int count, char **arguments) {
    double duration = option(count, arguments, "--seconds", 1);
    double megabytes = option(count, arguments, "--memory", 0);
    int microseconds = option(count, arguments, "--us", 100);
    int every = option(count, arguments, "--every", 10);
    int graphs = option(count, arguments, "--graphs", 0);
    if (every < 1) every = 1;
    cuda_start();
    CUfunction kernel = cuda_kernel(microseconds);
    CUstream stream;
    CUgraph graph;
    CUgraphExec executable = NULL;
    CUdeviceptr memory;
    CHECK(CALL(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
    if (megabytes > 0) CHECK(CALL(cuMemAlloc)(&memory, (size_t)(megabytes * 1048576)));
    if (graphs) {
        CHECK(CALL(cuStreamBeginCapture)(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
        for (int i = 0; i < every; i++) cuda_launch(kernel, stream);
        CHECK(CALL(cuStreamEndCapture)(stream, &graph));
        CHECK(CALL(cuGraphInstantiate)(&executable, graph, 0));
    }
    fputs("ready\n", stderr);
    long launches = 0;
    double start = seconds(), now = start;
    while (now < start + duration) {
        if (graphs) {
            CHECK(CALL(cuGraphLaunch)(executable, stream));
        } else {
            for (int i = 0; i < every; i++) cuda_launch(kernel, stream);
        }
        launches += every;
        CHECK(CALL(cuStreamSynchronize)(stream));
        now = seconds();
    }
    double gpu = launches * microseconds / 1e6;
    printf("kernels=%ld gpu_seconds=%.6f seconds=%.6f kernels_per_second=%.1f share=%.4f\n", launches, gpu, now - start,
           launches / (now - start), gpu / (now - start));
    return 0;
}
