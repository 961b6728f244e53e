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

enum { EXECUTABLE_MODE = 0755 };

/* Logs the failure with the text for errno, and returns the exit code for linger. */
static int report_failure(const char *action, const char *path)
{
    LOG("cannot ", action, " ", path, ": ", strerror(errno));
    return EXIT_INSTALL_FAILED;
}

/* Concatenates strings to a path. The list ends with NULL. Returns false and sets errno if the path
 * is too long. */
static bool join_path(char path[PATH_MAX], const char *const parts[])
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
 * Returns the type of the file at the target, such as "a device". Returns NULL if the target is a
 * regular file or does not exist.
 *
 * rename() replaces files of other types, too: `install /dev/full` once removed that device for the
 * whole container. Symbolic links are not followed, because the file that a link points to does not
 * belong to linger.
 */
static const char *unsupported_file_type(const char *target)
{
    struct stat info;

    if (lstat(target, &info) != 0)
        return NULL; /* After an error other than ENOENT, creating the file fails, too. */
    switch (info.st_mode & S_IFMT) {
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

/* Creates a new file in the directory of `target` and writes its path to `path`. Returns its file
 * descriptor, or -1 with errno set. */
static int create_temporary_file(const char *target, char path[PATH_MAX])
{
    for (;;) {
        /* The suffix is the time. The process id would not be unique, because it is 1 in every
         * container that shares the volume. A fixed suffix would fail after a killed run, which
         * leaves its file behind. */
        char suffix[16 + 1];
        uint64_t stamp = (uint64_t)monotonic_now();
        for (int i = 0; i < 16; i++, stamp >>= 4)
            suffix[i] = "0123456789abcdef"[stamp & 15];
        suffix[16] = '\0';
        if (!join_path(path, (const char *const[]){target, ".", suffix, NULL}))
            return -1;
        int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, EXECUTABLE_MODE);
        if (fd >= 0 || errno != EEXIST)
            return fd;
    }
}

/* Copies a file up to its end. Returns false and sets errno if an error occurs. */
static bool copy_all(int from, int to)
{
    static char buffer[16384];

    for (;;) {
        ssize_t length = read(from, buffer, sizeof buffer);
        if (length <= 0)
            return length == 0;
        for (ssize_t written = 0; written < length;) {
            ssize_t n = write(to, buffer + written, (size_t)(length - written));
            if (n < 0)
                return false;
            written += n;
        }
    }
}

int install(const char *destination)
{
    char target[PATH_MAX], temporary[PATH_MAX];
    bool into_directory = is_directory(destination);

    /* For a file, the NULL in the middle ends the list, so that the name is not appended. */
    if (!join_path(target, (const char *const[]){destination, into_directory ? "/" : NULL, own_name,
                                                 NULL}))
        return report_failure("install to", destination);

    const char *file_type = unsupported_file_type(target);
    if (file_type) {
        LOG("cannot install to ", target, ": it is ", file_type,
                 "; name a regular file, a new file or a directory");
        return EXIT_INSTALL_FAILED;
    }

    int from = open(own_executable, O_RDONLY | O_CLOEXEC);
    if (from < 0)
        return report_failure("read", own_executable);
    int to = create_temporary_file(target, temporary);
    if (to < 0)
        return report_failure("install to", target);

    /* fchmod() is needed because open() applies the umask. The file is closed before it is renamed,
     * because executing a file that is open for writing fails with ETXTBSY. fsync() is not called,
     * because it is slow, and the volume does not survive a crash of its node. */
    bool copied = copy_all(from, to) && fchmod(to, EXECUTABLE_MODE) == 0;
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
    return report_failure("install to", target);
}
