/* How a program keeps the GPU through its short pauses, where programs take turns: the GPU takes the turn away from
 * whoever has nothing to run. By a kernel of one thread that is launched with the last work of every request and ends with
 * the next request's launch, or some time after the host has its answer, in three ways:
 *
 *   beside    on a stream of its own, at once
 *   behind    on a stream of its own that waits for the work
 *   in order  on the program's stream, after the work, and the host waits for an event between the two
 *
 * or by the neighbour's doing, which disables its own channels from the beginning of a request to some time after it:
 *
 *   stopped   what runs is stopped at once
 *   off       what runs goes on until its turn ends, and has no other
 *
 * all of them, or those of the group that its kernels run in; and, where they are off, the group is preempted after its
 * channels were enabled (`on` anew), which makes sure that it runs (`doorbell.c`), after they were disabled, or both.
 *
 * Requests of 0.84 ms on all SMs, one after the other and at random at half of what can be done, alone and beside kernels
 * of 5 ms without end that have slices of 0.2 ms. Prints one line of JSON for each run.
 *
 *   gcc -O2 -rdynamic -D_GNU_SOURCE -I tests/programs -o keeper bench/hardware/keeper.c -ldl -lm -lpthread && ./keeper
 */
#include "cuda.h"
#include "slices.h"
#include <math.h>
#include <pthread.h>
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

/* `work` goes around so many times, however long it is kept from the GPU meanwhile. `keep` runs until the first word is not
 * its own number any more, or until so many nanoseconds after the second word became that number, and never longer than
 * 20 ms. The first thread of each notes when it began, the longest time for which it did not run, when that began, and when
 * it was done. */
#define LOOK \
    "  mov.u64 %now, %globaltimer;\n  sub.u64 %gone, %now, %last;\n  setp.gt.u64 %p, %gone, %most;\n" \
    "  @%p mov.u64 %most, %gone;\n  @%p mov.u64 %when, %last;\n  mov.u64 %last, %now;\n"
#define NOTE \
    "  mov.u32 %x, %tid.x;\n  mov.u32 %y, %ctaid.x;\n  or.b32 %x, %x, %y;\n  setp.ne.u32 %p, %x, 0;\n  @%p bra out;\n" \
    "  ld.param.u64 %notes, [notes];\n  st.volatile.global.u64 [%notes], %start;\n  st.volatile.global.u64 [%notes+8], %most;\n" \
    "  st.volatile.global.u64 [%notes+16], %when;\n  st.volatile.global.u64 [%notes+24], %last;\n" \
    "out:\n  ret;\n}\n"
#define START \
    "  mov.u64 %start, %globaltimer;\n  mov.u64 %last, %start;\n  mov.u64 %most, 0;\n  mov.u64 %when, %start;\n"
#define REGISTERS ".reg .u64 %start, %last, %now, %gone, %most, %when, %notes;\n  .reg .u32 %x, %y;\n  .reg .pred %p;\n"
static const char *IMAGE =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    ".visible .entry work(.param .u64 notes, .param .u64 times) {\n" REGISTERS
    "  .reg .u64 %done, %times;\n"
    "  ld.param.u64 %times, [times];\n  mov.u64 %done, 0;\n" START
    "again:\n" LOOK
    "  add.u64 %done, %done, 1;\n  setp.lt.u64 %p, %done, %times;\n  @%p bra again;\n" NOTE
    ".visible .entry keep(.param .u64 notes, .param .u64 words, .param .u32 number, .param .u64 linger, .param .u64 after) {\n" REGISTERS
    "  .reg .u64 %words, %linger, %since;\n  .reg .u32 %number, %seen;\n  .reg .pred %counting;\n"
    "  ld.param.u64 %words, [words];\n  ld.param.u32 %number, [number];\n  ld.param.u64 %linger, [linger];\n" START
    "  mov.u64 %since, %start;\n  setp.ne.u32 %counting, %number, %number;\n"
    "again:\n" LOOK
    "  ld.volatile.global.u32 %seen, [%words];\n  setp.ne.u32 %p, %seen, %number;\n  @%p bra told;\n"
    "  sub.u64 %gone, %now, %start;\n  setp.gt.u64 %p, %gone, 20000000;\n  @%p bra over;\n"
    "  @%counting bra count;\n"
    "  mov.u64 %since, %now;\n"
    "  ld.volatile.global.u32 %seen, [%words+4];\n  setp.eq.u32 %counting, %seen, %number;\n"
    "  bra again;\n"
    "count:\n"
    "  sub.u64 %gone, %now, %since;\n  setp.lt.u64 %p, %gone, %linger;\n  @%p bra again;\n"
    "told:\n"
    "  ld.param.u64 %linger, [after];\n  mov.u64 %since, %now;\n"
    "wait:\n" LOOK
    "  sub.u64 %gone, %now, %since;\n  setp.lt.u64 %p, %gone, %linger;\n  @%p bra wait;\n"
    "over:\n" NOTE;

