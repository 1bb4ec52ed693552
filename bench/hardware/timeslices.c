/* What the driver's controls of time slices do, on the machine at hand: how short a slice is honoured, what turns and
 * changes of turn look like from inside a kernel, what switching a channel group off does to work in flight, how long a
 * short kernel waits beside long ones, and what every call costs. Prints one line of JSON for each finding.
 *
 *   gcc -O2 -rdynamic -D_GNU_SOURCE -I tests/programs -o timeslices bench/hardware/timeslices.c -ldl -lpthread && ./timeslices
 */
#include "cuda.h"
#include "slices.h"
#include <pthread.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

USE(cuMemAlloc, CUdeviceptr *, size_t)
USE(cuMemsetD8, CUdeviceptr, unsigned char, size_t)
USE(cuMemcpyDtoH, void *, CUdeviceptr, size_t)

#define GAPS 4096

static uint32_t schedule_one(int index, bool on) {
    uint8_t words[3] = {on, 0, 0};
    return call(index, SCHEDULE, words, sizeof words);
}

static uint32_t preempt_one(int index, bool wait) {
    struct { uint8_t wait, manual; uint16_t pad; uint32_t us; } words = {wait, 0, 0, 0};
    return call(index, PREEMPT, &words, 8);
}

static uint32_t of_all(uint32_t (*one)(int, bool), bool how) {
    uint32_t worst = 0;
    for (int i = 0; i < groups; i++) {
        uint32_t status = one(i, how);
        if (status) worst = status;
    }
    return worst;
}

static uint32_t schedule(bool on) {
    return of_all(schedule_one, on);
}

static uint32_t preempt(bool wait) {
    return of_all(preempt_one, wait);
}

/* Runs for so many nanoseconds and notes, in one thread, every time that it was not running for 15 us. */
static const char *IMAGE =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    ".visible .entry watch(.param .u64 out, .param .u64 length) {\n"
    "  .reg .u64 %start, %now, %last, %gone, %length, %out, %most;\n"
    "  .reg .u32 %x, %y, %count;\n  .reg .pred %p, %first;\n"
    "  ld.param.u64 %out, [out];\n  ld.param.u64 %length, [length];\n"
    "  mov.u32 %x, %tid.x;\n  mov.u32 %y, %ctaid.x;\n  or.b32 %x, %x, %y;\n  setp.eq.u32 %first, %x, 0;\n"
    "  mov.u32 %count, 0;\n  mov.u64 %start, %globaltimer;\n  mov.u64 %last, %start;\n"
    "  @%first st.global.u64 [%out], %start;\n"
    "again:\n"
    "  mov.u64 %now, %globaltimer;\n"
    "  sub.u64 %gone, %now, %last;\n  setp.lt.u64 %p, %gone, 15000;\n  @%p bra same;\n"
    "  @!%first bra same;\n  setp.ge.u32 %p, %count, 4000;\n  @%p bra same;\n"
    "  add.u64 %out, %out, 16;\n  st.global.u64 [%out], %last;\n  st.global.u64 [%out+8], %now;\n"
    "  add.u32 %count, %count, 1;\n"
    "same:\n"
    "  mov.u64 %last, %now;\n  sub.u64 %gone, %now, %start;\n  setp.lt.u64 %p, %gone, %length;\n  @%p bra again;\n"
    "  ret;\n}\n";

static CUfunction watch;
static CUdeviceptr notes;
static uint64_t seen[2 * (GAPS + 1)];

static void begin_watching(uint64_t length_ns, unsigned blocks) {
    CHECK(CALL(cuMemsetD8)(notes, 0, sizeof seen));
    void *arguments[] = {&notes, &length_ns};
    CHECK(CALL(cuLaunchKernel)(watch, blocks, 1, 1, blocks > 1 ? 1024 : 1, 1, 1, 0, NULL, arguments, NULL));
}

static int end_watching(void) {
    CHECK(CALL(cuCtxSynchronize)());
    CHECK(CALL(cuMemcpyDtoH)(seen, notes, sizeof seen));
    int gaps = 0;
    while (gaps < 4000 && seen[2 * (gaps + 1)]) gaps++;
    return gaps;
}

