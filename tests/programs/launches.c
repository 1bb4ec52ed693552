/* --count launches of --us microseconds on --streams streams; the time they took goes to stderr. */
#include "cuda.h"

int main(int count, char **arguments) {
    int launches = option(count, arguments, "--count", 1000);
    int microseconds = option(count, arguments, "--us", 10);
    int streams = option(count, arguments, "--streams", 1);
    cuda_start();
    CUfunction kernel = cuda_kernel(microseconds);
    CUstream stream[64] = {NULL};
    if (streams > 64) streams = 64;
    for (int i = 0; i < streams; i++) CHECK(CALL(cuStreamCreate)(&stream[i], CU_STREAM_NON_BLOCKING));
    double start = seconds();
    for (int i = 0; i < launches; i++) cuda_launch(kernel, stream[i % streams]);
    double launched = seconds();
    for (int i = 0; i < streams; i++) CHECK(CALL(cuStreamSynchronize)(stream[i]));
    double end = seconds();
    printf("%d launches of %d us on %d streams\n", launches, microseconds, streams);
    fprintf(stderr, "launched in %.6f s, done in %.6f s\n", launched - start, end - start);
    return 0;
}
