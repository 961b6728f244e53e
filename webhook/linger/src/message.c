#include "linger.h"

#include <errno.h>
#include <signal.h>
#include <sys/uio.h>
#include <time.h>

enum { MAX_PARTS = 8 };

/*
 * Writes without dying of SIGPIPE where the reader is gone, as when a log agent has closed its end.
 * The signal is blocked and taken back, not ignored: what linger executes inherits an ignored signal,
 * and a blocked one that stays pending would be forwarded to the command.
 */
static void write_without_sigpipe(int fd, const struct iovec *pieces, int count)
{
    const struct timespec at_once = {0};
    sigset_t pipe_signal, before;

    sigemptyset(&pipe_signal);
    sigaddset(&pipe_signal, SIGPIPE);
    sigprocmask(SIG_BLOCK, &pipe_signal, &before);
    if (writev(fd, pieces, count) < 0 && errno == EPIPE)
        sigtimedwait(&pipe_signal, NULL, &at_once);
    /* Not SIG_SETMASK: libc's sigset_t leaves out the signals that libc keeps to itself. */
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
    /* An error has no other place to be reported: the exit code stays that of the verb. */
    write_without_sigpipe(fd, pieces, count + 1);
}
