/* Shifts the clock of the machine (LD_PRELOAD) by BEARWARD_CLOCK seconds. Clocks that measure spans are not shifted.
 * The gateway calls clock_gettime, PostgreSQL gettimeofday. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

int clock_gettime(clockid_t clock, struct timespec *time) {
    static int (*original)(clockid_t, struct timespec *);
    static long shift;
    if (!original) {
        const char *seconds = getenv("BEARWARD_CLOCK");
        shift = seconds ? atol(seconds) : 0;
        original = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    }
    int failed = original(clock, time);
    if (!failed && clock == CLOCK_REALTIME)
        time->tv_sec += shift;
    return failed;
}

int gettimeofday(struct timeval *restrict time, void *restrict zone) {
    struct timespec now;
    (void)zone;
    int failed = clock_gettime(CLOCK_REALTIME, &now);
    time->tv_sec = now.tv_sec;
    time->tv_usec = now.tv_nsec / 1000;
    return failed;
}
