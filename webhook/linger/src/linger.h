/*
 * linger is the helper, a small static program with four functions:
 *
 * - It runs a command and delays the exit of its container, so that the container runtime does not
 *   lose the command's exit code.
 * - It limits the files that a command may open. Without a delay, the command replaces linger.
 * - It copies itself to a file, from where other containers execute it.
 * - It waits until the node's kubelet has a serving certificate.
 * - It waits until addresses and names that a pod needs answer.
 *
 * linger does not use the heap, and only the C library's resolver uses stdio: linger must start
 * within microseconds, and it must run beside its command in a container that is limited to 5 MiB of
 * memory and 5m of CPU.
 */
#ifndef LINGER_H
#define LINGER_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#define LINGER_VERSION "0.2.0"

/* linger's own exit codes, with the meaning that they have in shells and container runtimes.
 * Otherwise linger exits with the command's exit code. */
enum {
    EXIT_INSTALL_FAILED = 1,
    EXIT_BAD_USAGE = 2,
    EXIT_NOT_EXECUTABLE = 126,
    EXIT_NOT_FOUND = 127,
    EXIT_KILLED_BY = 128, /* plus the signal's number */
};

/* clock.c */

typedef int64_t nanoseconds;

#define NANOSECONDS_PER_SECOND 1000000000LL

/* Returns the time since a fixed point in the past. Setting the wall clock does not change it. */
nanoseconds monotonic_now(void);

/* duration.c */

/* Half of the largest value, so that adding a duration to the time never overflows: 146 years. */
#define DURATION_MAX (INT64_MAX / 2)

/* Parses a duration in Go's format, such as "0", "10ms", "1.5s" or "1m30s". Returns false if the
 * text has another format or the duration is longer than DURATION_MAX. */
bool parse_duration(const char *text, nanoseconds *duration);

/* message.c */

/* Writes the strings and a newline with one system call. The list ends with NULL. Errors are
 * ignored. If the reader has closed the pipe, SIGPIPE neither kills linger nor stays pending. The
 * disposition of SIGPIPE and the signal mask do not change. */
void write_line(int fd, const char *const parts[]);

#define PRINT(...) write_line(1, (const char *const[]){__VA_ARGS__, 0})
/* Writes a message to stderr. */
#define LOG(...) write_line(2, (const char *const[]){"linger: ", __VA_ARGS__, 0})

/* open_files.c */

/* More than the kernel's largest limit, `sysctl_nr_open_max` of fs/file.c. */
#define OPEN_FILES_MAX INT32_MAX

/* Limits on open files (RLIMIT_NOFILE), in the order of the kernel's struct rlimit64. */
struct open_files {
    uint64_t soft;
    uint64_t hard;
};

/* Parses "SOFT" or "SOFT:HARD", numbers from 1 to OPEN_FILES_MAX. Without HARD, the hard limit is
 * OPEN_FILES_MAX. Returns false for any other text. */
bool parse_open_files(const char *text, struct open_files *limits);

/* Sets the limits of this process, which commands inherit. Lowers the hard limit, and never raises
 * it. The soft limit is at most the hard limit. After an error, logs it and changes nothing. */
void limit_open_files(const struct open_files *limits);

/* run.c */

struct run {
    nanoseconds started;      /* the time at which linger started */
    nanoseconds sleep;        /* the minimum time between the command's end and linger's exit */
    nanoseconds min_lifetime; /* the minimum time between `started` and linger's exit */
    struct open_files limits; /* for linger and the command; a soft limit of 0 changes nothing */
    char **command;           /* arguments for execvp(): at least one string, then NULL */
};

/* Runs the command, waits for the delays, and returns the exit code for linger. With limits and
 * without a delay, the command replaces linger. */
int run(const struct run *run);

/* install.c */

/* Copies this executable to `destination`, a file or a directory. Replaces a regular file
 * atomically. Fails if the target exists and is not a regular file. Returns the exit code for
 * linger. */
int install(const char *destination);

/* attempts.c */

/* The result of one attempt. If the target is not ready, `problem` and `detail` are the reason: a
 * predicate such as "does not answer". */
struct attempt {
    enum { RETRY, GIVE_UP, READY } outcome;
    const char *problem;
    const char *detail;
};

/* An attempt to contact a target. It ends at `until`. */
typedef struct attempt attempt_function(const void *target, nanoseconds until);

struct attempt retryable(const char *problem, const char *detail);

/* Returns the time at which an attempt that begins now has to end: some seconds from now, but not
 * after `until`. */
nanoseconds end_of_attempt(nanoseconds until);

/* Waits for events on a socket, or only for the time if `fd` is -1. Returns false when `until` has
 * passed. */
bool wait_for_events(int fd, short events, nanoseconds until);

/* Returns a connected socket that does not block. Returns -1 and sets `failure` if there is none. */
int connect_until(const struct sockaddr *address, socklen_t length, nanoseconds until,
                  struct attempt *failure);

/* Sends a message and reads the first `size` bytes of the answer. The result is READY or RETRY. The
 * message has to fit into the send buffer of a new socket, so that send() accepts it completely. */
struct attempt exchange(int fd, const void *message, size_t length, void *answer, size_t size,
                        nanoseconds until);

/* Repeats an attempt at growing intervals. Returns the result of the last one: READY, GIVE_UP, or
 * RETRY when `until` has passed. */
struct attempt repeat_until(attempt_function *attempt, const void *target, nanoseconds until);

/* From now on, a signal that asks a container to terminate ends linger with exit code 0. */
void exit_on_termination_signals(void);

/* wait_kubelet.c */

struct endpoint {
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } address;
    socklen_t length;
};

/* Parses an IPv4 or IPv6 address in Kubernetes' format. Returns false if it is not one. */
bool parse_endpoint(const char *host, uint16_t port, struct endpoint *endpoint);

/* Returns when the kubelet begins a TLS handshake, when the timeout has passed, or when the
 * kubelet's answer shows that another attempt is useless. Logs which of these happened. `host` is
 * the kubelet's address for the log message. */
void wait_kubelet(const struct endpoint *kubelet, const char *host, nanoseconds timeout);

/* target.c */

enum {
    MAX_TARGET_LENGTH = 512,
    MAX_HOST_LENGTH = 254, /* a DNS name with its final dot */
};

enum target_kind { TARGET_TCP, TARGET_HTTP, TARGET_DNS };

struct target {
    enum target_kind kind;
    const char *text; /* as it was written, for the log */
    char host[MAX_HOST_LENGTH + 1];
    char port[sizeof "65535"]; /* empty for TARGET_DNS */
    const char *authority;     /* for TARGET_HTTP: the part of `text` behind the scheme */
    size_t authority_length;   /* the path follows it, or the end of the text */
};

/* Parses a target: HOST:PORT, a URL that begins with http://, or a name. Returns false if `text`
 * has another format or is too long. `target` refers to `text`. */
bool parse_target(enum target_kind kind, const char *text, struct target *target);

/* wait.c */

struct wait {
    nanoseconds started; /* the time at which linger started */
    nanoseconds timeout;
    const struct target *targets;
    int count;
    const struct endpoint *kubelet; /* NULL if linger does not wait for the kubelet */
    const char *kubelet_host;
    nanoseconds kubelet_timeout;
};

/* Returns when every target has answered once and the kubelet is ready, or when their timeouts have
 * passed. Logs which of them answered, and when. */
void wait_for_targets(const struct wait *wait);

#endif
