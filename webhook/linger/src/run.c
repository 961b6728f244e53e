/*
 * Runs the command as a child process and forwards signals to it.
 *
 * linger is PID 1 of its container, which has three consequences:
 *
 * - The kernel drops a signal that PID 1 has no handler for, unless the signal is blocked. So
 *   linger blocks all signals and receives them one by one in a loop. Without handlers there are no
 *   races: a signal that arrives between two calls stays pending.
 * - libc reserves three real-time signals, and its sigset_t functions omit them. The command may use
 *   another libc that reserves other signals. So this file uses the kernel's sets of 64 bits.
 * - The command is not PID 1. A signal that it does not handle terminates it.
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

typedef uint64_t signal_set; /* the kernel's type on 64-bit Linux */

#define BIT(signal) (UINT64_C(1) << ((signal)-1))

/* Signals that the processor raises for a faulty instruction. They stay unblocked: if they were
 * blocked, the kernel would kill the process without a core dump. */
static const signal_set synchronous_signals = BIT(SIGSEGV) | BIT(SIGBUS) | BIT(SIGFPE) |
                                              BIT(SIGILL) | BIT(SIGTRAP) | BIT(SIGSYS);

/* Signals that ask a container to terminate. */
static const signal_set termination_signals = BIT(SIGTERM) | BIT(SIGINT) | BIT(SIGQUIT) |
                                              BIT(SIGHUP);

/* Signals that a terminal sends to every process of the foreground process group. The command
 * receives them without linger's help. */
static const signal_set sent_by_terminal = BIT(SIGINT) | BIT(SIGQUIT) | BIT(SIGTSTP) |
                                           BIT(SIGTTIN) | BIT(SIGTTOU) | BIT(SIGWINCH);
/* Signals that stop a process by default, and with which a terminal or a shell stops a job. */
static const signal_set stop_signals = BIT(SIGTSTP) | BIT(SIGTTIN) | BIT(SIGTTOU);

/* The signal settings at linger's start. The command gets the same settings. */
struct inherited_signals {
    signal_set mask;
    struct sigaction on_child;
};

static void change_mask(int how, signal_set set, signal_set *before)
{
    syscall(SYS_rt_sigprocmask, how, &set, before, sizeof set);
}

static void block_signals(struct inherited_signals *inherited)
{
    /* execve() keeps an ignored SIGCHLD, and while it is ignored the kernel discards exit codes. */
    const struct sigaction default_action = {.sa_handler = SIG_DFL};

    sigaction(SIGCHLD, &default_action, &inherited->on_child);
    change_mask(SIG_SETMASK, ~synchronous_signals, &inherited->mask);
}

static void restore_signals(const struct inherited_signals *inherited)
{
    sigaction(SIGCHLD, &inherited->on_child, NULL);
    change_mask(SIG_SETMASK, inherited->mask, NULL);
}

/* Waits for a signal. Returns its number, or 0 when the time `until` has passed. */
static int next_signal(siginfo_t *info, const nanoseconds *until)
{
    const signal_set awaited = ~synchronous_signals;

    for (;;) {
        struct timespec remaining = {0};
        if (until) {
            nanoseconds left = *until - monotonic_now();
            if (left <= 0)
                return 0;
            remaining.tv_sec = left / NANOSECONDS_PER_SECOND;
            remaining.tv_nsec = left % NANOSECONDS_PER_SECOND;
        }
        long signal =
            syscall(SYS_rt_sigtimedwait, &awaited, info, until ? &remaining : NULL, sizeof awaited);
        if (signal > 0)
            return (int)signal;
        /* EAGAIN: the time has passed. EINTR: a debugger or a freezer interrupted the call. */
    }
}

/* Returns whether linger may wait for its command. A seccomp profile that was recorded without
 * linger can deny the calls that do so. linger would then wait without an end. */
static bool may_wait(void)
{
    const struct timespec zero = {0};
    const signal_set none = 0;

    if (syscall(SYS_rt_sigtimedwait, &none, NULL, &zero, sizeof none) < 0 && errno != EAGAIN &&
        errno != EINTR)
        return false;
    return waitpid(-1, NULL, WNOHANG) >= 0 || errno == ECHILD;
}

/* The changes of the command's state since the last call. */
struct change {
    bool ended;
    int status;      /* from waitpid(), if the command has ended */
    int stop_signal; /* the signal that stopped the command, or 0 */
};

/* Reaps all child processes that have ended, and returns what has changed for the command. */
static struct change reap(pid_t command)
{
    struct change change = {0};
    int status;
    pid_t pid;

    /* A loop, because SIGCHLD is pending only once even if several children have ended. */
    while ((pid = waitpid(-1, &status, WNOHANG | WUNTRACED)) > 0) {
        if (pid != command)
            continue;
        if (WIFSTOPPED(status)) {
            change.stop_signal = WSTOPSIG(status);
        } else {
            change.ended = true;
            change.status = status;
        }
    }
    return change;
}