static int by_size(const void *one, const void *other) {
    double a = *(const double *)one, b = *(const double *)other;
    return (a > b) - (a < b);
}

static double part(double *values, int count, double where) {
    if (count <= 0) return 0;
    qsort(values, count, sizeof *values, by_size);
    return values[(int)((count - 1) * where)];
}

/* What the process saw of its turns. */
static void tell_turns(const char *what, const char *who, double value, unsigned blocks, int gaps) {
    static double turns[GAPS], others[GAPS];
    for (int i = 0; i < gaps; i++) {
        others[i] = (seen[2 * (i + 1) + 1] - seen[2 * (i + 1)]) / 1e3;
        turns[i] = i ? (seen[2 * (i + 1)] - seen[2 * i + 1]) / 1e3 : 0;
    }
    printf("{\"what\": \"%s\", \"who\": \"%s\", \"value\": %.0f, \"blocks\": %u, \"gaps\": %d, \"turn_us_p50\": %.0f, "
           "\"turn_us_p90\": %.0f, \"away_us_p10\": %.0f, \"away_us_p50\": %.0f, \"away_us_p99\": %.0f}\n",
           what, who, value, blocks, gaps, part(turns + 1, gaps - 1, 0.5), part(turns + 1, gaps - 1, 0.9),
           part(others, gaps, 0.1), part(others, gaps, 0.5), part(others, gaps, 0.99));
    fflush(stdout);
}

/* Between the two processes. */
static struct {
    volatile int step, busy, off, off_wanted;
    volatile double slice, length_ms, changed_us;
    volatile unsigned blocks;
    volatile uint32_t status;
} *shared;

static void meet(int step) {
    __sync_fetch_and_add(&shared->step, 1);
    while (shared->step < 2 * step) usleep(50);
}

static void prepare(void) {
    CUmodule module;
    cuda_start();
    CHECK(CALL(cuModuleLoadData)(&module, IMAGE));
    CHECK(CALL(cuModuleGetFunction)(&watch, module, "watch"));
    CHECK(CALL(cuMemAlloc)(&notes, sizeof seen));
    begin_watching(1000000, 1);
    end_watching();
}

static void *switch_off_when_told(void *none) {
    (void)none;
    while (shared->busy >= 0) {
        if (shared->off_wanted == shared->off) continue;
        bool off = shared->off_wanted;
        double began = seconds();
        shared->status = schedule(!off);
        shared->changed_us = (seconds() - began) * 1e6;
        shared->off = off;
    }
    return NULL;
}

/* The one that is in the way: does what the other says. */
static void neighbour(void) {
    prepare();
    pthread_t thread;
    pthread_create(&thread, NULL, switch_off_when_told, NULL);
    for (int step = 1;; step++) {
        meet(step);
        if (shared->busy < 0) break;
        set_slice(shared->slice);
        int kernels = 0;
        if (shared->busy == 1) {
            begin_watching(shared->length_ms * 1e6, shared->blocks);
            int gaps = end_watching();
            tell_turns("turns", "the neighbour", shared->slice, shared->blocks, gaps);
        } else {
            while (shared->busy == 2) {
                begin_watching(50e6, shared->blocks);
                if (++kernels % 2 == 0) CHECK(CALL(cuCtxSynchronize)());
            }
            CHECK(CALL(cuCtxSynchronize)());
            meet(++step);
        }
    }
    pthread_join(thread, NULL);
}

static void take_turns(int *step, double mine, double slice, unsigned blocks) {
    shared->slice = slice;
    shared->length_ms = 200;
    shared->busy = 1;
    shared->blocks = blocks;
    set_slice(mine);
    meet(++*step);
    begin_watching(200000000, blocks);
    int gaps = end_watching();
    char who[64];
    snprintf(who, sizeof who, "one with %.0f us", mine);
    tell_turns("turns", who, slice, blocks, gaps);
    usleep(250000);
}

/* Turns that end while the neighbour has nothing to do. */
static void by_itself(double slice, unsigned blocks) {
    set_slice(slice);
    begin_watching(200000000, blocks);
    tell_turns("turns beside nobody", "one by itself", slice, blocks, end_watching());
}

