/* A library that counts calls of malloc on the way to the next one, as profilers do. */
#include <dlfcn.h>
#include <stddef.h>

unsigned long mallocs;

void *malloc(size_t bytes) {
    static void *(*next)(size_t);
    if (!next) *(void **)&next = dlsym(RTLD_NEXT, "malloc");
    mallocs++;
    return next(bytes);
}
