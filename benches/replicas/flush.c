/* Makes each flush of a PostgreSQL server take at least BEARWARD_FLUSH microseconds (LD_PRELOAD), as on a common disk. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void wait_for_the_disk(void) {
    const char *micros = getenv("BEARWARD_FLUSH");
    if (!micros || strcmp(program_invocation_short_name, "postgres") != 0)
        return;
    struct timespec time = { 0, atol(micros) * 1000 };
    nanosleep(&time, NULL);
}

int fdatasync(int file) {
    static int (*next)(int);
    if (!next)
        next = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    wait_for_the_disk();
    return next(file);
}
