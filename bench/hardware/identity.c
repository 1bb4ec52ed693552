/* Which GPU the driver's objects are of: every subdevice is asked for its GPU's UUID, and every channel group's parent is
 * looked for among the parents of subdevices. Prints what CUDA says of each GPU and what the objects say. A process that
 * uses several GPUs is preempted on each of them by this.
 *
 *   gcc -O2 -rdynamic -D_GNU_SOURCE -I tests/programs -o identity bench/hardware/identity.c -ldl -lpthread && ./identity
 */
#include "cuda.h"
#include <stdarg.h>
#include <sys/ioctl.h>

USE(cuDeviceGetCount, int *)
USE(cuDeviceGetUuid, unsigned char *, CUdevice)

struct allocate { uint32_t client, parent, object, class; };
struct control { uint32_t client, object, command, flags; void *parameters; uint32_t bytes, status; };
struct identity { uint32_t index, flags, length; unsigned char data[256]; };

enum { MOST = 256, GET_IDENTITY = 0x2080014a, BINARY = 2, GROUP = 0xa06c, SUBDEVICE = 0x2080, DEVICE = 0x80 };
static struct { struct allocate made; int file; } seen[MOST];
static int count;

int ioctl(int file, unsigned long request, ...) {
    static int (*next)(int, unsigned long, void *);
    va_list list;
    va_start(list, request);
    void *argument = va_arg(list, void *);
    va_end(list);
    if (!next) next = (int (*)(int, unsigned long, void *))dlsym(RTLD_NEXT, "ioctl");
    int result = next(file, request, argument);
    if (result == 0 && (request & 0xffff) == 0x462b && argument && count < MOST) {
        struct allocate made = *(struct allocate *)argument;
        if (made.class == GROUP || made.class == SUBDEVICE || made.class == DEVICE) {
            seen[count].made = made;
            seen[count++].file = file;
        }
    }
    return result;
}

static void print_uuid(const unsigned char *uuid) {
    for (int i = 0; i < 16; i++) printf("%02x", uuid[i]);
}

int main(void) {
    int gpus;
    CHECK(CALL(cuInit)(0));
    CHECK(CALL(cuDeviceGetCount)(&gpus));
    for (int gpu = 0; gpu < gpus; gpu++) {
        CUcontext context;
        unsigned char uuid[16];
        CHECK(CALL(cuDevicePrimaryCtxRetain)(&context, gpu));
        CHECK(CALL(cuDeviceGetUuid)(uuid, gpu));
        printf("{\"cuda\": %d, \"uuid\": \"", gpu);
        print_uuid(uuid);
        puts("\"}");
    }
    for (int i = 0; i < count; i++) {
        struct allocate *made = &seen[i].made;
        printf("{\"class\": \"%#x\", \"client\": \"%#x\", \"object\": \"%#x\", \"parent\": \"%#x\"", made->class, made->client, made->object, made->parent);
        if (made->class == SUBDEVICE) {
            struct identity identity = {.flags = BINARY};
            struct control call = {made->client, made->object, GET_IDENTITY, 0, &identity, sizeof identity, 0};
            int result = ioctl(seen[i].file, 0xc020462a, &call);
            printf(", \"answer\": %d, \"status\": \"%#x\", \"length\": %u, \"uuid\": \"", result, call.status, identity.length);
            print_uuid(identity.data);
            printf("\"");
        }
        puts("}");
    }
    return 0;
}
