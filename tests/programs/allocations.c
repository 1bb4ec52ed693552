/* Allocates the sizes on the command line (in MiB) by every path there is, prints what came, and frees it again.
 * --hold SECONDS keeps the last round's memory that long before the end. --managed 0 leaves managed memory out: more of
 * it than a real card has free can hang the card. */
#include "cuda.h"
#include <unistd.h>

USE(cuMemAlloc, CUdeviceptr *, size_t)
USE(cuMemAllocPitch, CUdeviceptr *, size_t *, size_t, size_t, unsigned)
USE(cuMemAllocManaged, CUdeviceptr *, size_t, unsigned)
USE(cuMemAllocAsync, CUdeviceptr *, size_t, CUstream)
USE(cuMemAllocFromPoolAsync, CUdeviceptr *, size_t, CUmemoryPool, CUstream)
USE(cuMemFree, CUdeviceptr)
USE(cuMemFreeAsync, CUdeviceptr, CUstream)
USE(cuMemPoolCreate, CUmemoryPool *, const CUmemPoolProps *)
USE(cuMemPoolDestroy, CUmemoryPool)
USE(cuMemCreate, CUmemHandle *, size_t, const CUmemAllocationProp *, unsigned long long)
USE(cuMemRelease, CUmemHandle)
USE(cuMemAddressReserve, CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long)
USE(cuMemAddressFree, CUdeviceptr, size_t)
USE(cuMemMap, CUdeviceptr, size_t, size_t, CUmemHandle, unsigned long long)
USE(cuMemUnmap, CUdeviceptr, size_t)
USE(cuMemSetAccess, CUdeviceptr, size_t, const CUmemAccessDesc *, size_t)
USE(cuMemsetD8, CUdeviceptr, unsigned char, size_t)
USE(cuMemcpyDtoH, void *, CUdeviceptr, size_t)
USE(cuArrayCreate, CUarray *, const CUDA_ARRAY_DESCRIPTOR *)
USE(cuArray3DCreate, CUarray *, const CUDA_ARRAY3D_DESCRIPTOR *)
USE(cuArrayDestroy, CUarray)
USE(cuMipmappedArrayCreate, CUmipmappedArray *, const CUDA_ARRAY3D_DESCRIPTOR *, unsigned)
USE(cuMipmappedArrayDestroy, CUmipmappedArray)
USE(cuMemGetInfo, size_t *, size_t *)

static const CUmemAllocationProp properties = {.type = 1, .location = {1, 0}};
static size_t before;
static int managed;

static size_t free_memory(void) {
    size_t left, total;
    CHECK(CALL(cuMemGetInfo)(&left, &total));
    return left;
}

static void say(const char *path, size_t megabytes, CUresult result) {
    CHECK(CALL(cuCtxSynchronize)());
    long taken = ((long)before - (long)free_memory()) >> 20;
    printf("%s %zu MiB: %d, %s\n", path, megabytes, result, result ? "nothing taken" : taken >= (long)megabytes ? "taken" : "NOT taken");
}

static void mapped(size_t bytes, size_t megabytes) {
    CUmemHandle handle;
    CUdeviceptr address;
    CUmemAccessDesc access = {{1, 0}, 3};
    CUresult result = CALL(cuMemCreate)(&handle, bytes, &properties, 0);
    say("create", megabytes, result);
    if (result) return;
    unsigned char byte = 0;
    CHECK(CALL(cuMemAddressReserve)(&address, bytes, 0, 0, 0));
    CHECK(CALL(cuMemMap)(address, bytes, 0, handle, 0));
    CHECK(CALL(cuMemSetAccess)(address, bytes, &access, 1));
    CHECK(CALL(cuMemRelease)(handle));
    CHECK(CALL(cuMemsetD8)(address + bytes - 4096, 42, 4096));
    CHECK(CALL(cuMemcpyDtoH)(&byte, address + bytes - 1, 1));
    printf("mapped memory reads %d\n", byte);
    CHECK(CALL(cuMemUnmap)(address, bytes));
    CHECK(CALL(cuMemAddressFree)(address, bytes));
}

static void everything(size_t megabytes) {
    size_t bytes = megabytes << 20, pitch;
    CUdeviceptr memory;
    CUresult result;
    before = free_memory();

    say("alloc", megabytes, result = CALL(cuMemAlloc)(&memory, bytes));
    if (!result) CHECK(CALL(cuMemFree)(memory));
    say("pitch", megabytes, result = CALL(cuMemAllocPitch)(&memory, &pitch, 4096, bytes / 4096, 4));
    if (!result) CHECK(CALL(cuMemFree)(memory));
    if (managed) {
        /* It may be anywhere until it is touched. */
        printf("managed %zu MiB: %d\n", megabytes, result = CALL(cuMemAllocManaged)(&memory, bytes, 1));
        if (!result) CHECK(CALL(cuMemFree)(memory));
    }
    say("async", megabytes, result = CALL(cuMemAllocAsync)(&memory, bytes, NULL));
    if (!result) CHECK(CALL(cuMemFreeAsync)(memory, NULL));
    CHECK(CALL(cuCtxSynchronize)());

    CUmemoryPool pool;
    CUmemPoolProps pool_properties = {.allocType = 1, .location = {1, 0}};
    CHECK(CALL(cuMemPoolCreate)(&pool, &pool_properties));
    say("pool", megabytes, result = CALL(cuMemAllocFromPoolAsync)(&memory, bytes, pool, NULL));
    if (!result) CHECK(CALL(cuMemFreeAsync)(memory, NULL));
    CHECK(CALL(cuCtxSynchronize)());
    CHECK(CALL(cuMemPoolDestroy)(pool));

    mapped((bytes + (2 << 20) - 1) >> 21 << 21, megabytes);

    CUarray array;
    CUDA_ARRAY_DESCRIPTOR flat = {1024, bytes / 4096, 0x20, 1};
    say("array", megabytes, result = CALL(cuArrayCreate)(&array, &flat));
    if (!result) CHECK(CALL(cuArrayDestroy)(array));
    CUDA_ARRAY3D_DESCRIPTOR solid = {256, 256, bytes / (256 * 256 * 4), 0x20, 1, 0};
    say("array 3D", megabytes, result = CALL(cuArray3DCreate)(&array, &solid));
    if (!result) CHECK(CALL(cuArrayDestroy)(array));
    CUmipmappedArray mipmapped;
    say("mipmapped", megabytes, result = CALL(cuMipmappedArrayCreate)(&mipmapped, &solid, 2));
    if (!result) CHECK(CALL(cuMipmappedArrayDestroy)(mipmapped));

    CHECK(CALL(cuCtxSynchronize)());
    printf("all given back: %s\n", free_memory() == before ? "yes" : "no");
}

int main(int count, char **arguments) {
    double hold = option(count, arguments, "--hold", 0);
    size_t last = 0;
    managed = option(count, arguments, "--managed", 1);
    cuda_start();
    for (int i = 1; i < count; i++) {
        if (!strncmp(arguments[i], "--", 2)) {
            i++;
            continue;
        }
        everything(last = strtoul(arguments[i], NULL, 10));
    }
    if (hold > 0 && last) {
        CUdeviceptr memory;
        CHECK(CALL(cuMemAlloc)(&memory, last << 20));
        puts("holding");
        fflush(stdout);
        usleep(hold * 1e6);
    }
    return 0;
}
