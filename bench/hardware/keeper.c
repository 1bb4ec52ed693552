/* Whether a program can be kept on the GPU through its short pauses, where programs take turns. A kernel of one thread is
 * launched with the last work of every request; it ends when the next request begins, or some time after the host has
 * its answer. Three ways to launch it:
 *
 *   beside    on a stream of its own, at once. The GPU is never without work of this program, but work that needs every
 *             block at once, or all of an SM, has to do without a place meanwhile.
 *   behind    on a stream of its own that waits for the work. It is in nobody's way; is the turn lost before it begins?
 *   in order  on the program's stream, after the work, and the host waits for an event between the two. It is in nobody's
 *             way, and the next request begins when it has ended. For programs that wait in a copy this cannot be done.
 *
 * Requests of 0.84 ms on all SMs, one after the other and at random at half of what can be done, alone and beside kernels
 * of 5 ms without end that have slices of 0.2 ms. Prints one line of JSON for each run.
 *
 *   gcc -O2 -rdynamic -D_GNU_SOURCE -I tests/programs -o keeper bench/hardware/keeper.c -ldl -lm && ./keeper
 */
#include "cuda.h"
#include "slices.h"
#include <math.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

USE(cuEventCreate, CUevent *, unsigned)
USE(cuEventRecord, CUevent, CUstream)
USE(cuEventSynchronize, CUevent)
USE(cuStreamWaitEvent, CUstream, CUevent, unsigned)
USE(cuMemHostAlloc, void **, size_t, unsigned)
USE(cuMemHostGetDevicePointer, CUdeviceptr *, void *, unsigned)

#define DEVICEMAP 2
#define WITHOUT_TIME 2
#define REQUESTS 20000

/* `work` goes around so many times, however long it is kept from the GPU meanwhile. `keep` runs until the first word is not its own number any more, or until so many
 * nanoseconds after the second word became that number, and never longer than 20 ms. */
static const char *IMAGE =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    ".visible .entry work(.param .u64 times) {\n"
    "  .reg .u64 %done, %times, %clock;\n  .reg .pred %p;\n"
    "  ld.param.u64 %times, [times];\n  mov.u64 %done, 0;\n"
    "again:\n"
    "  mov.u64 %clock, %clock64;\n  add.u64 %done, %done, 1;\n  setp.lt.u64 %p, %done, %times;\n  @%p bra again;\n"
    "  ret;\n}\n"
    ".visible .entry keep(.param .u64 words, .param .u32 number, .param .u64 linger) {\n"
    "  .reg .u64 %words, %linger, %start, %now, %gone, %since;\n  .reg .u32 %number, %seen;\n  .reg .pred %p, %counting;\n"
    "  ld.param.u64 %words, [words];\n  ld.param.u32 %number, [number];\n  ld.param.u64 %linger, [linger];\n"
    "  mov.u64 %start, %globaltimer;\n  mov.u64 %since, %start;\n  setp.ne.u32 %counting, %number, %number;\n"
    "again:\n"
    "  ld.volatile.global.u32 %seen, [%words];\n  setp.ne.u32 %p, %seen, %number;\n  @%p bra over;\n"
    "  mov.u64 %now, %globaltimer;\n  sub.u64 %gone, %now, %start;\n  setp.gt.u64 %p, %gone, 20000000;\n  @%p bra over;\n"
    "  @%counting bra count;\n"
    "  mov.u64 %since, %now;\n"
    "  ld.volatile.global.u32 %seen, [%words+4];\n  setp.eq.u32 %counting, %seen, %number;\n"
    "  bra again;\n"
    "count:\n"
    "  sub.u64 %gone, %now, %since;\n  setp.lt.u64 %p, %gone, %linger;\n  @%p bra again;\n"
    "over:\n  ret;\n}\n";

static CUfunction work, keep;
static CUstream stream, aside;
static CUevent done;
static volatile uint32_t *words;
static CUdeviceptr words_there;
static unsigned blocks;

