#include "linger.h"

#include <errno.h>
#include <signal.h>
#include <sys/uio.h>
#include <time.h>

enum { MAX_PARTS = 8 };

/*
 * Calls writev(). If the reader has closed the pipe, for example a log agent, SIGPIPE does not kill
 * linger. The signal is blocked during the call, and then removed from the pending signals:
 *
 * - If SIGPIPE were ignored instead, the command that linger executes would also ignore it.
 * - If SIGPIPE stayed pending, linger would forward it to the command.
 */
static void writev_without_sigpipe(int fd, const struct iovec *pieces, int count)
{
    const struct timespec no_wait = {0};
    sigset_t pipe_signal, before;

    sigemptyset(&pipe_signal);
    sigaddset(&pipe_signal, SIGPIPE);
    sigprocmask(SIG_BLOCK, &pipe_signal, &before);
    if (writev(fd, pieces, count) < 0 && errno == EPIPE)
        sigtimedwait(&pipe_signal, NULL, &no_wait);
    /* SIG_SETMASK with `before` would be wrong: libc's sigset_t omits the signals that libc
     * reserves for itself. */
    if (!sigismember(&before, SIGPIPE))
        sigprocmask(SIG_UNBLOCK, &pipe_signal, NULL);
}

void write_line(int fd, const char *const parts[])
{
    struct iovec pieces[MAX_PARTS + 1];
    int count = 0;

    for (; parts[count] && count < MAX_PARTS; count++) {
        const char *end = parts[count];
        while (*end)
            end++;
        pieces[count].iov_base = (void *)(uintptr_t)parts[count];
        pieces[count].iov_len = (size_t)(end - parts[count]);
    }
    pieces[count].iov_base = "\n";
    pieces[count].iov_len = 1;
    /* An error is ignored, because it cannot be reported and must not change the exit code. */
    writev_without_sigpipe(fd, pieces, count + 1);
}
