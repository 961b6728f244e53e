#include "linger.h"

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

nanoseconds monotonic_now(void)
{
    struct timespec now;

    /* A system call instead of clock_gettime(): for that, musl searches the vDSO at the first call.
     * linger makes too few calls to save that time again, and the search adds code. */
    syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
    return now.tv_sec * NANOSECONDS_PER_SECOND + now.tv_nsec;
}
