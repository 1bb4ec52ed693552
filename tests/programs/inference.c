/* Answers --count requests as frameworks do: after a warm-up on another stream, each is a graph of --every kernels of --us
 * microseconds on the default stream, and a copy of the result to memory that is not pinned, which is what waits. With
 * --joined 0, nothing says that the warm-up is over. Says how many it answered. */
#include "cuda.h"

USE(cuStreamBeginCapture, CUstream, unsigned)
USE(cuStreamEndCapture, CUstream, CUgraph *)
USE(cuGraphInstantiate, CUgraphExec *, CUgraph, unsigned long long)
USE(cuGraphLaunch, CUgraphExec, CUstream)
USE(cuMemAlloc, CUdeviceptr *, size_t)
USE(cuMemcpyDtoHAsync, void *, CUdeviceptr, size_t, CUstream)
USE(cuEventCreate, CUevent *, unsigned)
USE(cuEventRecord, CUevent, CUstream)
USE(cuStreamWaitEvent, CUstream, CUevent, unsigned)

int main(int count, char **arguments) {
    int requests = option(count, arguments, "--count", 500);
    int microseconds = option(count, arguments, "--us", 2);
    int every = option(count, arguments, "--every", 400);
    cuda_start();
    CUfunction kernel = cuda_kernel(microseconds);
    CUstream side;
    CUgraph graph;
    CUgraphExec executable;
    CUevent warm;
    CUdeviceptr result;
    char answer[64];
    CHECK(CALL(cuStreamCreate)(&side, CU_STREAM_NON_BLOCKING));
    CHECK(CALL(cuMemAlloc)(&result, sizeof answer));
    CHECK(CALL(cuStreamBeginCapture)(side, CU_STREAM_CAPTURE_MODE_GLOBAL));
    for (int i = 0; i < every; i++) cuda_launch(kernel, side);
    CHECK(CALL(cuStreamEndCapture)(side, &graph));
    CHECK(CALL(cuGraphInstantiate)(&executable, graph, 0));
    for (int i = 0; i < 10; i++) cuda_launch(kernel, side);
    if (option(count, arguments, "--joined", 1)) {
        CHECK(CALL(cuEventCreate)(&warm, 0));
        CHECK(CALL(cuEventRecord)(warm, side));
        CHECK(CALL(cuStreamWaitEvent)(NULL, warm, 0));
    }
    for (int i = 0; i < requests; i++) {
        CHECK(CALL(cuGraphLaunch)(executable, NULL));
        CHECK(CALL(cuMemcpyDtoHAsync)(answer, result, sizeof answer, NULL));
        CHECK(CALL(cuStreamSynchronize)(NULL));
    }
    printf("answered %d\n", requests);
    return 0;
}
