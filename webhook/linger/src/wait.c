/*
 * Waits until several targets have answered, all of them side by side.
 *
 * Each target has a child process. The resolver of the C library blocks, and a child that blocks
 * delays no other target.
 */
#include "linger.h"

#include <errno.h>
#include <netdb.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *const kinds[] = {
    [TARGET_TCP] = "tcp ",
    [TARGET_HTTP] = "http ",
    [TARGET_DNS] = "dns ",
};

/* getaddrinfo() allocates its result, and nothing else. The result has at most 48 addresses of
 * fewer than 100 bytes each, and a name. An allocator would be as large as the rest of linger. Each
 * result is read before the next call. */
void *calloc(size_t count, size_t size)
{
    static _Alignas(max_align_t) char memory[8192];
    size_t length;

    if (__builtin_mul_overflow(count, size, &length) || length > sizeof memory)
        return NULL;
    return memset(memory, 0, length);
}

/* Looks up the target's host. Returns NULL and sets `failure` if it has no address. */
static struct addrinfo *resolve(const struct target *target, struct attempt *failure)
{
    const struct addrinfo wanted = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    const char *port = *target->port ? target->port : NULL;

    switch (getaddrinfo(target->host, port, &wanted, &found)) {
    case 0:
        return found;
    case EAI_AGAIN:
        *failure = retryable("cannot be resolved: the DNS server does not answer", "");
        break;
    case EAI_NONAME:
        *failure = retryable("cannot be resolved: the name does not exist", "");
        break;
    case EAI_NODATA:
        *failure = retryable("cannot be resolved: the name has no address", "");
        break;
    default:
        *failure = retryable("cannot be resolved", "");
    }
    return NULL;
}

/* Connects to one of the target's addresses. They share the time, so that an address that does not
 * answer leaves time for the others. Returns the socket, or -1. */
static int connect_to(const struct target *target, nanoseconds until, struct attempt *failure)
{
    int count = 0;
    int fd = -1;
    struct addrinfo *first = resolve(target, failure);

    for (struct addrinfo *each = first; each; each = each->ai_next)
        count++;
    until = end_of_attempt(until);
    for (struct addrinfo *each = first; each && fd < 0; each = each->ai_next) {
        nanoseconds now = monotonic_now();
        fd = connect_until(each->ai_addr, each->ai_addrlen, now + (until - now) / count--, failure);
    }
    return fd;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static size_t append(char *to, size_t at, const char *text, size_t length)
{
    memcpy(to + at, text, length);
    return at + length;
}

static struct attempt request_status(int fd, const struct target *target, nanoseconds until)
{
    static const char get[] = "GET ";
    static const char version[] = " HTTP/1.1\r\nHost: ";
    static const char fields[] = "\r\nUser-Agent: linger/" LINGER_VERSION
                                 "\r\nAccept: */*\r\nConnection: close\r\n\r\n";
    static const char protocol[] = "HTTP/1.";
    char request[2 * MAX_TARGET_LENGTH + sizeof get + sizeof version + sizeof fields];
    char answer[sizeof "HTTP/1.1 200" - 1]; /* the beginning of a status line */
    const char *path = target->authority + target->authority_length;
    size_t length = append(request, 0, get, sizeof get - 1);

    if (*path == '\0')
        path = "/";
    length = append(request, length, path, strcspn(path, "#"));
    length = append(request, length, version, sizeof version - 1);
    length = append(request, length, target->authority, target->authority_length);
    length = append(request, length, fields, sizeof fields - 1);
    struct attempt attempt = exchange(fd, request, length, answer, sizeof answer, until);
    if (attempt.outcome != READY)
        return attempt;
    if (memcmp(answer, protocol, sizeof protocol - 1) == 0 && is_digit(answer[7]) &&
        answer[8] == ' ' && is_digit(answer[9]) && is_digit(answer[10]) && is_digit(answer[11]))
        return attempt;
    return retryable("does not speak HTTP/1", "");
}

static struct attempt attempt_target(const void *any, nanoseconds until)
{
    const struct target *target = any;
    struct attempt failure;
    struct attempt attempt = {.outcome = READY};

    if (target->kind == TARGET_DNS)
        return resolve(target, &failure) ? attempt : failure;
    int fd = connect_to(target, until, &failure);
    if (fd < 0)
        return failure;
    if (target->kind == TARGET_HTTP)
        attempt = request_status(fd, target, end_of_attempt(until));
    close(fd);
    return attempt;
}

static void log_timeout(const struct target *target, const char *problem, const char *detail)
{
    LOG("timeout: ", kinds[target->kind], target->text, " ", problem, detail,
        "; continuing without it");
}

/* The target of this child process, for the handler of SIGALRM. */
static const struct target *awaited;

static void exit_at_timeout(int signal)
{
    (void)signal;
    log_timeout(awaited, "cannot be resolved: the DNS server does not answer", "");
    _exit(0);
}

/* Ends the process some time after `until`, in case that the resolver still blocks it. */
static void exit_soon_after(nanoseconds until)
{
    const struct sigaction action = {.sa_handler = exit_at_timeout};
    nanoseconds left = until - monotonic_now();
    /* 100 ms: longer than the rest of an attempt that ends at `until`. With 0, no alarm is set. */
    nanoseconds after = (left > 0 ? left : 0) + NANOSECONDS_PER_SECOND / 10;
    const struct itimerval timer = {
        .it_value.tv_sec = after / NANOSECONDS_PER_SECOND,
        .it_value.tv_usec = after % NANOSECONDS_PER_SECOND / 1000,
    };

    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &timer, NULL);
}

/* Writes a time in seconds with one decimal, such as "10.2". Returns the first character. */
static const char *seconds(nanoseconds time, char *end)
{
    nanoseconds tenths = time / (NANOSECONDS_PER_SECOND / 10);

    *--end = '\0';
    *--end = (char)('0' + tenths % 10);
    *--end = '.';
    do
        *--end = (char)('0' + (tenths /= 10) % 10);
    while (tenths >= 10);
    return end;
}

static void wait_for_target(const struct target *target, nanoseconds started, nanoseconds until)
{
    char text[24];

    awaited = target;
    exit_soon_after(until);
    struct attempt last = repeat_until(attempt_target, target, until);
    if (last.outcome == READY)
        LOG(kinds[target->kind], target->text, " answers after ",
            seconds(monotonic_now() - started, text + sizeof text), " s");
    else
        log_timeout(target, last.problem, last.detail);
}

/* Returns true in a child process. It ends together with its parent. */
static bool is_child_process(const char *kind, const char *text)
{
    pid_t parent = getpid();
    pid_t child = fork();

    if (child < 0)
        LOG("cannot fork: ", strerror(errno), "; not waiting for ", kind, text);
    if (child != 0)
        return false;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(0);
    return true;
}

void wait_for_targets(const struct wait *wait)
{
    nanoseconds until = monotonic_now() + wait->timeout;

    exit_on_termination_signals();
    for (int i = 0; i < wait->count; i++) {
        const struct target *target = &wait->targets[i];
        if (is_child_process(kinds[target->kind], target->text)) {
            wait_for_target(target, wait->started, until);
            _exit(0);
        }
    }
    /* The kubelet needs no child process, because its attempts do not block. */
    if (wait->kubelet)
        wait_kubelet(wait->kubelet, wait->kubelet_host, wait->kubelet_timeout);
    while (waitpid(-1, NULL, 0) > 0 || errno == EINTR)
        ;
}
