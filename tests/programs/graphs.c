/* Captures --kernels kernels of --us microseconds into a graph and launches it --count times; then breaks the rules of
 * capture and prints what came of it. */
#include "cuda.h"

USE(cuStreamBeginCapture, CUstream, unsigned)
USE(cuStreamEndCapture, CUstream, CUgraph *)
USE(cuStreamIsCapturing, CUstream, unsigned *)
USE(cuGraphInstantiate, CUgraphExec *, CUgraph, unsigned long long)
USE(cuGraphLaunch, CUgraphExec, CUstream)
USE(cuGraphGetNodes, CUgraph, CUgraphNode *, size_t *)
USE(cuGraphDestroy, CUgraph)
USE(cuGraphExecDestroy, CUgraphExec)
USE(cuEventCreate, CUevent *, unsigned)
USE(cuEventRecord, CUevent, CUstream)
USE(cuStreamWaitEvent, CUstream, CUevent, unsigned)
USE(cuMemAlloc, CUdeviceptr *, size_t)

static CUstream stream, other;

static void try_in_capture(const char *what, CUresult (*forbidden)(void)) {
    CUgraph graph = NULL;
    unsigned capturing = 9;
    CHECK(CALL(cuStreamBeginCapture)(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CUresult result = forbidden();
    CHECK(CALL(cuStreamIsCapturing)(stream, &capturing));
    CUresult ended = CALL(cuStreamEndCapture)(stream, &graph);
    printf("%s: %d, capture status %u, end %d, graph %s\n", what, result, capturing, ended, graph ? "yes" : "no");
    if (graph) CHECK(CALL(cuGraphDestroy)(graph));
}

static CUresult nothing(void) { return 0; }
static CUresult synchronize_stream(void) { return CALL(cuStreamSynchronize)(stream); }
static CUresult synchronize_context(void) { return CALL(cuCtxSynchronize)(); }
static CUresult allocate(void) {
    CUdeviceptr memory;
    return CALL(cuMemAlloc)(&memory, 4096);
}
static CUresult fork_without_join(void) {
    CUevent event;
    CHECK(CALL(cuEventCreate)(&event, 2));
    CHECK(CALL(cuEventRecord)(event, stream));
    CHECK(CALL(cuStreamWaitEvent)(other, event, 0));
    cuda_launch(cuda_kernel(10), other);
    return 0;
}

int main(int count, char **arguments) {
    int launches = option(count, arguments, "--count", 10);
    int kernels = option(count, arguments, "--kernels", 5);
    int microseconds = option(count, arguments, "--us", 100);
    cuda_start();
    CUfunction kernel = cuda_kernel(microseconds);
    CHECK(CALL(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(CALL(cuStreamCreate)(&other, CU_STREAM_NON_BLOCKING));

    CUgraph graph;
    CUgraphExec executable;
    CUevent fork, join;
    size_t nodes = 0;
    CHECK(CALL(cuEventCreate)(&fork, 2));
    CHECK(CALL(cuEventCreate)(&join, 2));
    CHECK(CALL(cuStreamBeginCapture)(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CHECK(CALL(cuEventRecord)(fork, stream));
    CHECK(CALL(cuStreamWaitEvent)(other, fork, 0));
    for (int i = 0; i < kernels; i++) cuda_launch(kernel, i % 2 ? other : stream);
    CHECK(CALL(cuEventRecord)(join, other));
    CHECK(CALL(cuStreamWaitEvent)(stream, join, 0));
    CHECK(CALL(cuStreamEndCapture)(stream, &graph));
    CHECK(CALL(cuGraphGetNodes)(graph, NULL, &nodes));
    CHECK(CALL(cuGraphInstantiate)(&executable, graph, 0));
    double start = seconds();
    for (int i = 0; i < launches; i++) CHECK(CALL(cuGraphLaunch)(executable, stream));
    CHECK(CALL(cuStreamSynchronize)(stream));
    fprintf(stderr, "done in %.6f s\n", seconds() - start);
    CHECK(CALL(cuGraphExecDestroy)(executable));
    CHECK(CALL(cuGraphDestroy)(graph));
    printf("%d launches of a graph of %zu kernels\n", launches, nodes);

    try_in_capture("nothing", nothing);
    try_in_capture("synchronize the stream", synchronize_stream);
    try_in_capture("synchronize the context", synchronize_context);
    try_in_capture("allocate", allocate);
    try_in_capture("leave a stream unjoined", fork_without_join);
    try_in_capture("nothing again", nothing);
    return 0;
}
