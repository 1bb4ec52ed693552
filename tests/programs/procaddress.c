/* Resolves names in every way a program can, and prints what came: which function it is, by the name it is exported by.
 * Without arguments a list of its own; else the names given. */
#include "cuda.h"

typedef CUresult (*resolver)(const char *, void **, int, unsigned long long);

static const char *names[] = {
    "cuInit", "cuMemAlloc", "cuMemAlloc_v2", "cuCtxCreate", "cuCtxSynchronize", "cuLaunchKernel", "cuLaunchKernelEx",
    "cuGraphLaunch", "cuGraphInstantiate", "cuMemcpyHtoD", "cuMemcpyHtoDAsync", "cuStreamSynchronize",
    "cuStreamGetCaptureInfo", "cuEventRecord", "cuGetProcAddress", "cuMemGetInfo", "cudnnCreate", "cuNothing",
};

/* What an address is called; the shim's functions have the names of those they stand for. */
static const char *name_of(void *address) {
    Dl_info info;
    if (!address) return "nothing";
    return dladdr(address, &info) && info.dli_sname ? info.dli_sname : "something";
}

int main(int count, char **arguments) {
    resolver_v2 resolve_v2;
    resolver resolve;
    *(void **)&resolve_v2 = dlsym(cuda_library(), "cuGetProcAddress_v2");
    *(void **)&resolve = dlsym(cuda_library(), "cuGetProcAddress");
    int quiet = count > 1 && !strcmp(arguments[1], "--codes");
    int named = count - 1 - quiet;
    int total = named > 0 ? named : (int)(sizeof names / sizeof *names);
    static const int versions[] = {2000, 11030, 12000, 12080, 13000};
    for (int i = 0; i < total; i++) {
        const char *name = named > 0 ? arguments[i + 1 + quiet] : names[i];
        void *found = dlsym(cuda_library(), name);
        printf("%s: dlsym %s\n", name, quiet ? (found ? "found" : "nothing") : name_of(found));
        for (int version = 0; version < 5; version++) {
            for (unsigned long long flags = 0; flags < 3; flags++) {
                unsigned status = 9;
                void *first = NULL, *second = NULL;
                CUresult result = resolve_v2(name, &first, versions[version], flags, &status);
                CUresult old = resolve(name, &second, versions[version], flags);
                printf("  %d flag %llu: %d status %u %s; v1 %d %s\n", versions[version], flags, result, status,
                       quiet ? (first ? "found" : "nothing") : name_of(first), old, first == second ? "the same" : "another");
            }
        }
    }
    return 0;
}
