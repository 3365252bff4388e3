/* Names that lead where they are told: loaded in front of the C library (LD_PRELOAD), it stands for its resolver.
 * The environment variable BEARWARD_NAMES names a file with "name address" in each line, which is read each time. What is not
 * in it is not found.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of the form that scanf reads below. */
enum { LONGEST = 256 };

static int leads_to(const char *wanted, char address[LONGEST]) {
    char name[LONGEST];
    const char *path = getenv("BEARWARD_NAMES");
    FILE *names = path ? fopen(path, "re") : NULL;
    int found = 0;
    while (names && !found && fscanf(names, "%255s %255s", name, address) == 2)
        found = strcmp(name, wanted) == 0;
    if (names)
        fclose(names);
    return found;
}

int getaddrinfo(const char *name, const char *service, const struct addrinfo *hints, struct addrinfo **found) {
    static int (*next)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
    char address[LONGEST];
    if (!next)
        next = (int (*)(const char *, const char *, const struct addrinfo *, struct addrinfo **))dlsym(RTLD_NEXT, "getaddrinfo");
    if (!name)
        return next(name, service, hints, found);
    return leads_to(name, address) ? next(address, service, hints, found) : EAI_NONAME;
}
