/* Uses two GPUs and several contexts in one process: in turns, from two threads, a second context on one GPU, one that is
 * destroyed with memory in it, and a primary one that is reset and used again. --used 1 says after each step what is in
 * use, which is exact where the driver takes no memory for itself. Ends with 77 where there is one GPU. */
#include "cuda.h"
#include <pthread.h>

USE(cuDeviceGetCount, int *)
USE(cuDevicePrimaryCtxRelease, CUdevice)
USE(cuDevicePrimaryCtxReset, CUdevice)
USE(cuCtxCreate, CUcontext *, void *, unsigned, CUdevice)
USE(cuCtxDestroy, CUcontext)
USE(cuCtxPushCurrent, CUcontext)
USE(cuCtxPopCurrent, CUcontext *)
USE(cuCtxGetCurrent, CUcontext *)
USE(cuMemAlloc, CUdeviceptr *, size_t)
USE(cuMemAllocAsync, CUdeviceptr *, size_t, CUstream)
USE(cuMemFree, CUdeviceptr)
USE(cuMemGetInfo, size_t *, size_t *)

#define GPUS 2

static CUcontext primary[GPUS];
static CUfunction kernel[GPUS];
static int show_used, microseconds;

static void push(CUcontext context) { CHECK(CALL(cuCtxPushCurrent)(context)); }

static void pop(CUcontext expected) {
    CUcontext popped;
    CHECK(CALL(cuCtxPopCurrent)(&popped));
    if (popped != expected) printf("another context was popped\n");
}

static CUdeviceptr allocate(size_t megabytes) {
    CUdeviceptr memory;
    CHECK(CALL(cuMemAlloc)(&memory, megabytes << 20));
    return memory;
}

static void launch(CUfunction function, int times) {
    for (int i = 0; i < times; i++) cuda_launch(function, NULL);
    CHECK(CALL(cuCtxSynchronize)());
}

static void start(int gpu) {
    CHECK(CALL(cuDevicePrimaryCtxRetain)(&primary[gpu], gpu));
    push(primary[gpu]);
    kernel[gpu] = cuda_load(microseconds);
    pop(primary[gpu]);
}

static void say(const char *step) {
    printf("%s", step);
    for (int gpu = 0; show_used && gpu < GPUS; gpu++) {
        size_t left, total;
        push(primary[gpu]);
        CHECK(CALL(cuMemGetInfo)(&left, &total));
        pop(primary[gpu]);
        printf(", %zu MiB on GPU %d", (total - left) >> 20, gpu);
    }
    puts("");
}

static void in_turns(void) {
    CUdeviceptr memory[6];
    for (int i = 0; i < 6; i++) {
        int gpu = i % GPUS;
        push(primary[gpu]);
        memory[i] = allocate(10 << gpu);
        launch(kernel[gpu], 10 + gpu);
        pop(primary[gpu]);
    }
    say("in turns");
    /* An address says which GPU it is on, whatever is current. */
    push(primary[0]);
    for (int i = 0; i < 6; i++) CHECK(CALL(cuMemFree)(memory[i]));
    pop(primary[0]);
    say("freed from one of them");
}

static void nested(void) {
    CUcontext second, current;
    CHECK(CALL(cuCtxCreate)(&second, NULL, 0, 1));
    CUfunction function = cuda_load(microseconds);
    allocate(64);
    launch(function, 20);
    push(primary[0]);
    allocate(3);
    launch(kernel[0], 5);
    push(second);
    allocate(16);
    launch(function, 7);
    pop(second);
    CHECK(CALL(cuCtxGetCurrent)(&current));
    printf("current is %s\n", current == primary[0] ? "the first" : "another");
    pop(primary[0]);
    say("a second context");
    CHECK(CALL(cuCtxDestroy)(second));
    push(primary[1]);
    allocate(2);
    launch(kernel[1], 9);
    pop(primary[1]);
    say("destroyed with its memory");
}

static void *both(void *argument) {
    int first = *(int *)argument;
    for (int i = 0; i < 40; i++) {
        int gpu = (first + i) % GPUS;
        CHECK(CALL(cuCtxSetCurrent)(primary[gpu]));
        CUdeviceptr memory = allocate(1);
        launch(kernel[gpu], 10 + gpu);
        CHECK(CALL(cuMemFree)(memory));
    }
    return NULL;
}

/* Contexts of the second GPU come and go while others use both. */
static void *comes_and_goes(void *argument) {
    CUcontext context;
    for (int i = 0; i < 10; i++) {
        CHECK(CALL(cuCtxCreate)(&context, NULL, 0, 1));
        allocate(1);
        launch(cuda_load(microseconds), 3);
        CHECK(CALL(cuCtxDestroy)(context));
    }
    return argument;
}

static void from_threads(void) {
    pthread_t thread[3];
    int first[2] = {0, 1};
    for (int i = 0; i < 2; i++) pthread_create(&thread[i], NULL, both, &first[i]);
    pthread_create(&thread[2], NULL, comes_and_goes, NULL);
    for (int i = 0; i < 3; i++) pthread_join(thread[i], NULL);
    say("from threads");
}

static void reset(void) {
    CHECK(CALL(cuDevicePrimaryCtxReset)(0));
    start(0);
    say("reset");
    push(primary[0]);
    allocate(5);
    launch(kernel[0], 11);
    pop(primary[0]);
    say("and used again");
}

/* What is asked of a stream is done on the stream's GPU. */
static void by_stream(void) {
    CUstream stream;
    CUdeviceptr memory;
    push(primary[1]);
    CHECK(CALL(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
    push(primary[0]);
    CHECK(CALL(cuMemAllocAsync)(&memory, 8 << 20, stream));
    for (int i = 0; i < 13; i++) cuda_launch(kernel[1], stream);
    CHECK(CALL(cuStreamSynchronize)(stream));
    pop(primary[0]);
    pop(primary[1]);
    say("by a stream of the other");
}

int main(int count, char **arguments) {
    int gpus;
    show_used = option(count, arguments, "--used", 0);
    microseconds = option(count, arguments, "--us", 20);
    CHECK(CALL(cuInit)(0));
    CHECK(CALL(cuDeviceGetCount)(&gpus));
    if (gpus < GPUS) {
        fprintf(stderr, "%d GPUs are needed, there are %d\n", GPUS, gpus);
        return 77;
    }
    for (int gpu = 0; gpu < GPUS; gpu++) start(gpu);
    in_turns();
    nested();
    from_threads();
    reset();
    by_stream();
    /* The first was retained twice. */
    for (int i = 0; i < 3; i++) CHECK(CALL(cuDevicePrimaryCtxRelease)(i % GPUS));
    for (int gpu = 0; gpu < GPUS; gpu++) start(gpu);
    say("released");
    return 0;
}
