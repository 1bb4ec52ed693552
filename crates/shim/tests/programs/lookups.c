/* Looks functions up in every way there is, and prints what it got: ours, the driver's, or nothing. */
#include "cuda.h"

/* The dlsym of programs that were linked against an old C library, and of new ones. */
void *old_dlsym(void *, const char *);
__asm__(".symver old_dlsym, dlsym@GLIBC_2.2.5");

static const char *owner(void *address) {
    Dl_info information;
    if (!address) return "nothing";
    if (!dladdr(address, &information)) return "unknown";
    if (strstr(information.dli_fname, "libweft")) return "weft";
    if (strstr(information.dli_fname, "libfakecuda") || strstr(information.dli_fname, "libcuda")) return "driver";
    return "other";
}

static void *resolved(const char *name, int version, unsigned long long flags) {
    resolver_v2 resolve;
    *(void **)&resolve = dlsym(cuda_library(), "cuGetProcAddress_v2");
    void *function = NULL;
    unsigned status = 9;
    CUresult result = resolve(name, &function, version, flags, &status);
    return result ? NULL : function;
}

int main(void) {
    printf("before the driver: %s\n", owner(dlsym(RTLD_DEFAULT, "cuLaunchKernel")));
    const char *message = dlerror();
    printf("dlerror: %s\n", message && strstr(message, "cuLaunchKernel") ? "names it" : message ? message : "silent");
    void *library = cuda_library();
    printf("new dlsym: %s\n", owner(dlsym(library, "cuLaunchKernel")));
    printf("old dlsym: %s\n", owner(old_dlsym(library, "cuLaunchKernel")));
    printf("not wrapped: %s\n", owner(dlsym(library, "cuInit")));
    printf("no function: %s\n", owner(dlsym(library, "cuLaunchKernels")));
    printf("another library's: %s\n", owner(dlsym(library, "cublasCreate_v2")));
    printf("export table: %s\n", owner(dlsym(library, "cuGetExportTable")));
    printf("cuMemAlloc 12000: %s\n", owner(resolved("cuMemAlloc", 12000, 0)));
    printf("cuMemAlloc 2000: %s\n", owner(resolved("cuMemAlloc", 2000, 0)));
    printf("cuCtxDestroy 4000: %s\n", owner(resolved("cuCtxDestroy", 4000, 0)));
    printf("cuCtxDestroy 2000: %s\n", owner(resolved("cuCtxDestroy", 2000, 0)));
    printf("cuLaunchKernel per thread: %s\n", owner(resolved("cuLaunchKernel", 12000, 2)));
    printf("the same as without: %d\n", resolved("cuLaunchKernel", 12000, 2) == resolved("cuLaunchKernel", 12000, 0));
    printf("cuLaunchKernelEx 11000: %s\n", owner(resolved("cuLaunchKernelEx", 11000, 0)));
    printf("itself: %s\n", owner(resolved("cuGetProcAddress", 12000, 0)));
    printf("cuInit: %s\n", owner(resolved("cuInit", 12000, 0)));
    printf("nothing: %s\n", owner(resolved("cuNothing", 12000, 0)));
    char *text = strdup("malloc still works");
    printf("%s\n", text);
    free(text);
    return 0;
}
