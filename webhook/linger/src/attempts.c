/*
 * Attempts to contact something that may not be ready, until it is or a time has passed.
 */
#include "linger.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MILLISECOND 1000000LL

static const nanoseconds initial_backoff = 100 * MILLISECOND;
static const nanoseconds max_backoff = 1000 * MILLISECOND;
static const nanoseconds max_attempt_time = 5 * NANOSECONDS_PER_SECOND;
/* The last attempt starts this long before the end. */
static const nanoseconds final_attempt_time = 100 * MILLISECOND;

struct attempt retryable(const char *problem, const char *detail)
{
    return (struct attempt){.problem = problem, .detail = detail};
}

static nanoseconds earliest(nanoseconds one, nanoseconds other)
{
    return one < other ? one : other;
}

nanoseconds end_of_attempt(nanoseconds until)
{
    return earliest(until, monotonic_now() + max_attempt_time);
}

/* Returns the milliseconds until `until`, but at most about a second, as a timeout for poll(). The
 * result is rounded up. With 0 in the last millisecond, the caller's loop would not sleep. */
static int milliseconds_to(nanoseconds until)
{
    nanoseconds left = until - monotonic_now();

    return left <= 0 ? 0 : (int)(earliest(left, NANOSECONDS_PER_SECOND) / MILLISECOND + 1);
}

bool wait_for_events(int fd, short events, nanoseconds until)
{
    struct pollfd waiting = {.fd = fd, .events = events};

    for (;;) {
        int wait = milliseconds_to(until);
        if (wait == 0)
            return false;
        if (poll(&waiting, 1, wait) > 0)
            return true;
    }
}

/* Returns 0, or the error for which the socket cannot connect. */
static int connection_error(int fd, const struct sockaddr *address, socklen_t length,
                            nanoseconds until)
{
    int error = 0;
    socklen_t size = sizeof error;

    if (connect(fd, address, length) == 0)
        return 0;
    if (errno != EINPROGRESS)
        return errno;
    if (!wait_for_events(fd, POLLOUT, until))
        return ETIMEDOUT;
    return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 ? error : errno;
}

int connect_until(const struct sockaddr *address, socklen_t length, nanoseconds until,
                  struct attempt *failure)
{
    int fd = socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        *failure = retryable("cannot be contacted: ", strerror(errno));
        return -1;
    }
    int error = connection_error(fd, address, length, until);
    if (error == 0)
        return fd;
    close(fd);
    *failure = retryable("cannot be reached: ", strerror(error));
    return -1;
}

struct attempt exchange(int fd, const void *message, size_t length, void *answer, size_t size,
                        nanoseconds until)
{
    size_t read = 0;

    if (send(fd, message, length, MSG_NOSIGNAL) < 0)
        return retryable("breaks the connection: ", strerror(errno));
    while (read < size) {
        if (!wait_for_events(fd, POLLIN, until))
            return retryable("does not answer", "");
        ssize_t n = recv(fd, (char *)answer + read, size - read, 0);
        if (n < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (n < 0)
            return retryable("breaks the connection: ", strerror(errno));
        if (n == 0)
            return retryable("closes the connection", "");
        read += (size_t)n;
    }
    return (struct attempt){.outcome = READY};
}

struct attempt repeat_until(attempt_function *attempt, const void *target, nanoseconds until)
{
    nanoseconds backoff = initial_backoff;

    for (;;) {
        struct attempt result = attempt(target, until);
        nanoseconds now = monotonic_now();
        nanoseconds last = until - final_attempt_time;
        if (result.outcome != RETRY || now >= last)
            return result;
        wait_for_events(-1, 0, earliest(now + backoff, last));
        backoff = earliest(2 * backoff, max_backoff);
    }
}

/* A handler for termination signals. Without it, PID 1 would ignore them, which would delay the
 * deletion of a pod. */
static void exit_successfully(int signal)
{
    (void)signal;
    _exit(0);
}

void exit_on_termination_signals(void)
{
    const struct sigaction action = {.sa_handler = exit_successfully};

    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGQUIT, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
}
