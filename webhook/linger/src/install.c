#include "linger.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h> /* rename() */
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char own_executable[] = "/proc/self/exe";
static const char own_name[] = "linger";

enum { EXECUTABLE_BY_ALL = 0755 };

static int fail(const char *action, const char *path)
{
    COMPLAIN("cannot ", action, " ", path, ": ", strerror(errno));
    return EXIT_OWN_FAULT;
}

/* Joins strings into a path; false, with errno set, if it grows too long. The list ends with NULL. */
static bool join(char path[PATH_MAX], const char *const parts[])
{
    size_t length = 0;

    for (; *parts; parts++) {
        size_t more = strlen(*parts);
        if (more >= PATH_MAX - length) {
            errno = ENAMETOOLONG;
            return false;
        }
        memcpy(path + length, *parts, more);
        length += more;
    }
    path[length] = '\0';
    return true;
}

static bool is_directory(const char *path)
{
    int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);

    return fd >= 0 && close(fd) == 0;
}

/*
 * What stands at the target and is not a regular file, in words; NULL for a regular file or nothing.
 * rename() would replace it: `install /dev/full` once took that device away from the whole container.
 * A link is not followed: what it points to is not linger's, and the link itself is none either.
 */
static const char *in_the_way(const char *target)
{
    struct stat found;

    if (lstat(target, &found) != 0)
        return NULL; /* Nothing is there; any other reason comes up again when the file is created. */
    switch (found.st_mode & S_IFMT) {
    case S_IFREG:
        return NULL;
    case S_IFDIR:
        return "a directory";
    case S_IFLNK:
        return "a symbolic link";
    case S_IFIFO:
        return "a FIFO";
    case S_IFSOCK:
        return "a socket";
    default:
        return "a device";
    }
}

/* Creates a file beside `target` that nothing else has open, and leaves its name in `path`. */
static int create_beside(const char *target, char path[PATH_MAX])
{
    for (;;) {
        /* Not the process id: it is 1 in every container that shares this volume. A file that a
         * killed run has left behind must not stand in the way either. */
        char suffix[16 + 1];
        uint64_t stamp = (uint64_t)monotonic_now();
        for (int i = 0; i < 16; i++, stamp >>= 4)
            suffix[i] = "0123456789abcdef"[stamp & 15];
        suffix[16] = '\0';
        if (!join(path, (const char *const[]){target, ".", suffix, NULL}))
            return -1;
        int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, EXECUTABLE_BY_ALL);
        if (fd >= 0 || errno != EEXIST)
            return fd;
    }
}

static bool copy(int from, int to)
{
    static char buffer[16384];

    for (;;) {
        ssize_t held = read(from, buffer, sizeof buffer);
        if (held <= 0)
            return held == 0;
        for (ssize_t written = 0; written < held;) {
            ssize_t n = write(to, buffer + written, (size_t)(held - written));
            if (n < 0)
                return false;
            written += n;
        }
    }
}

int install(const char *destination)
{
    char target[PATH_MAX], temporary[PATH_MAX];
    bool into = is_directory(destination);

    if (!join(target, (const char *const[]){destination, into ? "/" : NULL, own_name, NULL}))
        return fail("install to", destination);

    const char *other = in_the_way(target);
    if (other) {
        COMPLAIN("cannot install to ", target, ": it is ", other,
                 "; name a regular file, a new file or a directory");
        return EXIT_OWN_FAULT;
    }

    int from = open(own_executable, O_RDONLY | O_CLOEXEC);
    if (from < 0)
        return fail("read", own_executable);
    int to = create_beside(target, temporary);
    if (to < 0)
        return fail("install to", target);

    /* fchmod() because the umask has had its say in open(). The file is closed before it gets its
     * final name: executing a file that is open for writing fails with ETXTBSY. It is not
     * synced: a volume that a container fills does not outlive a crash of its node, and fsync() is
     * what makes nodes slow. */
    bool copied = copy(from, to) && fchmod(to, EXECUTABLE_BY_ALL) == 0;
    int error = errno;
    if (close(to) < 0 && copied) {
        copied = false;
        error = errno;
    }
    if (copied && rename(temporary, target) == 0)
        return 0;
    if (copied)
        error = errno;
    unlink(temporary);
    errno = error;
    return fail("install to", target);
}
