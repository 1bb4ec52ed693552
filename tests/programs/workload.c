/* A program to share a GPU with, for `weft bench sharing`: bench/workloads/workload.py says how it is told what to do.
 * A request is --kernels kernels of --us microseconds each, --gap microseconds of the host's time apart, or with --train
 * without a pause. --die-after N and --garbage-after N misbehave instead of the answer after N good ones; --silent 1 is
 * never ready; --name NAME means nothing. */
#include "cuda.h"
#include <math.h>
#include <unistd.h>

static uint64_t now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000ull + time.tv_nsec;
}

static void sleep_until(uint64_t when) {
    for (uint64_t now; (now = now_ns()) < when;) usleep((when - now) / 1000 + 1);
}

static double random_gap(uint64_t *state, double rate) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return -log(((*state >> 11) + 1) / 9007199254740993.0) / rate;
}

static int flag(int count, char **arguments, const char *name) {
    for (int i = 1; i < count; i++)
        if (!strcmp(arguments[i], name)) return 1;
    return 0;
}

/* The number after a name in a line of JSON. */
static double number(const char *line, const char *name) {
    char quoted[32];
    snprintf(quoted, sizeof quoted, "\"%s\":", name);
    const char *found = strstr(line, quoted);
    if (!found) {
        fprintf(stderr, "no %s in %s\n", name, line);
        exit(1);
    }
    return strtod(found + strlen(quoted), NULL);
}

static CUfunction kernel;
static CUstream stream;
static int kernels, gap_us, train;

static void request(void) {
    for (int i = 0; i < kernels; i++) {
        if (gap_us && !train) usleep(gap_us);
        cuda_launch(kernel, stream);
    }
    CHECK(CALL(cuStreamSynchronize)(stream));
}

static struct { uint64_t latency_us, came_us; } *requests;
static size_t done, room;

static void keep(uint64_t latency_ns, uint64_t came_ns) {
    if (done == room) requests = realloc(requests, (room = room ? room * 2 : 1024) * sizeof *requests);
    requests[done].latency_us = latency_ns / 1000;
    requests[done++].came_us = came_ns / 1000;
}

/* Does what a line says, as busy() of workload.py does; the seconds until the last request that was done in time. */
static double busy(const char *line) {
    uint64_t begin = (uint64_t)number(line, "at_ns"), end = begin + (uint64_t)(number(line, "seconds") * 1e9);
    double rate = number(line, "rate");
    uint64_t state = (uint64_t)number(line, "seed") * 0x9e3779b97f4a7c15ull + 1;
    uint64_t came = now_ns(), last = begin, told = begin;
    done = 0;
    for (;;) {
        if (rate > 0) {
            came += (uint64_t)(random_gap(&state, rate) * 1e9);
            sleep_until(came < end ? came : end);
        } else {
            came = now_ns();
        }
        if (came >= end) return (last - begin) / 1e9;
        request();
        uint64_t now = now_ns();
        if (rate > 0) {
            if (came >= begin) {
                keep(now - came, came - told);
                last = end;
            }
        } else if (came < begin && now >= begin) {
            last = begin = now;
        } else if (came >= begin && now <= end) {
            keep(now - came, came - told);
            last = now;
        }
    }
}

int main(int count, char **arguments) {
    kernels = option(count, arguments, "--kernels", 20);
    gap_us = option(count, arguments, "--gap", 0);
    train = flag(count, arguments, "--train");
    int die_after = option(count, arguments, "--die-after", -1);
    int garbage_after = option(count, arguments, "--garbage-after", -1);
    cuda_start();
    kernel = cuda_kernel(option(count, arguments, "--us", 50));
    CHECK(CALL(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
    request();
    if (!option(count, arguments, "--silent", 0)) puts("ready");
    fflush(stdout);
    char line[4096];
    for (int answers = 0; fgets(line, sizeof line, stdin); answers++) {
        if (answers == die_after) {
            fputs("out of luck\n", stderr);
            return 9;
        }
        double lasted = busy(line);
        if (answers == garbage_after) {
            puts("{\"done\": many}");
            fflush(stdout);
            continue;
        }
        printf("{\"done\": %zu, \"seconds\": %.9f, \"latencies_us\": [", done, lasted);
        for (size_t i = 0; i < done; i++) printf(i ? ", %llu" : "%llu", (unsigned long long)requests[i].latency_us);
        printf("], \"came_us\": [");
        for (size_t i = 0; i < done; i++) printf(i ? ", %llu" : "%llu", (unsigned long long)requests[i].came_us);
        puts("]}");
        fflush(stdout);
    }
    return 0;
}
