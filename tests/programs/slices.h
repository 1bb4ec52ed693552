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

#define DISABLE_CHANNELS 0x2080110bu
#define SUBDEVICE 0x2080u
#define CHANNELS 64

static struct { int file; uint32_t client, object; } group[64];
static int groups;
static uint32_t channel[CHANNELS], channel_client[CHANNELS], channel_parent[CHANNELS], subdevice[CHANNELS], subdevice_client[CHANNELS];
static int channels, subdevices;

int ioctl(int file, unsigned long request, ...) {
    va_list list;
    va_start(list, request);
    void *argument = va_arg(list, void *);
    va_end(list);
    int result = syscall(SYS_ioctl, file, request, argument);
    const uint32_t *words = argument;
    if ((request & 0xffff) != 0x462b || result || words[((request >> 16) & 0x3fff) == 48 ? 10 : 7]) return result;
    if (words[3] == 0xa06c && groups < 64) {
        group[groups].file = file;
        group[groups].client = words[0];
        group[groups++].object = words[2];
    }
    /* Every generation of GPUs has its own class of channels: 0xc36f, 0xc46f, 0xc56f, 0xc86f. */
    if ((words[3] & 0xff) == 0x6f && words[3] >= 0xa06f && channels < CHANNELS) {
        channel_client[channels] = words[0];
        channel_parent[channels] = words[1];
        channel[channels++] = words[2];
    }
    if (words[3] == SUBDEVICE && subdevices < CHANNELS) {
        subdevice_client[subdevices] = words[0];
        subdevice[subdevices++] = words[2];
    }
    return result;
}

static uint32_t call_object(uint32_t client, uint32_t object, uint32_t command, void *parameters, uint32_t bytes) {
    struct { uint32_t client, object, command, flags; uint64_t parameters; uint32_t bytes, status; } made = {
        client, object, command, 0, (uint64_t)(uintptr_t)parameters, bytes, 99};
    return syscall(SYS_ioctl, group[0].file, 0xc020462aul, &made) ? 0xffff : made.status;
}

static uint32_t call(int index, uint32_t command, void *parameters, uint32_t bytes) {
    return call_object(group[index].client, group[index].object, command, parameters, bytes);
}

/* The channels of one group, or of all if there is no such group: none of them has a turn until they are enabled again.
 * What runs is stopped at once, or, where only the scheduling is switched off, goes on until its turn ends. */
static inline uint32_t disable_channels(int off, int index, int scheduling_only) {
    struct {
        uint8_t off, pad[3];
        uint32_t count;
        uint8_t scheduling_only, rewind, more[6];
        uint64_t event;
        uint32_t clients[CHANNELS], channels[CHANNELS];
    } all = {.off = off, .scheduling_only = scheduling_only};
    for (int i = 0; i < channels; i++) {
        if (index >= 0 && channel_parent[i] != group[index].object) continue;
        all.clients[all.count] = channel_client[i];
        all.channels[all.count++] = channel[i];
    }
    for (int i = 0; i < subdevices; i++)
        if (subdevice_client[i] == group[0].client) return call_object(group[0].client, subdevice[i], DISABLE_CHANNELS, &all, sizeof all);
    return 0xfffe;
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