static CUfunction work, keep;
static CUstream stream, aside;
static CUevent done;
static volatile uint32_t *words;
static CUdeviceptr words_there;
static unsigned blocks;

struct note {
    uint64_t start, longest_pause, pause_began, end;
};
/* Of the work and of the keeper. */
static volatile struct note *notes;

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
    CHECK(CALL(cuMemHostAlloc)((void **)&words, 4096, DEVICEMAP));
    CHECK(CALL(cuMemHostGetDevicePointer)(&words_there, (void *)words, 0));
    words[0] = words[1] = 0;
    notes = (volatile struct note *)(words + 16);
}

/* Times around in a microsecond, alone. */
static double times_per_us = 1;

static void begin_work(double length_us) {
    uint64_t times = length_us * times_per_us + 1;
    CUdeviceptr there = words_there + 64;
    void *arguments[] = {&there, &times};
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

/* A launch takes some microseconds to arrive: a keeper that ends at once leaves the GPU without work for that long. */
static uint64_t after_ns;

enum way { NONE, BESIDE, BEHIND, IN_ORDER, ALL_STOPPED, GROUP_STOPPED, ALL_OFF, GROUP_OFF, PREEMPT_ON, PREEMPT_OFF, PREEMPT_BOTH };
static const char *WAYS[] = {"none", "beside", "behind", "in order", "all channels stopped", "one group stopped", "all channels off", "one group off",
                             "off, preempted when on", "off, preempted when off", "off, preempted when on and off"};

/* Between the two processes. */
static struct {
    volatile int busy, calibrated, ready, way, wanted;
    volatile double times_per_us, free_at, linger, off_us, on_us;
    volatile uint64_t kernels, changes;
    volatile uint32_t refused;
} *shared;

static void request(enum way way, uint64_t linger_ns) {
    static uint32_t number;
    shared->wanted = 1;
    begin_work(840);
    words[0] = ++number; // not before the GPU has other work
    if (way == BEHIND || way == IN_ORDER) CHECK(CALL(cuEventRecord)(done, stream));
    if (way == BEHIND) CHECK(CALL(cuStreamWaitEvent)(aside, done, 0));
    if (way == BESIDE || way == BEHIND || way == IN_ORDER) {
        CUdeviceptr there = words_there + 64 + sizeof(struct note);
        void *arguments[] = {&there, &words_there, &number, &linger_ns, &after_ns};
        CHECK(CALL(cuLaunchKernel)(keep, 1, 1, 1, 1, 1, 1, 0, way == IN_ORDER ? stream : aside, arguments, NULL));
    }
    if (way == IN_ORDER) {
        CHECK(CALL(cuEventSynchronize)(done));
    } else {
        CHECK(CALL(cuStreamSynchronize)(stream));
    }
    words[1] = number;
    shared->free_at = seconds();
    shared->wanted = 0;
}

static uint32_t stop(enum way way, int off) {
    int one = way == GROUP_STOPPED || way >= GROUP_OFF;
    uint32_t status = disable_channels(off, one ? 0 : -1, way >= ALL_OFF);
    struct { uint8_t wait, manual; uint32_t timeout_us; } preempt = {0, 0, 0};
    if (way == PREEMPT_BOTH || way == (off ? PREEMPT_OFF : PREEMPT_ON)) status |= call(0, PREEMPT, &preempt, sizeof preempt);
    return status;
}

/* In the neighbour: is off from when a request begins until some time after the last one. */
static void *stop_when_told(void *none) {
    (void)none;
    for (int off = 0; shared->busy >= 0;) {
        enum way way = shared->way;
        int wanted = way >= ALL_STOPPED && (shared->wanted || seconds() < shared->free_at + shared->linger);
        if (wanted == !!off) continue;
        double began = seconds();
        uint32_t status = stop(off ? off : way, wanted);
        if (status) shared->refused = status;
        *(wanted ? &shared->off_us : &shared->on_us) += (seconds() - began) * 1e6;
        shared->changes++;
        off = wanted ? way : 0;
    }
    return NULL;
}

static void neighbour(unsigned all) {
    while (!shared->calibrated) usleep(1000);
    prepare(all);
    times_per_us = shared->times_per_us;
    set_slice(200);
    pthread_t thread;
    pthread_create(&thread, NULL, stop_when_told, NULL);
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
    pthread_join(thread, NULL);
}

static double taken[REQUESTS];

/* What work and keepers saw of the neighbour: how many of them stood still for 50 us and more, and when. */
struct seen {
    int all, paused;
    double paused_us, before_us;
};

static void look(struct seen *seen, const volatile struct note *note) {
    seen->all++;
    if (note->longest_pause < 50000) return;
    seen->paused++;
    seen->paused_us += note->longest_pause / 1e3;
    seen->before_us += (note->pause_began - note->start) / 1e3;
}

static void tell(const char *who, struct seen seen) {
    int paused = seen.paused ? seen.paused : 1;
    printf(", \"%s\": {\"paused\": %.3f, \"for_us\": %.0f, \"after_us\": %.0f}", who, seen.all ? (double)seen.paused / seen.all : 0.0,
           seen.paused_us / paused, seen.before_us / paused);
}

static int by_size(const void *one, const void *other) {
    double a = *(const double *)one, b = *(const double *)other;
    return (a > b) - (a < b);
}

/* Requests for so long; at random where a rate is given. */
static void measure(const char *how, bool beside, enum way way, uint64_t linger_ns, double rate, double length) {
    shared->way = way;
    shared->linger = linger_ns / 1e9;
    shared->busy = beside;
    double until = seconds() + 0.5;
    while (seconds() < until) request(way, linger_ns);
    uint64_t kernels = shared->kernels;
    shared->off_us = shared->on_us = shared->changes = 0;
    double began = seconds(), next = began, sum = 0;
    int done = 0;
    struct seen works = {0}, keepers = {0}; // the keeper is that of the request before, as a rule
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
        look(&works, &notes[0]);
        look(&keepers, &notes[1]);
        sum += taken[done++] = (seconds() - next) * 1e6;
    }
    double passed = seconds() - began;
    shared->busy = 0;
    kernels = shared->kernels - kernels;
    qsort(taken, done, sizeof *taken, by_size);
    printf("{\"load\": \"%s\", \"neighbour_runs\": %s, \"keeper\": \"%s\", \"linger_us\": %.0f, \"after_us\": %.0f, \"requests_per_s\": %.1f, \"mean_us\": %.0f, \"p50_us\": %.0f, "
           "\"p99_us\": %.0f, \"most_us\": %.0f, \"neighbour\": %.3f",
           how, beside ? "true" : "false", WAYS[way], linger_ns / 1e3, after_ns / 1e3, done / passed, sum / done, taken[done / 2],
           taken[done * 99 / 100], taken[done - 1], kernels * 0.005 / passed);
    tell("work", works);
    tell("keepers", keepers);
    double changes = shared->changes ? shared->changes / 2.0 : 1;
    printf(", \"off\": {\"times\": %llu, \"off_us\": %.0f, \"on_us\": %.0f, \"refused\": %u}}\n", (unsigned long long)shared->changes / 2,
           shared->off_us / changes, shared->on_us / changes, shared->refused);
    shared->way = NONE;
    fflush(stdout);
    usleep(50000);
}