/*
 * Returns whether linger has a controlling terminal. If it has one, the command stays in linger's
 * process group, and job control works as without linger: the terminal sends Ctrl-C to both
 * processes, and a background job stays in the background. In a process group of its own, Ctrl-Z
 * could stop the command, and no shell would continue it.
 */
static bool has_controlling_terminal(void)
{
    int group;

    for (int fd = 0; fd <= 2; fd++)
        if (ioctl(fd, TIOCGPGRP, &group) == 0)
            return true;
    return false;
}

/*
 * Stops linger after its command has stopped, so that a shell notices it and continues both. Stopping
 * at once at the terminal's signal would be too early: the shell takes the terminal back while the
 * command may still read from it, and the command takes the shell's next line. The kernel drops the
 * signal if no shell could continue linger: if linger is PID 1 or its process group is orphaned.
 */
static void stop_like(pid_t command, int signal)
{
    /* If the process groups differ, the SIGCONT of a shell reaches only one of the two. */
    if (!(BIT(signal) & stop_signals) || getpgid(command) != getpgrp())
        return;
    kill(getpid(), signal);
    change_mask(SIG_UNBLOCK, BIT(signal), NULL);
    change_mask(SIG_BLOCK, BIT(signal), NULL);
}

/* Sends a signal to the command, unless a terminal has sent it to both processes. */
static void forward(pid_t command, int signal, const siginfo_t *info)
{
    if (info->si_code == SI_KERNEL && BIT(signal) & sent_by_terminal)
        return;
    /* The process id is still the command's, because the command has not been reaped. A value from
     * sigqueue() is not forwarded. */
    kill(command, signal);
}

/* Replaces the process by the command. Returns only if execvp() fails, with the exit code for
 * linger. */
static int execute(char **command)
{
    execvp(command[0], command);

    const char *reason = strerror(errno);
    int code = errno == ENOENT || errno == ENOTDIR ? EXIT_NOT_FOUND : EXIT_NOT_EXECUTABLE;
    if (errno == ENOENT && strchr(command[0], '/') && access(command[0], F_OK) == 0)
        reason = "its interpreter or loader was not found";
    LOG("cannot run ", command[0], ": ", reason);
    return code;
}

static void execute_in_child(char **command, const struct inherited_signals *inherited,
                             pid_t parent)
{
    /* Without a terminal, the command leads its own process group, as it would as PID 1. Some
     * scripts end with `kill 0`. In linger's group, that would signal linger and end its delay. */
    if (!has_controlling_terminal())
        setpgid(0, 0);
    /* linger cannot forward SIGKILL. If linger is PID 1, the kernel kills the command together with
     * it. In a pod with a shared process namespace, linger is not PID 1. */
    if (parent != 1) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(EXIT_KILLED_BY + SIGKILL);
    }
    restore_signals(inherited);
    _exit(execute(command));
}

static int exit_code(int status)
{
    return WIFSIGNALED(status) ? EXIT_KILLED_BY + WTERMSIG(status) : WEXITSTATUS(status);
}

/* Waits until both delays have passed, or until a termination signal arrives. */
static void wait_after_command(const struct run *run)
{
    siginfo_t info;
    int signal;
    nanoseconds until = monotonic_now() + run->sleep;

    if (until < run->started + run->min_lifetime)
        until = run->started + run->min_lifetime;
    while ((signal = next_signal(&info, &until)) != 0) {
        if (BIT(signal) & termination_signals)
            return;
        if (signal == SIGCHLD)
            reap(0);
    }
}

int run(const struct run *run)
{
    struct inherited_signals inherited;
    siginfo_t info;
    struct change change;
    bool terminated = false;

    if (run->limits.soft) {
        limit_open_files(&run->limits);
        if (!run->sleep && !run->min_lifetime)
            return execute(run->command);
    }
    block_signals(&inherited);
    pid_t linger_pid = getpid();
    bool waits = may_wait();
    pid_t command = waits ? fork() : -1;
    if (command < 0) {
        /* The likely cause is a limit on processes. Running the command matters more than a delay. */
        LOG(waits ? "cannot fork: " : "cannot wait: ", strerror(errno),
            "; running the command without delays");
        restore_signals(&inherited);
        return execute(run->command);
    }
    if (command == 0)
        execute_in_child(run->command, &inherited, linger_pid);

    for (;;) {
        int signal = next_signal(&info, NULL);
        if (signal == SIGCHLD) {
            change = reap(command);
            if (change.ended)
                break;
            if (change.stop_signal)
                stop_like(command, change.stop_signal);
            continue;
        }
        if (BIT(signal) & termination_signals)
            terminated = true;
        forward(command, signal, &info);
    }
    if (!terminated)
        wait_after_command(run);
    return exit_code(change.status);
}