static double lag[4000];

static void first_launch(int *step, double mine, double slice, bool off, int rounds) {
    shared->busy = 2;
    shared->slice = slice;
    set_slice(mine);
    meet(++*step);
    usleep(100000);
    CUfunction kernel = cuda_kernel(20);
    static double changed[4000];
    for (int i = 0; i < rounds; i++) {
        double began = seconds();
        if (off) shared->off_wanted = 1;
        cuda_launch(kernel, NULL);
        CHECK(CALL(cuCtxSynchronize)());
        lag[i] = (seconds() - began) * 1e6;
        if (off) {
            while (!shared->off) {}
            changed[i] = shared->changed_us;
            shared->off_wanted = 0;
            while (shared->off) {}
        }
        usleep(3000 + random() % 4000);
    }
    shared->busy = 0;
    meet(++*step);
    printf("{\"what\": \"a kernel of 20 us beside kernels of 50 ms\", \"slice_us\": %.0f, \"own_slice_us\": %.0f, "
           "\"switched_off\": %s, \"status\": %u, \"off_call_us_p50\": %.0f, \"done_us_p50\": %.0f, \"p90\": %.0f, \"p99\": %.0f, \"most\": %.0f}\n",
           slice, mine, off ? "true" : "false", shared->status, off ? part(changed, rounds, 0.5) : 0, part(lag, rounds, 0.5), part(lag, rounds, 0.9),
           part(lag, rounds, 0.99), part(lag, rounds, 1));
    fflush(stdout);
}

static double timed(uint32_t (*change)(bool), bool how) {
    double began = seconds();
    uint32_t status = change(how);
    double took = (seconds() - began) * 1e6;
    if (status) printf("{\"what\": \"refused\", \"status\": %u}\n", status);
    return took;
}

/* Alone: what a control does to the kernel that runs. */
static void in_flight(const char *what, uint32_t (*first)(bool), bool how, uint32_t (*then)(bool), bool back) {
    begin_watching(100000000, 264);
    usleep(30000);
    double one = timed(first, how), two = 0;
    usleep(20000);
    if (then) two = timed(then, back);
    int gaps = end_watching();
    printf("{\"what\": \"%s, a kernel of 100 ms running\", \"call_us\": %.0f, \"back_us\": %.0f, \"gaps\": %d, \"stopped_after_ms\": %.2f, "
           "\"stopped_for_ms\": %.2f}\n", what, one, two, gaps, gaps ? (seen[2] - seen[0]) / 1e6 : 0.0,
           gaps ? (seen[3] - seen[2]) / 1e6 : 0.0);
    fflush(stdout);
}

/* Alone: a channel group is switched off and then preempted, so that what runs has nowhere to come back to. */
static void freeze(int index, bool wait) {
    begin_watching(100000000, 264);
    usleep(20000);
    double began = seconds();
    uint32_t off = schedule_one(index, false);
    double is_off = seconds();
    uint32_t preempted = preempt_one(index, wait);
    double is_preempted = seconds();
    usleep(20000);
    double back = seconds();
    uint32_t on = schedule_one(index, true);
    double is_on = seconds();
    int gaps = end_watching();
    printf("{\"what\": \"off and preempted, then on after 20 ms\", \"group\": %d, \"wait\": %s, \"status\": [%u, %u, %u], \"off_us\": %.0f, "
           "\"preempt_us\": %.0f, \"on_us\": %.0f, \"gaps\": %d, \"stopped_after_ms\": %.2f, \"stopped_for_ms\": %.2f}\n",
           index, wait ? "true" : "false", off, preempted, on, (is_off - began) * 1e6, (is_preempted - is_off) * 1e6,
           (is_on - back) * 1e6, gaps, gaps ? (seen[2] - seen[0]) / 1e6 : 0.0, gaps ? (seen[3] - seen[2]) / 1e6 : 0.0);
    fflush(stdout);
}

