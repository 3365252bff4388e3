/* Replaces the resolver of the C library (LD_PRELOAD).
 * The environment variable BEARWARD_DNS names a file with one "name address" per line. It is read at each lookup.
 * A name on several lines has several addresses. A name that is not in the file is not found.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Size of a buffer for a name or an address. fscanf below reads at most 255 characters. */
enum { SIZE = 256 };

typedef int lookup(const char *, const char *, const struct addrinfo *, struct addrinfo **);

/* Looks up each address of the name, and links the results. */
static int resolve(lookup *next, const char *wanted, const char *service, const struct addrinfo *hints, struct addrinfo **found) {
    char name[SIZE], address[SIZE];
    const char *path = getenv("BEARWARD_DNS");
    FILE *names = path ? fopen(path, "re") : NULL;
    int result = EAI_NONAME;
    while (names && fscanf(names, "%255s %255s", name, address) == 2) {
        if (strcmp(name, wanted) != 0)
            continue;
        result = next(address, service, hints, found);
        if (result != 0)
            break;
        while (*found)
            found = &(*found)->ai_next;
    }
    if (names)
        fclose(names);
    return result;
}

int getaddrinfo(const char *name, const char *service, const struct addrinfo *hints, struct addrinfo **found) {
    static lookup *next;
    if (!next)
        next = (lookup *)dlsym(RTLD_NEXT, "getaddrinfo");
    return name ? resolve(next, name, service, hints, found) : next(name, service, hints, found);
}
