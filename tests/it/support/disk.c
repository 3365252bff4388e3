/* Makes writes to the database and to the access log fail (LD_PRELOAD).
 * The environment variable BEARWARD_DISK names a file with one word. It is read at each call:
 *
 *   full       every write fails: ENOSPC
 *   read-only  every write fails: EROFS, as after the kernel has found errors on the disk
 *   broken     every flush fails: EIO
 *   stuck      a flush waits until the file has another word
 *   slow       a flush takes 4 ms longer, as on a network disk
 *   torn       a write to the access log writes half of it, and the next ones fail: ENOSPC
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static int has_name(int file, const char *part) {
    char name[64], path[4096];
    snprintf(name, sizeof name, "/proc/self/fd/%d", file);
    ssize_t length = readlink(name, path, sizeof path - 1);
    path[length > 0 ? length : 0] = 0;
    return strstr(path, part) != NULL;
}

static int is_database(int file) {
    return has_name(file, "bearward.db");
}

static int disk_is(const char *word) {
    char state[16] = "";
    const char *path = getenv("BEARWARD_DISK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        return 0;
    ssize_t length = read(file, state, sizeof state - 1);
    close(file);
    return length > 0 && strcmp(state, word) == 0;
}

static int write_fails(int file) {
    if (!is_database(file))
        return 0;
    errno = disk_is("full") ? ENOSPC : disk_is("read-only") ? EROFS : 0;
    return errno != 0;
}

static int flush_fails(int file) {
    if (!is_database(file))
        return 0;
    while (disk_is("stuck"))
        usleep(5000);
    if (disk_is("slow"))
        usleep(4000);
    errno = disk_is("broken") ? EIO : 0;
    return errno != 0;
}

ssize_t write(int file, const void *bytes, size_t count) {
    static ssize_t (*next)(int, const void *, size_t);
    static int is_torn;
    if (!next)
        next = (ssize_t(*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
    if (has_name(file, "access.log") && disk_is("torn")) {
        if (is_torn) {
            errno = ENOSPC;
            return -1;
        }
        is_torn = 1;
        return next(file, bytes, count / 2);
    }
    return write_fails(file) ? -1 : next(file, bytes, count);
}

ssize_t pwrite64(int file, const void *bytes, size_t count, off64_t offset) {
    static ssize_t (*next)(int, const void *, size_t, off64_t);
    if (!next)
        next = (ssize_t(*)(int, const void *, size_t, off64_t))dlsym(RTLD_NEXT, "pwrite64");
    return write_fails(file) ? -1 : next(file, bytes, count, offset);
}

ssize_t pwrite(int file, const void *bytes, size_t count, off_t offset) {
    return pwrite64(file, bytes, count, offset);
}

int fsync(int file) {
    static int (*next)(int);
    if (!next)
        next = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    return flush_fails(file) ? -1 : next(file);
}

int fdatasync(int file) {
    static int (*next)(int);
    if (!next)
        next = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    return flush_fails(file) ? -1 : next(file);
}
