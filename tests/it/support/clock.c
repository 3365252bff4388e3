/* Shifts the clock of the machine (LD_PRELOAD) by BEARWARD_CLOCK seconds, and by the milliseconds in the file that
 * BEARWARD_CLOCK_FILE names: a 64-bit integer, which a test may change at any time. Clocks that measure spans are not
 * shifted. The gateway calls clock_gettime, PostgreSQL gettimeofday. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *map_millis(void) {
    static const int64_t none;
    const char *path = getenv("BEARWARD_CLOCK_FILE");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        return &none;
    void *mapped = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
    close(file);
    return mapped == MAP_FAILED ? &none : mapped;
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    static int (*original)(clockid_t, struct timespec *);
    static long shift;
    static const volatile int64_t *millis;
    if (!original) {
        const char *seconds = getenv("BEARWARD_CLOCK");
        shift = seconds ? atol(seconds) : 0;
        millis = map_millis();
        original = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    }
    int failed = original(clock, time);
    if (!failed && clock == CLOCK_REALTIME) {
        int64_t nanos = time->tv_nsec + *millis % 1000 * 1000000;
        time->tv_sec += shift + *millis / 1000 + (nanos < 0 ? -1 : nanos / 1000000000);
        time->tv_nsec = (nanos + 1000000000) % 1000000000;
    }
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
