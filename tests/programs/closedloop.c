/* Launches kernels of --us microseconds for --seconds seconds, waiting for them after every --every launches, or whole
 * graphs of --every kernels with --graphs 1, and sleeping for --pause microseconds after each wait
 * and for --between microseconds after each launch. Prints one line when it is done: how much it did is for whoever reads it.
 * With CLOSEDLOOP_LOG, keeps when every wait ended, by the wall clock, and how long its launches and it took, in
 * nanoseconds, as pairs of 64-bit words in that file, which also tells of a program that was killed. */
#include "cuda.h"
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#define LOG_PAIRS 1000000

static uint64_t *open_log(const char *path) {
    int file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    size_t bytes = LOG_PAIRS * 2 * sizeof(uint64_t);
    if (file < 0 || ftruncate(file, bytes) != 0) return NULL;
    uint64_t *log = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    return log == MAP_FAILED ? NULL : log;
}

USE(cuStreamBeginCapture, CUstream, unsigned)
USE(cuStreamEndCapture, CUstream, CUgraph *)
USE(cuGraphInstantiate, CUgraphExec *, CUgraph, unsigned long long)
USE(cuGraphLaunch, CUgraphExec, CUstream)
USE(cuMemAlloc, CUdeviceptr *, size_t)

static uint64_t wall_clock(void) {
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    return time.tv_sec * 1000000000ull + time.tv_nsec;
}

int main(int count, char **arguments) {
    double duration = option(count, arguments, "--seconds", 1);
    double megabytes = option(count, arguments, "--memory", 0);
    int microseconds = option(count, arguments, "--us", 100);
    int every = option(count, arguments, "--every", 10);
    int graphs = option(count, arguments, "--graphs", 0);
    int pause = option(count, arguments, "--pause", 0);
    int between = option(count, arguments, "--between", 0);
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
    const char *path = getenv("CLOSEDLOOP_LOG");
    uint64_t *log = path ? open_log(path) : NULL;
    if (path && !log) {
        perror(path);
        return 1;
    }
    fputs("ready\n", stderr);
    long launches = 0, logged = 0;
    double start = seconds(), now = start;
    while (now < start + duration) {
        if (graphs) {
            CHECK(CALL(cuGraphLaunch)(executable, stream));
        } else {
            for (int i = 0; i < every; i++) {
                cuda_launch(kernel, stream);
                if (between) usleep(between);
            }
        }
        launches += every;
        CHECK(CALL(cuStreamSynchronize)(stream));
        double ended = seconds();
        if (log && logged < LOG_PAIRS) {
            log[logged * 2 + 1] = (uint64_t)((ended - now) * 1e9);
            log[logged * 2] = wall_clock();
            logged++;
        }
        if (pause) usleep(pause);
        now = pause ? seconds() : ended;
    }
    double gpu = launches * microseconds / 1e6;
    printf("kernels=%ld gpu_seconds=%.6f seconds=%.6f kernels_per_second=%.1f share=%.4f\n", launches, gpu, now - start,
           launches / (now - start), gpu / (now - start));
    return 0;
}
