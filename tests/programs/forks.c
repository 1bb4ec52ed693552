/* A program that forks: before it uses CUDA (the child may use it), and after (the child may not; the parent goes on). */
#include "cuda.h"
#include <sys/wait.h>
#include <unistd.h>

static int wait_for(pid_t child) {
    int status;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void work(const char *who) {
    cuda_start();
    for (int i = 0; i < 10; i++) cuda_launch(cuda_kernel(50), NULL);
    CHECK(CALL(cuCtxSynchronize)());
    printf("%s launched\n", who);
    fflush(stdout);
}

int main(int count, char **arguments) {
    if (count > 1) {
        work("new program");
        return 0;
    }
    pid_t child = fork();
    if (!child) {
        work("child before");
        exit(0);
    }
    printf("child before: exit %d\n", wait_for(child));
    fflush(stdout);
    work("parent");
    child = fork();
    if (!child) {
        CUresult result = CALL(cuInit)(0);
        printf("child after: cuInit %d, cuCtxSynchronize %d\n", result, CALL(cuCtxSynchronize)());
        fflush(stdout);
        _exit(0);
    }
    printf("child after: exit %d\n", wait_for(child));
    fflush(stdout);
    child = fork();
    if (!child) {
        execl("/proc/self/exe", arguments[0], "--again", (char *)NULL);
        _exit(1);
    }
    printf("child that became a new program: exit %d\n", wait_for(child));
    fflush(stdout);
    work("parent again");
    return 0;
}
