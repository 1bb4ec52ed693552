/* The driver's controls of time slices: channel groups are seen when the driver makes them, and told what to do. Whoever
 * includes this is linked with -rdynamic, so that the driver's ioctl is this one. */
#ifndef WEFT_SLICES_H
#define WEFT_SLICES_H

#include <stdarg.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SET_SLICE 0xa06c0103u
#define GET_SLICE 0xa06c0104u
#define PREEMPT 0xa06c0105u
#define SCHEDULE 0xa06c0101u

static struct { int file; uint32_t client, object; } group[64];
static int groups;

int ioctl(int file, unsigned long request, ...) {
    va_list list;
    va_start(list, request);
    void *argument = va_arg(list, void *);
    va_end(list);
    int result = syscall(SYS_ioctl, file, request, argument);
    const uint32_t *words = argument;
    if ((request & 0xffff) == 0x462b && !result && words[3] == 0xa06c && groups < 64
        && !words[((request >> 16) & 0x3fff) == 48 ? 10 : 7]) {
        group[groups].file = file;
        group[groups].client = words[0];
        group[groups++].object = words[2];
    }
    return result;
}

static uint32_t call(int index, uint32_t command, void *parameters, uint32_t bytes) {
    struct { uint32_t client, object, command, flags; uint64_t parameters; uint32_t bytes, status; } made = {
        group[index].client, group[index].object, command, 0, (uint64_t)(uintptr_t)parameters, bytes, 99};
    return syscall(SYS_ioctl, group[index].file, 0xc020462aul, &made) ? 0xffff : made.status;
}

static inline uint32_t set_slice(uint64_t us) {
    uint32_t worst = 0;
    for (int i = 0; i < groups; i++) {
        uint32_t status = call(i, SET_SLICE, &us, 8);
        if (status) worst = status;
    }
    return worst;
}

#endif