static void prepare(unsigned all) {
    CUmodule module;
    cuda_start();
    blocks = all;
    CHECK(CALL(cuModuleLoadData)(&module, IMAGE));
    CHECK(CALL(cuModuleGetFunction)(&work, module, "work"));
    CHECK(CALL(cuModuleGetFunction)(&keep, module, "keep"));
    CHECK(CALL(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(CALL(cuStreamCreate)(&aside, CU_STREAM_NON_BLOCKING));
    CHECK(CALL(cuEventCreate)(&done, WITHOUT_TIME));
    CHECK(CALL(cuMemHostAlloc)((void **)&words, 64, DEVICEMAP));
    CHECK(CALL(cuMemHostGetDevicePointer)(&words_there, (void *)words, 0));
    words[0] = words[1] = 0;
}

/* Times around in a microsecond, alone. */
static double times_per_us = 1;

static void begin_work(double length_us) {
    uint64_t times = length_us * times_per_us + 1;
    void *arguments[] = {&times};
    CHECK(CALL(cuLaunchKernel)(work, blocks, 1, 1, 1024, 1, 1, 0, stream, arguments, NULL));
}

static void calibrate(void) {
    double best = 1e9;
    for (int i = 0; i < 5; i++) {
        double began = seconds();
        begin_work(20000);
        CHECK(CALL(cuStreamSynchronize)(stream));
        double took = (seconds() - began) * 1e6;
        if (took < best) best = took;
    }
    times_per_us = 20000 / best;
}

enum way { NONE, BESIDE, BEHIND, IN_ORDER };
static const char *WAYS[] = {"none", "beside", "behind", "in order"};

static void request(enum way way, uint64_t linger_ns) {
    static uint32_t number;
    words[0] = ++number;
    begin_work(840);
    if (way == BEHIND || way == IN_ORDER) CHECK(CALL(cuEventRecord)(done, stream));
    if (way == BEHIND) CHECK(CALL(cuStreamWaitEvent)(aside, done, 0));
    if (way != NONE) {
        void *arguments[] = {&words_there, &number, &linger_ns};
        CHECK(CALL(cuLaunchKernel)(keep, 1, 1, 1, 1, 1, 1, 0, way == IN_ORDER ? stream : aside, arguments, NULL));
    }
    if (way == IN_ORDER) {
        CHECK(CALL(cuEventSynchronize)(done));
    } else {
        CHECK(CALL(cuStreamSynchronize)(stream));
    }
    words[1] = number;
}

/* Between the two processes. */
static struct {
    volatile int busy, calibrated, ready;
    volatile double times_per_us;
    volatile uint64_t kernels;
} *shared;

static void neighbour(unsigned all) {
    while (!shared->calibrated) usleep(1000);
    prepare(all);
    times_per_us = shared->times_per_us;
    set_slice(200);
    shared->ready = 1;
    while (shared->busy >= 0) {
        if (!shared->busy) {
            usleep(100);
            continue;
        }
        begin_work(5000);
        begin_work(5000);
        CHECK(CALL(cuStreamSynchronize)(stream));
        shared->kernels += 2;
    }
}

static double taken[REQUESTS];

static int by_size(const void *one, const void *other) {
    double a = *(const double *)one, b = *(const double *)other;
    return (a > b) - (a < b);
}

/* Requests for so long; at random where a rate is given. */
static void measure(const char *how, bool beside, enum way way, uint64_t linger_ns, double rate, double length) {
    shared->busy = beside;
    double until = seconds() + 0.5;
    while (seconds() < until) request(way, linger_ns);
    uint64_t kernels = shared->kernels;
    double began = seconds(), next = began, sum = 0;
    int done = 0;
    srand48(1);
    while (seconds() - began < length && done < REQUESTS) {
        if (rate > 0) {
            next += -log(1 - drand48()) / rate;
            for (double now; (now = seconds()) < next;)
                if (next - now > 200e-6) usleep((next - now) * 1e6 - 150);
        } else {
            next = seconds();
        }
        request(way, linger_ns);
        sum += taken[done++] = (seconds() - next) * 1e6;
    }
    double passed = seconds() - began;
    shared->busy = 0;
    kernels = shared->kernels - kernels;
    qsort(taken, done, sizeof *taken, by_size);
    printf("{\"load\": \"%s\", \"neighbour_runs\": %s, \"keeper\": \"%s\", \"linger_us\": %.0f, \"requests_per_s\": %.1f, \"mean_us\": %.0f, \"p50_us\": %.0f, "
           "\"p99_us\": %.0f, \"most_us\": %.0f, \"neighbour\": %.3f}\n",
           how, beside ? "true" : "false", WAYS[way], linger_ns / 1e3, done / passed, sum / done, taken[done / 2],
           taken[done * 99 / 100], taken[done - 1], kernels * 0.005 / passed);
    fflush(stdout);
    usleep(50000);
}

int main(int count, char **arguments) {
    int rounds = option(count, arguments, "--rounds", 3);
    double length = option(count, arguments, "--ms", 3000) / 1e3;
    unsigned all = option(count, arguments, "--blocks", 264);
    shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t child = fork();
    if (!child) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        neighbour(all);
        return 0;
    }
    prepare(all);
    calibrate();
    shared->times_per_us = times_per_us;
    shared->calibrated = 1;
    set_slice(16000);
    while (!shared->ready) usleep(1000);
    for (int round = 0; round < rounds; round++) {
        for (int random = 0; random < 2; random++) {
            double rate = random ? 590 : 0;
            const char *how = random ? "at random" : "one after the other";
            for (enum way way = NONE; way <= IN_ORDER; way++) {
                measure(how, false, way, 100000, rate, length);
                measure(how, true, way, 100000, rate, length);
            }
            measure(how, true, BESIDE, 50000, rate, length);
            measure(how, true, BESIDE, 300000, rate, length);
        }
    }
    shared->busy = -1;
    int status;
    waitpid(child, &status, 0);
    return status != 0;
}
