/* A library that makes conmon write a container's exit file DELAY_MILLISECONDS late.
 *
 * It is loaded into conmon by LD_PRELOAD, in front of GLib. conmon writes the exit file with
 * g_file_set_contents(). The delay stands for what widens the same window on a busy node: conmon
 * flushes the container's log to the disk before it writes the exit file.
 *
 * conmon's children inherit the variable. GLib's function is looked up at the first call, so that a
 * program without GLib loads the library as well.
 */

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>

typedef int (*set_contents)(const char *, const char *, ssize_t, void **);

int g_file_set_contents(const char *path, const char *contents, ssize_t length, void **error);

int g_file_set_contents(const char *path, const char *contents, ssize_t length, void **error)
{
    set_contents next;
    *(void **)&next = dlsym(RTLD_NEXT, "g_file_set_contents");
    if (next == NULL) {
        abort();
    }
    const char *name = strrchr(path, '/');
    if (name != NULL && strcmp(name, "/exit") == 0) {
        struct timespec left = {DELAY_MILLISECONDS / 1000, DELAY_MILLISECONDS % 1000 * 1000000};
        while (nanosleep(&left, &left) != 0 && errno == EINTR) {
        }
    }
    return next(path, contents, length, error);
}
