/*
 * A program that is out to harm the probe: it maps a file executable, again and again, and may use CUDA.
 *
 *     hostile FILE TIMES [RUNTIME]
 *
 * It prints "ready" and waits for a line on its standard input. With RUNTIME, a libcudart, it calls it meanwhile.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>

int main(int count, char **arguments)
{
    struct stat status;
    int file = count > 2 ? open(arguments[1], O_RDONLY) : -1;
    if (file < 0 || fstat(file, &status))
        return 2;
    for (long left = atol(arguments[2]); left > 0; left--)
        if (mmap(NULL, (size_t)status.st_size, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0) == MAP_FAILED)
            return 3;
    int (*synchronise)(void) = NULL;
    if (count > 3) {
        void *runtime = dlopen(arguments[3], RTLD_NOW);
        synchronise = runtime ? (int (*)(void))dlsym(runtime, "cudaDeviceSynchronize") : NULL;
        if (!synchronise)
            return 4;
    }
    puts("ready");
    fflush(stdout);
    struct pollfd input = {.fd = 0, .events = POLLIN};
    while (!poll(&input, 1, 20))
        if (synchronise)
            synchronise();
    return 0;
}
