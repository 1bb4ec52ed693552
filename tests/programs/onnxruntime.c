// A build of ONNX Runtime for GPUs, as far as a worker can tell: all of it is the real library's, save that it offers
// CUDA and writes down what it is asked for. CUDA_WORKS says whether CUDA then takes part; it never takes an operator.
//
// gcc -shared -fPIC -DREAL='"libonnxruntime.so"' -DASKED='"asked.txt"' -DCUDA_WORKS=0 onnxruntime.c -ldl
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Where functions are in the table `OrtApi`, to which every release only adds.
enum {
    CREATE_STATUS = 0,
    GET_AVAILABLE_PROVIDERS = 125,
    RELEASE_AVAILABLE_PROVIDERS = 126,
    APPEND_CUDA_V2 = 204,
    CREATE_CUDA_OPTIONS = 205,
    UPDATE_CUDA_OPTIONS = 206,
    RELEASE_CUDA_OPTIONS = 208,
    // What version 17 of the table has, and some.
    TABLE = 280,
};

typedef struct {
    const void *(*get_api)(uint32_t version);
    const char *(*get_version)(void);
} Base;

static void *table[TABLE];

static void write_down(const char *name, const char *value) {
    FILE *file = fopen(ASKED, "a");
    if (file) {
        fprintf(file, "%s=%s\n", name, value);
        fclose(file);
    }
}

static void *get_available_providers(char ***names, int *count) {
    static char *all[] = {"CUDAExecutionProvider", "CPUExecutionProvider"};
    *names = all;
    *count = 2;
    return NULL;
}

static void *release_available_providers(char **names, int count) {
    (void)names, (void)count;
    return NULL;
}

static void *create_cuda_options(void **options) {
    *options = malloc(1);
    return NULL;
}

static void *update_cuda_options(void *options, const char *const *keys, const char *const *values, size_t count) {
    (void)options;
    for (size_t i = 0; i < count; i++)
        write_down(keys[i], values[i]);
    return NULL;
}

static void release_cuda_options(void *options) {
    free(options);
}

static void *append_cuda(void *session_options, const void *options) {
    (void)session_options, (void)options;
    write_down("provider", "CUDA");
    if (CUDA_WORKS)
        return NULL;
    void *(*create_status)(int, const char *) = (void *(*)(int, const char *))table[CREATE_STATUS];
    return create_status(1, "/src/provider_bridge_ort.cc:1 Failed to load library libonnxruntime_providers_cuda.so with "
                            "error: libcublasLt.so.12: cannot open shared object file");
}

static Base *real(void) {
    static Base *base;
    if (!base) {
        void *library = dlopen(REAL, RTLD_NOW | RTLD_LOCAL);
        if (!library) {
            fprintf(stderr, "%s\n", dlerror());
            abort();
        }
        base = ((Base * (*)(void)) dlsym(library, "OrtGetApiBase"))();
    }
    return base;
}

static const void *get_api(uint32_t version) {
    const void *api = real()->get_api(version);
    if (!api)
        return NULL;
    memcpy(table, api, sizeof table);
    table[GET_AVAILABLE_PROVIDERS] = (void *)get_available_providers;
    table[RELEASE_AVAILABLE_PROVIDERS] = (void *)release_available_providers;
    table[CREATE_CUDA_OPTIONS] = (void *)create_cuda_options;
    table[UPDATE_CUDA_OPTIONS] = (void *)update_cuda_options;
    table[RELEASE_CUDA_OPTIONS] = (void *)release_cuda_options;
    table[APPEND_CUDA_V2] = (void *)append_cuda;
    return table;
}

const Base *OrtGetApiBase(void) {
    static Base base;
    base.get_api = get_api;
    base.get_version = real()->get_version;
    return &base;
}
