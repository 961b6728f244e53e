#include "linger.h"

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

nanoseconds monotonic_now(void)
{
    struct timespec now;

    /* Not clock_gettime(): musl would look up the vDSO for it, at a cost in code and start-up that
     * the handful of calls in a life of linger never win back. */
    syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
    return now.tv_sec * NANOSECONDS_PER_SECOND + now.tv_nsec;
}
