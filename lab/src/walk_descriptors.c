/*
 * What programs do that close every possible descriptor when they start, and keep an entry for each:
 * daemons that detach, MySQL's table of files, Erlang's table of ports. Prints the soft limit, the
 * seconds that the walk took, and the KiB that the process then has in memory.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

int main(void)
{
    struct rlimit limit;
    unsigned long pages = 0;
    struct timespec begin, end;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return 1;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    /* volatile, so that the compiler keeps the entries that nothing reads. */
    volatile int *entries = malloc(limit.rlim_cur * sizeof *entries);
    if (!entries)
        return 1;
    for (size_t fd = 0; fd < limit.rlim_cur; fd++)
        entries[fd] = fd > 2 ? close((int)fd) : 0;
    clock_gettime(CLOCK_MONOTONIC, &end);
    /* ru_maxrss would include the process that executed this program. */
    FILE *statm = fopen("/proc/self/statm", "r");
    if (!statm || fscanf(statm, "%*u %lu", &pages) != 1)
        return 1;
    double seconds = (double)(end.tv_sec - begin.tv_sec) + (double)(end.tv_nsec - begin.tv_nsec) / 1e9;
    printf("%llu %.6f %lu\n", (unsigned long long)limit.rlim_cur, seconds,
           pages * (unsigned long)sysconf(_SC_PAGESIZE) / 1024);
    return entries[0];
}
