/*
 * The hazards here are those of PID 1.
 *
 * - The kernel drops a signal that PID 1 has no handler for, unless the signal is blocked. So linger
 *   blocks all of them and fetches them one by one, in a loop with no handlers and hence no races:
 *   what arrives between two calls stays pending.
 * - libc keeps three real-time signals to itself: its sigset_t functions leave them out. The command
 *   may have another libc with other ideas, so signal sets are the kernel's own 64 bits here.
 * - The command is no longer PID 1 itself. Signals it does not handle end it, as anywhere else.
 */
#include "linger.h"

#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef uint64_t signal_set; /* the kernel's, on 64-bit Linux */

#define BIT(signal) (UINT64_C(1) << ((signal)-1))

/* What the processor raises in whoever made a mistake. Blocked, it would kill without a core. */
static const signal_set synchronous = BIT(SIGSEGV) | BIT(SIGBUS) | BIT(SIGFPE) | BIT(SIGILL) |
                                      BIT(SIGTRAP) | BIT(SIGSYS);

/* What asks a container to end. */
static const signal_set terminating = BIT(SIGTERM) | BIT(SIGINT) | BIT(SIGQUIT) | BIT(SIGHUP);

/* What a terminal sends to each process of its group, and so to the command without our help. */
static const signal_set sent_to_group = BIT(SIGINT) | BIT(SIGQUIT) | BIT(SIGTSTP) | BIT(SIGTTIN) |
                                        BIT(SIGTTOU) | BIT(SIGWINCH);
static const signal_set stopping = BIT(SIGTSTP) | BIT(SIGTTIN) | BIT(SIGTTOU);

/* How signals were set when linger began, for the command to find them so. */
struct inherited {
    signal_set mask;
    struct sigaction on_child;
};

static void change_mask(int how, signal_set set, signal_set *before)
{
    syscall(SYS_rt_sigprocmask, how, &set, before, sizeof set);
}

static void take_over_signals(struct inherited *inherited)
{
    /* An ignored SIGCHLD survives execve() and would make the kernel discard exit codes. */
    const struct sigaction by_default = {.sa_handler = SIG_DFL};

    sigaction(SIGCHLD, &by_default, &inherited->on_child);
    change_mask(SIG_SETMASK, ~synchronous, &inherited->mask);
}

static void give_back_signals(const struct inherited *inherited)
{
    sigaction(SIGCHLD, &inherited->on_child, NULL);
    change_mask(SIG_SETMASK, inherited->mask, NULL);
}

/* Waits for a signal. Returns its number, or 0 once the point in time `until` has passed. */
static int next_signal(siginfo_t *info, const nanoseconds *until)
{
    const signal_set any = ~synchronous;

    for (;;) {
        struct timespec rest = {0};
        if (until) {
            nanoseconds left = *until - monotonic_now();
            if (left <= 0)
                return 0;
            rest.tv_sec = left / NANOSECONDS_PER_SECOND;
            rest.tv_nsec = left % NANOSECONDS_PER_SECOND;
        }
        long signal =
            syscall(SYS_rt_sigtimedwait, &any, info, until ? &rest : NULL, sizeof any);
        if (signal > 0)
            return (int)signal;
        /* EAGAIN: time is up. EINTR: a debugger or a freezer got in between. */
    }
}

/* Reaps all that has ended. True if the command is among it; `status` is the command's then. */
static bool reap(pid_t command, int *status)
{
    bool ended = false;
    int any_status;
    pid_t pid;

    /* Until none is left: however many children end at a time, SIGCHLD is pending only once. */
    while ((pid = waitpid(-1, &any_status, WNOHANG)) > 0) {
        if (pid == command) {
            *status = any_status;
            ended = true;
        }
    }
    return ended;
}

/*
 * With a terminal the command stays in linger's process group, so that job control works as if
 * linger were not there: the terminal tells both of Ctrl-C, a job in the background remains one, and
 * Ctrl-Z cannot stop a command that no shell would ever continue (in a group of its own it could).
 */
static bool has_terminal(void)
{
    int group;

    for (int fd = 0; fd <= 2; fd++)
        if (ioctl(fd, TIOCGPGRP, &group) == 0)
            return true;
    return false;
}

/* Does to linger itself what the signal does by default: nothing to PID 1, stop it elsewhere. */
static void stop_like_the_command(int signal)
{
    change_mask(SIG_UNBLOCK, BIT(signal), NULL);
    kill(getpid(), signal);
    change_mask(SIG_BLOCK, BIT(signal), NULL);
}

static void forward(pid_t command, int signal, const siginfo_t *info)
{
    if (info->si_code == SI_KERNEL && BIT(signal) & sent_to_group) {
        if (BIT(signal) & stopping)
            stop_like_the_command(signal);
        return;
    }
    /* The command has not been reaped yet, so its process id cannot have passed to another. A value
     * that sigqueue() sent along is lost. */
    kill(command, signal);
}

/* Becomes the command. Returns only if that fails, with the exit code that says so. */
static int execute(char **command)
{
    execvp(command[0], command);

    const char *reason = strerror(errno);
    int code = errno == ENOENT || errno == ENOTDIR ? EXIT_NOT_FOUND : EXIT_NOT_EXECUTABLE;
    if (errno == ENOENT && strchr(command[0], '/') && access(command[0], F_OK) == 0)
        reason = "its interpreter or loader was not found";
    COMPLAIN("cannot run ", command[0], ": ", reason);
    return code;
}

static void become_command(char **command, const struct inherited *inherited, pid_t parent)
{
    /* Without a terminal the command leads a group, as it would as PID 1. Scripts end with
     * `kill 0`: in linger's group that would reach linger too, and cancel its sleep. */
    if (!has_terminal())
        setpgid(0, 0);
    /* SIGKILL cannot be forwarded. Where linger is PID 1 the kernel kills the rest with it; in a
     * pod with a shared process namespace linger is not. */
    if (parent != 1) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(EXIT_KILLED_BY + SIGKILL);
    }
    give_back_signals(inherited);
    _exit(execute(command));
}

static int exit_code(int status)
{
    return WIFSIGNALED(status) ? EXIT_KILLED_BY + WTERMSIG(status) : WEXITSTATUS(status);
}

static void linger(const struct run *run)
{
    siginfo_t info;
    int signal, ignored;
    nanoseconds until = monotonic_now() + run->sleep;

    if (until < run->started + run->min_lifetime)
        until = run->started + run->min_lifetime;
    while ((signal = next_signal(&info, &until)) != 0) {
        if (BIT(signal) & terminating)
            return;
        if (signal == SIGCHLD)
            reap(0, &ignored);
    }
}

int run(const struct run *run)
{
    struct inherited inherited;
    siginfo_t info;
    int status;
    bool terminated = false;

    take_over_signals(&inherited);
    pid_t linger_pid = getpid();
    pid_t command = fork();
    if (command < 0) {
        /* A limit on processes, most likely. The work matters more than the delay after it. */
        COMPLAIN("cannot fork: ", strerror(errno), "; running the command without a delay");
        give_back_signals(&inherited);
        return execute(run->command);
    }
    if (command == 0)
        become_command(run->command, &inherited, linger_pid);

    for (;;) {
        int signal = next_signal(&info, NULL);
        if (signal == SIGCHLD) {
            if (reap(command, &status))
                break;
            continue;
        }
        if (BIT(signal) & terminating)
            terminated = true;
        forward(command, signal, &info);
    }
    if (!terminated)
        linger(run);
    return exit_code(status);
}
