/* Whether work that is launched while its channels are disabled, or while they are being disabled or enabled, runs once they
 * are enabled; and where it does not, what makes it run.
 *
 *   idle      nothing runs; channels disabled, a kernel launched, channels enabled
 *   behind    a kernel of 2 ms runs; channels disabled, another launched, channels enabled
 *   over      a kernel runs that ends while its channels are disabled; another launched before they are enabled
 *   after     the same, and the other is launched when they are enabled
 *   under way a kernel of 300 us is launched while they are being disabled
 *   race      a thread disables and enables all the time while kernels of 20 us are launched and waited for
 *
 * Work that is not done 50 ms after its channels were enabled for the last time is stuck. Then, in an order that differs
 * from time to time, each for 20 ms: enabled again, disabled and enabled, scheduled again, preempted, an event recorded on
 * another stream, an event recorded on the same stream, a context-wide wait. Prints one line of JSON for each scenario.
 *
 *   gcc -O2 -rdynamic -D_GNU_SOURCE -I tests/programs -o doorbell bench/hardware/doorbell.c -ldl -lpthread && ./doorbell
 */
#include "cuda.h"
#include "slices.h"
#include <pthread.h>

USE(cuEventCreate, CUevent *, unsigned)
USE(cuEventRecord, CUevent, CUstream)
USE(cuStreamQuery, CUstream)

static const char *IMAGE =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    ".visible .entry work(.param .u64 length) {\n"
    "  .reg .u64 %start, %now, %gone, %length;\n  .reg .pred %p;\n"
    "  ld.param.u64 %length, [length];\n  mov.u64 %start, %globaltimer;\n"
    "again:\n  mov.u64 %now, %globaltimer;\n  sub.u64 %gone, %now, %start;\n  setp.lt.u64 %p, %gone, %length;\n  @%p bra again;\n"
    "  ret;\n}\n";

static CUfunction work;
static CUstream stream, other;
static CUevent event;
static int scheduling_only = 1;
/* Whether groups are preempted after their channels were disabled, and after they were enabled. */
static int preempt_off, preempt_on;
static double call_us[2][2];
static int call_count;

static void launch(uint64_t ns) {
    void *arguments[] = {&ns};
    CHECK(CALL(cuLaunchKernel)(work, 132, 1, 1, 256, 1, 1, 0, stream, arguments, NULL));
}

static void preempt_groups(void) {
    struct { uint8_t wait, manual; uint32_t timeout_us; } preempt = {0, 0, 0};
    for (int i = 0; i < groups; i++) {
        uint32_t status = call(i, PREEMPT, &preempt, sizeof preempt);
        if (status) printf("preempt said %#x\n", status), exit(1);
    }
}

static void set(int off) {
    double began = seconds();
    uint32_t status = disable_channels(off, -1, scheduling_only);
    if (status) printf("disable_channels(%d) said %#x\n", off, status), exit(1);
    double between = seconds();
    if (off ? preempt_off : preempt_on) preempt_groups();
    call_us[off][0] += (between - began) * 1e6;
    call_us[off][1] += (seconds() - between) * 1e6;
    call_count++;
}

static int done_within(double limit) {
    double end = seconds() + limit;
    do {
        if (CALL(cuStreamQuery)(stream) == 0) return 1;
    } while (seconds() < end);
    return 0;
}

enum { ENABLE, TOGGLE, SCHEDULE_AGAIN, PREEMPTED, OTHER_EVENT, SAME_EVENT, REMEDIES };
static const char *REMEDY[] = {"enabled again", "disabled and enabled", "scheduled", "preempted", "event on another stream", "event on the same stream"};
static int tried[REMEDIES], helped[REMEDIES];

static void remedy(int which) {
    struct { uint8_t enable, skip; } schedule = {1, 0};
    struct { uint8_t wait, manual; uint32_t timeout_us; } preempt = {1, 0, 10000};
    switch (which) {
    case ENABLE: set(0); break;
    case TOGGLE: set(1), set(0); break;
    case SCHEDULE_AGAIN: for (int i = 0; i < groups; i++) call(i, SCHEDULE, &schedule, sizeof schedule); break;
    case PREEMPTED: for (int i = 0; i < groups; i++) call(i, PREEMPT, &preempt, sizeof preempt); break;
    case OTHER_EVENT: CHECK(CALL(cuEventRecord)(event, other)); break;
    case SAME_EVENT: CHECK(CALL(cuEventRecord)(event, stream)); break;
    }
}

/* Makes stuck work run; 0 where nothing did. */
static int rescue(void) {
    int order[REMEDIES];
    for (int i = 0; i < REMEDIES; i++) order[i] = i;
    for (int i = REMEDIES - 1; i > 0; i--) {
        int j = rand() % (i + 1), kept = order[i];
        order[i] = order[j], order[j] = kept;
    }
    for (int i = 0; i < REMEDIES; i++) {
        tried[order[i]]++;
        remedy(order[i]);
        if (done_within(0.02)) return helped[order[i]]++, 1;
    }
    return 0;
}

