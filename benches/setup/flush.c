/* Makes each flush of a PostgreSQL server take at least BEARWARD_FLUSH microseconds (LD_PRELOAD), as on a common disk. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static struct timespec least;

/* At the start: the server's processes overwrite their names later. */
__attribute__((constructor)) static void find_out(void) {
    const char *micros = getenv("BEARWARD_FLUSH");
    if (micros && strcmp(program_invocation_short_name, "postgres") == 0)
        least.tv_nsec = atol(micros) * 1000;
}

int fdatasync(int file) {
    static int (*next)(int);
    if (!next)
        next = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    if (least.tv_nsec)
        nanosleep(&least, NULL);
    return next(file);
}