int main(int count, char **arguments) {
    int rounds = option(count, arguments, "--rounds", 3);
    double length = option(count, arguments, "--ms", 3000) / 1e3;
    enum way first = option(count, arguments, "--first", BESIDE);
    double slice = option(count, arguments, "--slice", 16000);
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
    uint32_t refused = set_slice(slice);
    uint64_t now_us = 0;
    call(0, GET_SLICE, &now_us, 8);
    printf("{\"groups\": %d, \"refused\": %u, \"slice_us\": %llu}\n", groups, refused, (unsigned long long)now_us);
    while (!shared->ready) usleep(1000);
    for (int round = 0; round < rounds; round++) {
        for (int random = 0; random < 2; random++) {
            double rate = random ? 590 : 0;
            const char *how = random ? "at random" : "one after the other";
            measure(how, false, NONE, 0, rate, length);
            measure(how, true, NONE, 0, rate, length);
            for (enum way way = first; way <= PREEMPT_BOTH; way++) measure(how, true, way, 100000, rate, length);
            measure(how, true, GROUP_STOPPED, 300000, rate, length);
            measure(how, true, GROUP_OFF, 300000, rate, length);
        }
    }
    shared->busy = -1;
    int status;
    waitpid(child, &status, 0);
    return status != 0;
}
