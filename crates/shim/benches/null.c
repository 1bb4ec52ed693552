/* A driver that does nothing, so that what a call costs is what is between the program and the driver. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>

int cuInit(unsigned flags) { return 0; }
int cuDeviceGetUuid_v2(char *uuid, int device) { memset(uuid, 7, 16); return 0; }
int cuDevicePrimaryCtxRetain(void **context, int device) { *context = (void *)64; return 0; }
int cuCtxGetDevice(int *device) { *device = 0; return 0; }
int cuCtxGetCurrent(void **context) { *context = (void *)64; return 0; }
int cuStreamSynchronize(void *stream) { return 0; }
int cuLaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void *stream, void **parameters, void **extra) { return 0; }
int cuGetProcAddress_v2(const char *name, void **out, int version, unsigned long long flags, void *status) {
    void *self = dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_LAZY);
    *out = dlsym(self, strcmp(name, "cuGetProcAddress") ? name : "cuGetProcAddress_v2");
    return *out ? 0 : 500;
}
