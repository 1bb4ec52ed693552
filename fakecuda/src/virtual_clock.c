// A clock that all processes of a test share and that the test moves. Preloaded into a program; `FAKECUDA_CLOCK` names
// the file. See virtual_clock.rs, whose layout this is.
//
// Monotonic clocks tell the file's time; whoever sleeps, or waits for a word with a time limit, does so until the test has
// moved the clock there. Everything else (locks, sockets, the wall clock) is the machine's.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { PROCESSES = 256, SLEEPERS = 1024 };
// What it costs to look at the clock: with it, who looks at nothing else sees time pass, and a launch costs what it does
// on a real machine.
enum { LOOK_NS = 500 };
// What it costs to give way to others, which whoever waits awake does, and how often others really get the processor:
// who waits for a time needs nobody else for it.
enum { YIELD_NS = 1000, YIELDS = 64 };
// How often, in real time, who waits for a word looks whether its time is up.
enum { POLL_NS = 300000 };

struct sleeper { _Atomic uint64_t until_ns; _Atomic uint32_t pid; uint32_t unused; };
struct clock {
    _Atomic uint64_t now_ns;
    _Atomic uint32_t moved;
    uint32_t unused;
    _Atomic uint32_t processes[PROCESSES];
    struct sleeper sleepers[SLEEPERS];
};

static struct clock *shared;

static long real_syscall(long number, long a, long b, long c, long d, long e, long f) {
    long result;
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}

static long answer(long result) {
    if (result >= 0 || result < -4095) return result;
    errno = (int)-result;
    return -1;
}

// Also in a child after fork.
static void sign_in(void) {
    uint32_t self = (uint32_t)getpid();
    // Whoever moves the clock, or waits for this process, may be gone.
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (int i = 0; i < PROCESSES; i++) {
        uint32_t nobody = 0;
        if (atomic_compare_exchange_strong(&shared->processes[i], &nobody, self)) return;
    }
    // The clock would move while this process runs.
    abort();
}

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("FAKECUDA_CLOCK");
    int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *at = mmap(NULL, sizeof(struct clock), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (at == MAP_FAILED) return;
    shared = at;
    sign_in();
    pthread_atfork(NULL, NULL, sign_in);
}

static uint64_t nanoseconds(const struct timespec *time) {
    return (uint64_t)time->tv_sec * 1000000000u + (uint64_t)time->tv_nsec;
}

static struct sleeper *lie_down(uint64_t until_ns) {
    for (int i = 0; i < SLEEPERS; i++) {
        uint64_t free = 0;
        if (atomic_compare_exchange_strong(&shared->sleepers[i].until_ns, &free, until_ns)) {
            atomic_store(&shared->sleepers[i].pid, (uint32_t)getpid());
            return &shared->sleepers[i];
        }
    }
    abort();
}

static void get_up(struct sleeper *sleeper) {
    atomic_store(&sleeper->pid, 0);
    atomic_store(&sleeper->until_ns, 0);
}

static void sleep_until(uint64_t until_ns) {
    struct sleeper *sleeper = lie_down(until_ns);
    for (;;) {
        uint32_t moved = atomic_load(&shared->moved);
        if (atomic_load(&shared->now_ns) >= until_ns) break;
        real_syscall(SYS_futex, (long)&shared->moved, FUTEX_WAIT, moved, 0, 0, 0);
    }
    get_up(sleeper);
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    if (!shared || clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE || clock == CLOCK_PROCESS_CPUTIME_ID ||
        clock == CLOCK_THREAD_CPUTIME_ID)
        return (int)answer(real_syscall(SYS_clock_gettime, clock, (long)time, 0, 0, 0, 0));
    uint64_t now = atomic_fetch_add(&shared->now_ns, LOOK_NS) + LOOK_NS;
    *time = (struct timespec){.tv_sec = (time_t)(now / 1000000000u), .tv_nsec = (long)(now % 1000000000u)};
    return 0;
}

int clock_nanosleep(clockid_t clock, int flags, const struct timespec *time, struct timespec *left) {
    if (!shared) return (int)-real_syscall(SYS_clock_nanosleep, clock, flags, (long)time, (long)left, 0, 0);
    uint64_t from = flags & TIMER_ABSTIME ? 0 : atomic_load(&shared->now_ns);
    sleep_until(from + nanoseconds(time));
    return 0;
}

int nanosleep(const struct timespec *time, struct timespec *left) {
    if (!shared) return (int)answer(real_syscall(SYS_nanosleep, (long)time, (long)left, 0, 0, 0, 0));
    return clock_nanosleep(CLOCK_MONOTONIC, 0, time, left);
}

int usleep(useconds_t microseconds) {
    struct timespec time = {.tv_sec = microseconds / 1000000, .tv_nsec = (long)(microseconds % 1000000) * 1000};
    return nanosleep(&time, NULL);
}

int sched_yield(void) {
    static _Thread_local unsigned times;
    if (shared) {
        atomic_fetch_add(&shared->now_ns, YIELD_NS);
        if (++times % YIELDS) return 0;
    }
    return (int)answer(real_syscall(SYS_sched_yield, 0, 0, 0, 0, 0, 0));
}

// Waits for a word until the clock is there, or somebody wakes who waits for it.
static long wait_for_word(long word, int private, long seen, uint64_t until_ns) {
    struct timespec poll = {.tv_sec = 0, .tv_nsec = POLL_NS};
    struct sleeper *sleeper = lie_down(until_ns);
    long result;
    do {
        result = real_syscall(SYS_futex, word, FUTEX_WAIT | private, seen, (long)&poll, 0, 0);
    } while (result == -ETIMEDOUT && atomic_load(&shared->now_ns) < until_ns);
    get_up(sleeper);
    return answer(result);
}

// As wide as a call can be: those that take less do not look at the rest.
long virtual_syscall(long number, long a, long b, long c, long d, long e, long f) __asm__("syscall");
long virtual_syscall(long number, long a, long b, long c, long d, long e, long f) {
    int command = b & FUTEX_CMD_MASK;
    if (!shared || number != SYS_futex || !d || (command != FUTEX_WAIT && command != FUTEX_WAIT_BITSET))
        return answer(real_syscall(number, a, b, c, d, e, f));
    // One says for how long, the other until when.
    uint64_t from = command == FUTEX_WAIT ? atomic_load(&shared->now_ns) : 0;
    return wait_for_word(a, b & FUTEX_PRIVATE_FLAG, c, from + nanoseconds((const struct timespec *)d));
}

// The processor's counter is not this clock, whatever the kernel makes its own from.
int virtual_open(const char *path, int flags, long mode) __asm__("open64");
int virtual_open(const char *path, int flags, long mode) {
    if (shared && strstr(path, "/current_clocksource")) path = "/dev/null";
    return (int)answer(real_syscall(SYS_openat, AT_FDCWD, (long)path, flags, mode, 0, 0));
}
