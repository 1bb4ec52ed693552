/* A stand-in for libcuda.so.1 in which the GPU's memory is files in the host's: what `_cuda.py` calls, as cuda.h declares
 * it, and nothing else. Environment: WITHOUT_FILES=1 is a GPU whose memory cannot be a file, WITHOUT_READ=1 a driver that
 * cannot map for reading only, OUT_OF_MEMORY=1 a GPU that is full. WITH_HEADER compiles it against NVIDIA's header. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifdef WITH_HEADER
#include <cuda.h>
#else
typedef int CUresult, CUdevice, CUdevice_attribute, CUmemAllocationHandleType, CUmemAllocationGranularity_flags;
typedef struct context *CUcontext;
typedef unsigned long long CUdeviceptr, CUmemGenericAllocationHandle;
typedef struct { char bytes[16]; } CUuuid;
typedef struct { int type, id; } CUmemLocation;
typedef struct {
    int type, requestedHandleTypes;
    CUmemLocation location;
    void *win32HandleMetaData;
    unsigned char flags[8];
} CUmemAllocationProp;
typedef struct { CUmemLocation location; int flags; } CUmemAccessDesc;
typedef struct { char reserved[64]; } CUipcMemHandle;
#endif

enum { OK = 0, INVALID = 1, FULL = 2, UNSUPPORTED = 801, STEP = 2 << 20 };

static int held, depth;
static char alloc_path[64];

static int set(const char *name) { return getenv(name) != NULL; }

CUresult cuInit(unsigned int flags) { return flags; }
CUresult cuDeviceGet(CUdevice *device, int number) { return *device = number, number ? INVALID : OK; }
CUresult cuGetErrorName(CUresult error, const char **text) {
    *text = error == FULL ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR";
    return OK;
}
CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device) { return memset(uuid, 7, sizeof *uuid), device; }
CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device) {
    *value = attribute == 102 || (attribute == 103 && !set("WITHOUT_FILES"));
    return device;
}
CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    *context = (CUcontext)(uintptr_t)0x1234;
    return held++, device;
}
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) { return held-- > 0 ? device : INVALID; }
CUresult cuCtxPushCurrent_v2(CUcontext context) {
    return context == (CUcontext)(uintptr_t)0x1234 && held ? (depth++, OK) : INVALID;
}
CUresult cuCtxPopCurrent_v2(CUcontext *context) { return *context = NULL, depth-- > 0 ? OK : INVALID; }
CUresult cuCtxSynchronize(void) { return depth ? OK : INVALID; }

CUresult cuMemGetAllocationGranularity(size_t *step, const CUmemAllocationProp *prop,
                                       CUmemAllocationGranularity_flags option) {
    *step = STEP;
    return prop->type == 1 && prop->requestedHandleTypes == 1 && prop->location.type == 1 ? (int)option : INVALID;
}
CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *prop,
                     unsigned long long flags) {
    if (set("OUT_OF_MEMORY")) return FULL;
    if (bytes % STEP || prop->type != 1 || prop->location.type != 1 || prop->win32HandleMetaData || flags) return INVALID;
    int file = memfd_create("gpu", MFD_CLOEXEC);
    if (ftruncate(file, bytes)) return FULL;
    return *handle = 0x100000000ull | file, OK;
}
CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
    return handle >> 32 == 1 && !close((int)handle) ? OK : INVALID;
}
CUresult cuMemAddressReserve(CUdeviceptr *pointer, size_t bytes, size_t alignment, CUdeviceptr at, unsigned long long flags) {
    if (bytes % STEP || alignment || at || flags) return INVALID;
    void *place = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return *pointer = (uintptr_t)place, place == MAP_FAILED ? FULL : OK;
}
CUresult cuMemAddressFree(CUdeviceptr pointer, size_t bytes) { return munmap((void *)(uintptr_t)pointer, bytes) ? INVALID : OK; }
CUresult cuMemMap(CUdeviceptr pointer, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags) {
    if (handle >> 32 != 1 || offset || flags) return INVALID;
    void *to = (void *)(uintptr_t)pointer;
    return mmap(to, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, (int)handle, 0) == to ? OK : INVALID;
}
CUresult cuMemUnmap(CUdeviceptr pointer, size_t bytes) {
    return mmap((void *)(uintptr_t)pointer, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
                   (void *)(uintptr_t)pointer ? OK : INVALID;
}
CUresult cuMemSetAccess(CUdeviceptr pointer, size_t bytes, const CUmemAccessDesc *access, size_t count) {
    if (count != 1 || access->location.type != 1 || access->location.id) return INVALID;
    if (access->flags == 1 && set("WITHOUT_READ")) return UNSUPPORTED;
    int allowed = access->flags == 1 ? PROT_READ : PROT_READ | PROT_WRITE;
    return mprotect((void *)(uintptr_t)pointer, bytes, allowed) ? INVALID : OK;
}
CUresult cuMemExportToShareableHandle(void *file, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type,
                                      unsigned long long flags) {
    if (type != 1 || flags || handle >> 32 != 1) return INVALID;
    return *(int *)file = dup((int)handle), OK;
}
CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *file, CUmemAllocationHandleType type) {
    int own = type == 1 ? fcntl((int)(uintptr_t)file, F_DUPFD_CLOEXEC, 0) : -1;
    return *handle = 0x100000000ull | own, own < 0 ? INVALID : OK;
}
CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes) {
    return depth ? memcpy((void *)(uintptr_t)to, from, bytes), OK : INVALID;
}

CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes) {
    if (set("OUT_OF_MEMORY")) return FULL;
    int file = memfd_create("gpu", MFD_CLOEXEC);
    if (!depth || ftruncate(file, bytes)) return FULL;
    snprintf(alloc_path, sizeof alloc_path, "/proc/%d/fd/%d", getpid(), file);
    *pointer = (uintptr_t)mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    return OK;
}
CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr pointer) {
    memset(handle, 0, sizeof *handle);
    strcpy(handle->reserved, alloc_path);
    return pointer ? OK : INVALID;
}
CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *pointer, CUipcMemHandle handle, unsigned int flags) {
    struct stat found;
    int file = open(handle.reserved, O_RDWR | O_CLOEXEC);
    if (file < 0 || !depth || flags != 1 || fstat(file, &found)) return INVALID;
    *pointer = (uintptr_t)mmap(NULL, found.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    return close(file), OK;
}
