/* The part of the CUDA driver's API that the test programs use, declared by ourselves: they need no toolkit to be
 * compiled. Like NVIDIA's runtime, they open libcuda.so.1, find cuGetProcAddress_v2 in it with dlsym, and ask that for
 * every other function, with the version of CUDA that they were written for. */
#ifndef WEFT_TEST_CUDA_H
#define WEFT_TEST_CUDA_H

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CUDA_VERSION_ASKED 12080

typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUlib_st *CUlibrary;
typedef struct CUkern_st *CUkernel;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphExec_st *CUgraphExec;
typedef struct CUgraphNode_st *CUgraphNode;
typedef struct CUmemPool_st *CUmemoryPool;
typedef struct CUarray_st *CUarray;
typedef struct CUmipmap_st *CUmipmappedArray;
typedef unsigned long long CUmemHandle;

typedef struct {
    unsigned gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes;
    CUstream hStream;
    void *attrs;
    unsigned numAttrs;
} CUlaunchConfig;

typedef struct {
    unsigned type, requestedHandleTypes;
    struct { unsigned type; int id; } location;
    void *win32;
    unsigned char flags[8];
} CUmemAllocationProp;

typedef struct {
    struct { unsigned type; int id; } location;
    unsigned flags;
} CUmemAccessDesc;

typedef struct {
    unsigned allocType, handleTypes;
    struct { unsigned type; int id; } location;
    void *win32;
    size_t maxSize;
    unsigned short usage;
    unsigned char reserved[54];
} CUmemPoolProps;

typedef struct { size_t Width, Height; unsigned Format, NumChannels; } CUDA_ARRAY_DESCRIPTOR;
typedef struct { size_t Width, Height, Depth; unsigned Format, NumChannels, Flags; } CUDA_ARRAY3D_DESCRIPTOR;

#define CUDA_SUCCESS 0
#define CUDA_ERROR_NOT_READY 600
#define CU_STREAM_NON_BLOCKING 1
#define CU_STREAM_CAPTURE_MODE_GLOBAL 0

typedef CUresult (*resolver_v2)(const char *, void **, int, unsigned long long, unsigned *);

static void *cuda_library(void) {
    static void *library;
    if (!library) library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        fprintf(stderr, "cannot open libcuda.so.1: %s\n", dlerror());
        exit(77);
    }
    return library;
}

static void *cuda_function(const char *name) {
    static resolver_v2 resolve;
    if (!resolve) {
        resolver_v2 first;
        *(void **)&first = dlsym(cuda_library(), "cuGetProcAddress_v2");
        void *itself = NULL;
        if (!first || first("cuGetProcAddress", &itself, CUDA_VERSION_ASKED, 0, NULL) || !itself) {
            fprintf(stderr, "no cuGetProcAddress_v2\n");
            exit(1);
        }
        *(void **)&resolve = itself;
    }
    void *function = NULL;
    CUresult result = resolve(name, &function, CUDA_VERSION_ASKED, 0, NULL);
    if (result || !function) {
        fprintf(stderr, "no %s: %d\n", name, result);
        exit(1);
    }
    return function;
}

/* CU(name)(types)(arguments) would be long; each program lists what it uses instead:
 *   USE(cuInit, unsigned)                  at the top,  cuInit(0)  below. */
#define USE(name, ...)                                                                                                 \
    typedef CUresult (*name##_type)(__VA_ARGS__);                                                                      \
    static name##_type name##_find(void) {                                                                             \
        static name##_type found;                                                                                      \
        if (!found) *(void **)&found = cuda_function(#name);                                                           \
        return found;                                                                                                  \
    }

#define CALL(name) (name##_find())

#define CHECK(call)                                                                                                    \
    do {                                                                                                               \
        CUresult check_result = (call);                                                                                \
        if (check_result) {                                                                                            \
            fprintf(stderr, "%s:%d: %s is %d\n", __FILE__, __LINE__, #call, check_result);                             \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

USE(cuInit, unsigned)
USE(cuDeviceGet, CUdevice *, int)
USE(cuDevicePrimaryCtxRetain, CUcontext *, CUdevice)
USE(cuCtxSetCurrent, CUcontext)
USE(cuCtxSynchronize, void)
USE(cuModuleLoadData, CUmodule *, const void *)
USE(cuModuleGetFunction, CUfunction *, CUmodule, const char *)
USE(cuLaunchKernel, CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **,
    void **)
USE(cuStreamCreate, CUstream *, unsigned)
USE(cuStreamSynchronize, CUstream)

/* Makes device 0's primary context current. */
static inline void cuda_start(void) {
    CUdevice device;
    CUcontext context;
    CHECK(CALL(cuInit)(0));
    CHECK(CALL(cuDeviceGet)(&device, 0));
    CHECK(CALL(cuDevicePrimaryCtxRetain)(&context, device));
    CHECK(CALL(cuCtxSetCurrent)(context));
}

/* Loads a kernel that runs for so many microseconds into the current context: on a GPU because it watches the clock that
 * long, on the stand-in because its name says so. */
static inline CUfunction cuda_load(unsigned microseconds) {
    char name[64], image[1024];
    CUmodule module;
    CUfunction function;
    snprintf(name, sizeof name, "busy_%uus", microseconds);
    snprintf(image, sizeof image,
             ".version 7.0\n.target sm_70\n.address_size 64\n"
             ".visible .entry %s() {\n"
             "  .reg .u64 %%start, %%now;\n  .reg .pred %%more;\n"
             "  mov.u64 %%start, %%globaltimer;\n"
             "again:\n"
             "  mov.u64 %%now, %%globaltimer;\n"
             "  sub.u64 %%now, %%now, %%start;\n"
             "  setp.lt.u64 %%more, %%now, %llu;\n"
             "  @%%more bra again;\n"
             "  ret;\n}\n",
             name, microseconds * 1000ull);
    CHECK(CALL(cuModuleLoadData)(&module, image));
    CHECK(CALL(cuModuleGetFunction)(&function, module, name));
    return function;
}

/* The same, loaded once for each thread that stays with it. */
static inline CUfunction cuda_kernel(unsigned microseconds) {
    static __thread unsigned known_microseconds;
    static __thread CUfunction known;
    if (!known || known_microseconds != microseconds) known = cuda_load(microseconds);
    known_microseconds = microseconds;
    return known;
}

static inline void cuda_launch(CUfunction function, CUstream stream) {
    CHECK(CALL(cuLaunchKernel)(function, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
}

static inline double seconds(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

/* The value after --name, or a default. */
static inline double option(int count, char **arguments, const char *name, double otherwise) {
    for (int i = 1; i + 1 < count; i++)
        if (!strcmp(arguments[i], name)) return atof(arguments[i + 1]);
    return otherwise;
}

#endif
