/* Requests of --kernels kernels of --us microseconds that come at random, --rate of them a second, for --seconds seconds.
 * Prints the latency of requests, counted from when each should have come, in milliseconds. */
#include "cuda.h"
#include <math.h>
#include <unistd.h>

static int ascending(const void *left, const void *right) {
    double difference = *(const double *)left - *(const double *)right;
    return (difference > 0) - (difference < 0);
}

static double random_gap(uint64_t *state, double rate) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return -log(((*state >> 11) + 1) / 9007199254740993.0) / rate;
}

int main(int count, char **arguments) {
    double rate = option(count, arguments, "--rate", 50);
    double duration = option(count, arguments, "--seconds", 2);
    int kernels = option(count, arguments, "--kernels", 20);
    int microseconds = option(count, arguments, "--us", 50);
    uint64_t state = (uint64_t)option(count, arguments, "--seed", 1) * 0x9e3779b97f4a7c15ull + 1;
    cuda_start();
    CUfunction kernel = cuda_kernel(microseconds);
    CUstream stream;
    CHECK(CALL(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
    fputs("ready\n", stderr);
    size_t room = 1024, requests = 0;
    double *latency = malloc(room * sizeof *latency);
    double start = seconds();
    for (double due = random_gap(&state, rate); due < duration; due += random_gap(&state, rate)) {
        double early = start + due - seconds();
        if (early > 0) usleep(early * 1e6);
        for (int i = 0; i < kernels; i++) cuda_launch(kernel, stream);
        CHECK(CALL(cuStreamSynchronize)(stream));
        if (requests == room) latency = realloc(latency, (room *= 2) * sizeof *latency);
        latency[requests++] = (seconds() - start - due) * 1e3;
    }
    if (!requests) return 0;
    qsort(latency, requests, sizeof *latency, ascending);
    printf("requests=%zu p50_ms=%.3f p99_ms=%.3f max_ms=%.3f\n", requests, latency[requests / 2],
           latency[requests * 99 / 100], latency[requests - 1]);
    return 0;
}
