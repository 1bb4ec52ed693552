// A clock that goes back an hour once the file named by CLOCK_BACK is there. Preloaded into a program.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *time) {
    static int (*next)(clockid_t, struct timespec *);
    if (!next) next = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int result = next(clock, time);
    const char *back = getenv("CLOCK_BACK");
    if (result == 0 && clock == CLOCK_REALTIME && back && access(back, F_OK) == 0) time->tv_sec -= 3600;
    return result;
}
