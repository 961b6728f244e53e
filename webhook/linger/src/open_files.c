#include "linger.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Parses a number from 1 to OPEN_FILES_MAX, and moves the text behind it. */
static bool parse_count(const char **text, uint64_t *count)
{
    uint64_t number = 0;

    for (; **text >= '0' && **text <= '9' && number <= OPEN_FILES_MAX; ++*text)
        number = number * 10 + (uint64_t)(**text - '0');
    *count = number;
    return number > 0 && number <= OPEN_FILES_MAX;
}

bool parse_open_files(const char *text, struct open_files *limits)
{
    limits->hard = OPEN_FILES_MAX;
    if (!parse_count(&text, &limits->soft))
        return false;
    return *text == '\0' || (*text++ == ':' && parse_count(&text, &limits->hard) && *text == '\0');
}

void limit_open_files(const struct open_files *limits)
{
    /* The kernel's struct rlimit64. libc's setrlimit() may change the limits of other threads. */
    struct open_files changed;

    if (syscall(SYS_prlimit64, 0, RLIMIT_NOFILE, NULL, &changed) == 0) {
        if (changed.hard > limits->hard)
            changed.hard = limits->hard;
        changed.soft = limits->soft < changed.hard ? limits->soft : changed.hard;
        if (syscall(SYS_prlimit64, 0, RLIMIT_NOFILE, &changed, NULL) == 0)
            return;
    }
    LOG("cannot limit open files: ", strerror(errno), "; the limits stay as they are");
}
