/* The only program of an image without a shell. Its first argument says what it does:

     report …         print arguments, variables, user, groups and working directory
     exit CODE        end with this code
     await-term CODE  print "ready", wait for SIGTERM, print "terminated", end with this code
     allocate MIB     write to that much memory after a second, print "allocated"
     write PATH       create a file; the exit code is the error number
     terminal         print whether standard input and output are a terminal, then echo one line
     copy FROM TO     copy a file and make it executable */

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

extern char **environ;

static int report(int count, char **arguments)
{
    gid_t groups[64];
    char directory[4096];
    for (int i = 0; i < count; i++) {
        printf("argument %s\n", arguments[i]);
    }
    for (char **variable = environ; *variable; variable++) {
        printf("variable %s\n", *variable);
    }
    printf("user %u:%u\n", getuid(), getgid());
    printf("effective %u:%u\n", geteuid(), getegid());
    int found = getgroups(64, groups);
    for (int i = 0; i < found; i++) {
        printf("group %u\n", groups[i]);
    }
    printf("directory %s\n", getcwd(directory, sizeof directory) ? directory : "unknown");
    return 0;
}

static int await_term(int code)
{
    sigset_t wanted;
    int received;
    sigemptyset(&wanted);
    sigaddset(&wanted, SIGTERM);
    sigprocmask(SIG_BLOCK, &wanted, 0);
    puts("ready");
    fflush(stdout);
    sigwait(&wanted, &received);
    puts("terminated");
    return code;
}

static int allocate(size_t mib)
{
    size_t size = mib * 1024 * 1024;
    sleep(1); /* the runtime may miss an earlier OOM kill */
    char *memory = malloc(size);
    if (!memory) {
        return errno;
    }
    for (size_t i = 0; i < size; i += 4096) {
        ((volatile char *)memory)[i] = 1;
    }
    puts("allocated");
    return 0;
}

static int write_file(const char *path)
{
    int file = open(path, O_WRONLY | O_CREAT, 0644);
    if (file < 0) {
        return errno;
    }
    close(file);
    return 0;
}

static int terminal(void)
{
    char line[256];
    printf("input %d output %d\n", isatty(0), isatty(1));
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) {
        return 1;
    }
    printf("read %s", line);
    return 0;
}

static int copy(const char *from, const char *to)
{
    char buffer[65536];
    ssize_t size;
    int source = open(from, O_RDONLY), target = open(to, O_WRONLY | O_CREAT | O_TRUNC, 0755);
    if (source < 0 || target < 0) {
        return errno;
    }
    while ((size = read(source, buffer, sizeof buffer)) > 0) {
        if (write(target, buffer, (size_t)size) != size) {
            return errno;
        }
    }
    return size < 0 ? errno : 0;
}

int main(int count, char **arguments)
{
    const char *what = count > 1 ? arguments[1] : "";
    const char *operand = count > 2 ? arguments[2] : "";
    if (strcmp(what, "report") == 0) {
        return report(count, arguments);
    }
    if (strcmp(what, "exit") == 0) {
        return atoi(operand);
    }
    if (strcmp(what, "await-term") == 0) {
        return await_term(atoi(operand));
    }
    if (strcmp(what, "allocate") == 0) {
        return allocate((size_t)atoi(operand));
    }
    if (strcmp(what, "write") == 0) {
        return write_file(operand);
    }
    if (strcmp(what, "terminal") == 0) {
        return terminal();
    }
    if (strcmp(what, "copy") == 0 && count > 3) {
        return copy(operand, arguments[3]);
    }
    fprintf(stderr, "act: unknown argument: %s\n", what);
    return 2;
}
