/*
 * linger runs a command and keeps its container alive until the container runtime has had time to
 * see it end. It also waits for the node's kubelet, ahead of the work. Built static, without stdio and without the heap: it must start within microseconds
 * and fit beside its command in a container limited to 5 MiB of memory and 5m of CPU.
 */
#ifndef LINGER_H
#define LINGER_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#define LINGER_VERSION "0.1.0"

/* The codes that shells and container runtimes give their meaning; others are the command's own. */
enum {
    EXIT_OWN_FAULT = 1,
    EXIT_BAD_USAGE = 2,
    EXIT_NOT_EXECUTABLE = 126,
    EXIT_NOT_FOUND = 127,
    EXIT_KILLED_BY = 128, /* plus the signal's number */
};

/* clock.c */

typedef int64_t nanoseconds;

#define NANOSECONDS_PER_SECOND 1000000000LL

/* Time since some point in the past. It counts while the machine's wall clock is being set. */
nanoseconds monotonic_now(void);

/* duration.c */

/* Half of what fits, so that a point in time plus a duration never overflows: 146 years. */
#define DURATION_MAX (INT64_MAX / 2)

/* Reads a duration as Go writes it: "0", "10ms", "1.5s", "1m30s". False if it is not one. */
bool parse_duration(const char *text, nanoseconds *duration);

/* message.c */

/* Writes the strings, then a newline, in one piece. The list ends with NULL. An error is ignored, a
 * reader that is gone included: SIGPIPE neither ends linger nor stays pending, and its disposition
 * and the signal mask are the same afterwards. */
void write_line(int fd, const char *const parts[]);

#define PRINT(...) write_line(1, (const char *const[]){__VA_ARGS__, 0})
#define COMPLAIN(...) write_line(2, (const char *const[]){"linger: ", __VA_ARGS__, 0})

/* run.c */

struct run {
    nanoseconds started;      /* when linger itself did */
    nanoseconds sleep;        /* how long to stay at least once the command has ended */
    nanoseconds min_lifetime; /* how long to stay at least, counted from `started` */
    char **command;           /* as execvp takes it: at least one string, then NULL */
};

/* Runs the command, lingers, and returns the exit code to leave with. */
int run(const struct run *run);

/* install.c */

/* Copies this executable to `destination`, a file or a directory. A regular file is replaced
 * atomically; anything else at the target is left as it is, and an error. Returns an exit code. */
int install(const char *destination);

/* wait_kubelet.c */

struct endpoint {
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } address;
    socklen_t length;
};

/* Reads an IPv4 or IPv6 address as Kubernetes writes it. False if it is neither. */
bool parse_endpoint(const char *host, uint16_t port, struct endpoint *endpoint);

/* Returns once the kubelet begins a TLS handshake, or at the timeout, or if the kubelet's answer
 * cannot tell, and says which on stderr. `host` is what it is called there. */
void wait_kubelet(const struct endpoint *kubelet, const char *host, nanoseconds timeout);

#endif
