#include "linger.h"

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

nanoseconds monotonic_now(void)
{
    struct timespec now;

    /* This is a system call because musl's clock_gettime() searches the vDSO at the first call. The
     * search adds code, and it takes longer than linger's few calls would save. */
    syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
    return now.tv_sec * NANOSECONDS_PER_SECOND + now.tv_nsec;
}
