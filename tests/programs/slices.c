/* Watches ioctl for the driver's channel groups as the shim does, and uses the resource manager's calls on them. Prints
 * what they answer; with --slice US sets the slice of all groups, then launches kernels of --us microseconds for
 * --seconds seconds with a full queue. Compiled with -rdynamic, so that the driver finds this ioctl. */
#include "cuda.h"
#include <stdarg.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef struct {
    uint32_t client, object, command, flags;
    uint64_t parameters;
    uint32_t bytes, status;
} control;

static struct { int file; uint32_t client, object; } group[64];
static int groups;

int ioctl(int file, unsigned long request, ...) {
    va_list list;
    va_start(list, request);
    void *argument = va_arg(list, void *);
    va_end(list);
    int result = syscall(SYS_ioctl, file, request, argument);
    const uint32_t *words = argument;
    if ((request & 0xffff) == 0x462b && !result && words[3] == 0xa06c && groups < 64) {
        uint32_t status = words[((request >> 16) & 0x3fff) == 48 ? 10 : 7];
        if (!status) {
            group[groups].file = file;
            group[groups].client = words[0];
            group[groups++].object = words[2];
        }
    }
    return result;
}

static uint32_t call(int index, uint32_t command, void *parameters, uint32_t bytes) {
    control made = {group[index].client, group[index].object, command, 0, (uint64_t)(uintptr_t)parameters, bytes, 99};
    int result = syscall(SYS_ioctl, group[index].file, 0xc020462aul, &made);
    return result ? 0xffff : made.status;
}

int main(int count, char **arguments) {
    double duration = option(count, arguments, "--seconds", 0);
    int microseconds = option(count, arguments, "--us", 250);
    uint64_t slice = option(count, arguments, "--slice", 0), read_back;
    cuda_start();
    printf("%d channel groups\n", groups);
    for (int i = 0; i < groups; i++) {
        uint32_t status = call(i, 0xa06c0104, &read_back, 8);
        printf("group %d: slice %llu us, status %#x\n", i, (unsigned long long)read_back, status);
    }
    if (slice) {
        for (int i = 0; i < groups; i++) {
            uint32_t status = call(i, 0xa06c0103, &slice, 8);
            call(i, 0xa06c0104, &read_back, 8);
            printf("group %d: set, status %#x, slice %llu us\n", i, status, (unsigned long long)read_back);
        }
    }
    if (groups && !slice) {
        uint64_t zero = 0, one = 1, level = 1;
        printf("slice of nothing: status %#x\n", call(0, 0xa06c0103, &zero, 8));
        printf("preempt: status %#x\n", call(0, 0xa06c0105, &one, 8));
        printf("schedule: status %#x\n", call(0, 0xa06c0101, &one, 4));
        uint32_t status = call(0, 0xa06c0107, &level, 4);
        printf("interleave: %s\n", status == (geteuid() ? 0x1b : 0) ? "as it should be" : "otherwise");
    }
    fflush(stdout);
    CUfunction kernel = cuda_kernel(microseconds);
    for (double end = seconds() + duration; seconds() < end;) cuda_launch(kernel, NULL);
    CHECK(CALL(cuCtxSynchronize)());
    return 0;
}
