/* Watches ioctl for the driver's channel groups as the shim does, and uses the resource manager's calls on them. Prints
 * what they answer; with --slice US sets the slice of all groups, then launches kernels of --us microseconds for
 * --seconds seconds with a full queue. */
#include "cuda.h"
#include "slices.h"

int main(int count, char **arguments) {
    double duration = option(count, arguments, "--seconds", 0);
    int microseconds = option(count, arguments, "--us", 250);
    uint64_t slice = option(count, arguments, "--slice", 0), read_back;
    cuda_start();
    printf("%d channel groups\n", groups);
    for (int i = 0; i < groups; i++) {
        uint32_t status = call(i, GET_SLICE, &read_back, 8);
        printf("group %d: slice %llu us, status %#x\n", i, (unsigned long long)read_back, status);
    }
    if (slice) {
        for (int i = 0; i < groups; i++) {
            uint32_t status = call(i, SET_SLICE, &slice, 8);
            call(i, GET_SLICE, &read_back, 8);
            printf("group %d: set, status %#x, slice %llu us\n", i, status, (unsigned long long)read_back);
        }
    }
    if (groups && !slice) {
        uint64_t zero = 0, one = 1, level = 1;
        printf("slice of nothing: status %#x\n", call(0, SET_SLICE, &zero, 8));
        printf("preempt: status %#x\n", call(0, PREEMPT, &one, 8));
        printf("schedule: status %#x\n", call(0, SCHEDULE, &one, 4));
        uint32_t status = call(0, 0xa06c0107, &level, 4);
        printf("interleave: %s\n", status == (geteuid() ? 0x1b : 0) ? "as it should be" : "otherwise");
    }
    fflush(stdout);
    CUfunction kernel = cuda_kernel(microseconds);
    for (double end = seconds() + duration; seconds() < end;) cuda_launch(kernel, NULL);
    CHECK(CALL(cuCtxSynchronize)());
    return 0;
}