/* Alone: channels are disabled while a kernel runs, and enabled again after 20 ms. */
static void disable_and_enable(int index, bool scheduling_only) {
    int count = 0;
    for (int i = 0; i < channels; i++) count += index < 0 || channel_parent[i] == group[index].object;
    begin_watching(100000000, 264);
    usleep(20000);
    double began = seconds();
    uint32_t off = disable_channels(1, index, scheduling_only);
    double is_off = seconds();
    usleep(20000);
    double back = seconds();
    uint32_t on = disable_channels(0, index, scheduling_only);
    double is_on = seconds();
    int gaps = end_watching();
    printf("{\"what\": \"channels disabled, then enabled after 20 ms\", \"group\": %d, \"channels\": %d, \"scheduling_only\": %s, \"status\": [%u, %u], "
           "\"off_us\": %.0f, \"on_us\": %.0f, \"gaps\": %d, \"stopped_after_ms\": %.2f, \"stopped_for_ms\": %.2f}\n",
           index, count, scheduling_only ? "true" : "false", off, on, (is_off - began) * 1e6, (is_on - back) * 1e6, gaps,
           gaps ? (seen[2] - seen[0]) / 1e6 : 0.0, gaps ? (seen[3] - seen[2]) / 1e6 : 0.0);
    fflush(stdout);
}

int main(int count, char **arguments) {
    int rounds = option(count, arguments, "--rounds", 200);
    shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t child = fork();
    if (!child) {
        neighbour();
        return 0;
    }
    prepare();
    for (int i = 0; i < groups; i++) {
        uint64_t us = 0;
        uint32_t status = call(i, GET_SLICE, &us, 8);
        printf("{\"what\": \"a channel group\", \"number\": %d, \"slice_us\": %llu, \"status\": %u}\n", i,
               (unsigned long long)us, status);
    }
    double cost[64];
    for (int i = 0; i < 64; i++) {
        double began = seconds();
        set_slice(i % 2 ? 1000 : 2000);
        cost[i] = (seconds() - began) * 1e6;
    }
    printf("{\"what\": \"setting the slice of all groups\", \"groups\": %d, \"us_p50\": %.0f, \"us_p99\": %.0f}\n", groups,
           part(cost, 64, 0.5), part(cost, 64, 0.99));
    int step = 0;
    const double slices[] = {2048, 1000, 500, 200, 100, 50, 20, 1}, own[] = {4096, 16000, 100000};
    for (int wide = 0; wide < 2; wide++) {
        for (unsigned i = 0; slices[i] >= 100; i++) by_itself(slices[i], wide ? 264 : 1);
        for (unsigned i = 0; i < sizeof slices / sizeof *slices; i++) take_turns(&step, 2048, slices[i], wide ? 264 : 1);
        for (unsigned i = 0; i < sizeof own / sizeof *own; i++) take_turns(&step, own[i], 200, wide ? 264 : 1);
    }
    shared->blocks = 264;
    const double beside[] = {2048, 1000, 500, 200, 100};
    for (unsigned i = 0; i < sizeof beside / sizeof *beside; i++) first_launch(&step, 2048, beside[i], false, rounds);
    first_launch(&step, 100000, 500, false, rounds);
    in_flight("schedule off and on", schedule, false, schedule, true);
    in_flight("preempt without waiting", preempt, false, NULL, false);
    in_flight("preempt and wait", preempt, true, NULL, false);
    for (int i = -1; i < groups; i++)
        for (int scheduling_only = 0; scheduling_only < 2; scheduling_only++) disable_and_enable(i, scheduling_only);
    for (int i = 0; i < groups; i++) {
        freeze(i, true);
        freeze(i, false);
    }
    /* What was launched while it was off. */
    schedule(false);
    double began = seconds();
    CUfunction kernel = cuda_kernel(20);
    cuda_launch(kernel, NULL);
    double launched = seconds();
    usleep(20000);
    schedule(true);
    CHECK(CALL(cuCtxSynchronize)());
    printf("{\"what\": \"launched while off\", \"launch_us\": %.0f, \"done_after_ms\": %.2f}\n", (launched - began) * 1e6,
           (seconds() - began) * 1e3);
    fflush(stdout);

    first_launch(&step, 2048, 2048, true, rounds);
    first_launch(&step, 2048, 500, true, rounds);
    shared->busy = -1;
    meet(++step);
    int status;
    waitpid(child, &status, 0);
    return status != 0;
}