static void tell(const char *scenario, int times, int stuck, int lost) {
    printf("{\"scenario\": \"%s\", \"scheduling_only\": %d, \"group_preempted\": [%d, %d], \"times\": %d, \"stuck\": %d, \"never_ran\": %d", scenario, scheduling_only,
           preempt_off, preempt_on, times, stuck, lost);
    printf(", \"disable_us\": [%.0f, %.0f], \"enable_us\": [%.0f, %.0f]", 2 * call_us[1][0] / call_count, 2 * call_us[1][1] / call_count,
           2 * call_us[0][0] / call_count, 2 * call_us[0][1] / call_count);
    memset(call_us, 0, sizeof call_us);
    call_count = 0;
    for (int i = 0; i < REMEDIES; i++) {
        printf(", \"%s\": \"%d of %d\"", REMEDY[i], helped[i], tried[i]);
        helped[i] = tried[i] = 0;
    }
    printf("}\n");
    fflush(stdout);
    if (lost) exit(1);
}

/* A kernel, some time, disabled, some time, another kernel unless it comes last, enabled. */
static void scenario(const char *name, int times, uint64_t before_ns, int before_us, int off_us, int last) {
    int stuck = 0, lost = 0;
    for (int i = 0; i < times && !lost; i++) {
        if (before_ns) launch(before_ns), usleep(before_us);
        set(1);
        usleep(off_us + rand() % 300);
        if (!last) launch(20000);
        usleep(rand() % 300);
        set(0);
        if (last) launch(20000);
        if (!done_within(0.05)) stuck++, lost += !rescue();
    }
    tell(name, times, stuck, lost);
}

static volatile int launch_now;

static void *launch_when_told(void *none) {
    for (;;) {
        while (!launch_now) {
        }
        usleep(launch_now);
        launch(300000);
        launch_now = 0;
    }
    return none;
}

/* A kernel that is launched from another thread, so many microseconds after the call that disables began. */
static void under_way(int times) {
    int stuck = 0, lost = 0;
    pthread_t thread;
    pthread_create(&thread, NULL, launch_when_told, NULL);
    for (int i = 0; i < times && !lost; i++) {
        launch_now = 1 + rand() % 400;
        set(1);
        while (launch_now) usleep(10);
        usleep(1000);
        set(0);
        if (!done_within(0.05)) stuck++, lost += !rescue();
    }
    tell("under way", times, stuck, lost);
}

/* In how far the thread is: how often it has disabled and enabled; it stops after the last enabling where it is told to. */
static volatile int toggling, toggles;

static void *toggle(void *none) {
    (void)none;
    for (;;) {
        if (!toggling) {
            toggles = -1;
            while (!toggling) usleep(50);
            toggles = 0;
        }
        set(1);
        usleep(rand() % 500);
        set(0);
        toggles++;
        usleep(rand() % 500);
    }
    return none;
}

static void race(int seconds_long) {
    int times = 0, stuck = 0, lost = 0;
    double end = seconds() + seconds_long;
    toggling = 1;
    while (seconds() < end && !lost) {
        int burst = 1 + rand() % 4;
        for (int i = 0; i < burst; i++) launch(20000);
        times++;
        if (done_within(0.02)) continue;
        /* It may have been disabled for most of that time: enabled for good, it must run. */
        toggling = 0;
        while (toggles >= 0) usleep(10);
        if (!done_within(0.05)) stuck++, lost += !rescue();
        toggling = 1;
    }
    toggling = 0;
    while (toggles >= 0) usleep(10);
    tell("race", times, stuck, lost);
}

int main(int count, char **arguments) {
    int times = option(count, arguments, "--times", 200);
    int length = option(count, arguments, "--seconds", 10);
    srand(option(count, arguments, "--seed", 1));
    CUmodule module;
    cuda_start();
    CHECK(CALL(cuModuleLoadData)(&module, IMAGE));
    CHECK(CALL(cuModuleGetFunction)(&work, module, "work"));
    CHECK(CALL(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(CALL(cuStreamCreate)(&other, CU_STREAM_NON_BLOCKING));
    CHECK(CALL(cuEventCreate)(&event, 2));
    launch(1000);
    CHECK(CALL(cuStreamSynchronize)(stream));
    pthread_t thread;
    pthread_create(&thread, NULL, toggle, NULL);
    while (toggles >= 0) usleep(10);
    for (int variant = 0; variant < 5; variant++) {
        scheduling_only = variant < 4;
        preempt_off = variant < 4 && variant & 1;
        preempt_on = variant < 4 && variant & 2;
        scenario("idle", times, 0, 0, 0, 0);
        scenario("behind", times, 2000000, 200, 0, 0);
        scenario("over", times, 600000, 50, 1000, 0);
        scenario("after", times, 600000, 50, 1000, 1);
        if (!variant) under_way(times);
        race(length);
    }
    return 0;
}
