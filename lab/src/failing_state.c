/* A program in front of an OCI runtime. Its `state` fails once the container has stopped.
 *
 * `state` runs the runtime's `state`. If the answer says "stopped", the program prints nothing and
 * exits with 1, as CRI-O issue 9840 shows it. Every other command goes to the runtime unchanged.
 *
 * `start` and `state` each append a line to CALLS_FILE:
 *   COMMAND ID BEGIN END EXIT_CODE STATUS
 * BEGIN and END are microseconds of the monotonic clock. STATUS is what the runtime answered, or "-".
 *
 * RUNTIME, CALLS_FILE, START_DELAY_MILLISECONDS and STOPS_CALLER are set by the compiler's command
 * line. `start` returns START_DELAY_MILLISECONDS after the runtime has started the container. If
 * STOPS_CALLER is not 0, the calling process is stopped until then. On containerd this process is
 * the shim, which reads the exit code: it then learns of the end of the container late, and before
 * `start` returns.
 */

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ANSWER_BYTES = 1 << 20, LINE_BYTES = 512, STATUS_BYTES = 16, FAILED = 1, NOT_STARTED = 127 };

static char answer[ANSWER_BYTES];

static long long microseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (long long)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static void sleep_milliseconds(long milliseconds)
{
    struct timespec left = {milliseconds / 1000, milliseconds % 1000 * 1000000};
    while (nanosleep(&left, &left) != 0 && errno == EINTR) {
    }
}

static void log_call(const char *command, const char *id, long long begin, int code,
                     const char *status)
{
    char line[LINE_BYTES];
    int length = snprintf(line, sizeof line, "%s %.128s %lld %lld %d %s\n", command, id, begin,
                          microseconds(), code, status);
    /* One write to a file that is opened for appending: lines of concurrent calls do not mix. */
    int file = open(CALLS_FILE, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    if (file >= 0) {
        if (write(file, line, (size_t)length) != length) {
            /* A lost line only makes the sample of the exposure smaller. */
        }
        close(file);
    }
}

static int exit_code_of(pid_t child)
{
    int status = 0;
    while (waitpid(child, &status, 0) < 0) {
        if (errno != EINTR) {
            return NOT_STARTED;
        }
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static pid_t run_runtime(char **arguments, int output)
{
    pid_t child = fork();
    if (child == 0) {
        if (output >= 0) {
            dup2(output, STDOUT_FILENO);
        }
        execv(RUNTIME, arguments);
        _exit(NOT_STARTED);
    }
    return child;
}

/* Copy the value of the answer's key "status" to `status`, or "-". A quote inside of a string of the
 * answer follows a backslash, so that an annotation's text is not taken for the key. */
static void read_status(char *status)
{
    static const char key[] = "\"status\"";
    strcpy(status, "-");
    for (const char *at = answer; (at = strstr(at, key)) != NULL; at++) {
        if (at > answer && at[-1] == '\\') {
            continue;
        }
        const char *value = at + sizeof key - 1;
        value += strspn(value, " \t\n:");
        if (*value == '"') {
            size_t length = strcspn(value + 1, "\"");
            if (length < STATUS_BYTES) {
                memcpy(status, value + 1, length);
                status[length] = '\0';
            }
            return;
        }
    }
}

static int query_state(char **arguments, const char *id)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return FAILED;
    }
    long long begin = microseconds();
    pid_t child = run_runtime(arguments, ends[1]);
    close(ends[1]);
    size_t length = 0;
    ssize_t count;
    while (length < ANSWER_BYTES - 1 &&
           (count = read(ends[0], answer + length, ANSWER_BYTES - 1 - length)) > 0) {
        length += (size_t)count;
    }
    close(ends[0]);
    int code = exit_code_of(child);
    char status[STATUS_BYTES];
    read_status(status);
    bool fails = code == 0 && strcmp(status, "stopped") == 0;
    if (!fails && fwrite(answer, 1, length, stdout) == length) {
        fflush(stdout);
    }
    code = fails ? FAILED : code;
    log_call("state", id, begin, code, status);
    return code;
}

static int start(char **arguments, const char *id)
{
    pid_t caller = getppid();
    if (STOPS_CALLER) {
        kill(caller, SIGSTOP);
    }
    long long begin = microseconds();
    int code = exit_code_of(run_runtime(arguments, -1));
    sleep_milliseconds(START_DELAY_MILLISECONDS);
    if (STOPS_CALLER) {
        kill(caller, SIGCONT);
    }
    log_call("start", id, begin, code, "-");
    return code;
}

int main(int count, char **arguments)
{
    const char *id = arguments[count - 1];
    for (int i = 1; i < count; i++) {
        if (strcmp(arguments[i], "state") == 0) {
            return query_state(arguments, id);
        }
        if (strcmp(arguments[i], "start") == 0) {
            return start(arguments, id);
        }
    }
    execv(RUNTIME, arguments);
    perror(RUNTIME);
    return NOT_STARTED;
}
