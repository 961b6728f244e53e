"""Wrapper scripts in POSIX shell, for containers whose command starts with a shell.

SCRIPT delays the exit of a container. EXEC_SCRIPT replaces itself by the command. In front of
either, `with_limits` sets limits on open files, which the command inherits.

SCRIPT delays the exit of its container as the helper does, the static program linger. It needs
only the image's shell, so the pod gets no additional image, volume or container. The script differs
from the helper in some points, which `docs/exit-255.md` lists in a table. These are the
reasons:

- dash and BusyBox start every background command with SIGINT and SIGQUIT ignored. A `trap` in the
  subshell does not change that. `set -m` would, but needs a terminal there. A command with its own
  handler gets the signal. Any other command gets SIGTERM instead. If SIGTERM ends it, the exit code
  is 130 or 131, as if SIGINT or SIGQUIT had ended it. In bash `set -m` works without a terminal:
  the command starts with both signals unchanged, and leads a process group.
- In dash and BusyBox, what other processes write to /proc/1/fd/2 is lost. The script redirects it
  to /dev/null, because these shells report there that the command was killed.
- Signals that are not in the script's list are not passed on. A signal that arrives before the
  shell has set its traps is lost, as it would be without the wrapper.
- bash delays a signal that arrives in the instant in which it begins to wait. It passes the signal
  on with the next one, or never if there is no next one. This was seen once in several thousand
  signals in quick succession (bash 5.2), and never in dash or BusyBox.
- dash and BusyBox connect the command's standard input to /dev/null. That is right only for
  containers without `stdin` and `tty`, so other containers must not be wrapped.
- A `sleep` without support for fractions sleeps for whole seconds. Without `sleep` there is no
  delay.
"""

from __future__ import annotations

from collections.abc import Sequence

from webhook import __version__
from webhook.core.constants import SCRIPT_MARKER, SCRIPT_NAME

# Constraints on the script:
#
# - The kubelet expands `$(NAME)` and turns `$$` into `$` in a command. Neither may occur, so the
#   script has no arithmetic and no command substitution.
# - The script cannot read a clock, so the delays are `sleep` commands. One of (minimum lifetime -
#   sleep) runs beside the command. After both have ended, one of `sleep` runs. The total is
#   max(minimum lifetime, command + sleep).
# - The subshell is forked before any variable is assigned, because the environment may have a
#   variable of the same name. `exec` in the subshell makes $! the command itself, and skips
#   functions and builtins.
# - A killed command causes no output, and process 1 keeps its standard error if possible, because
#   other processes may write to /proc/1/fd/2. Only bash has `shopt`. It reports no signal for which
#   it has a trap, not even SIGKILL, for which no trap ever runs. dash and BusyBox report the death
#   of a job in a `wait` that names it. They do not report it in a `wait` for all jobs. But such a
#   `wait` also waits for orphans in BusyBox 1.35 and in dash of 2020 (before its commit 6359d7a),
#   and orphans may never end. So the output of dash, BusyBox and any other shell goes to /dev/null.
# - `wait` returns early, with 128 plus the signal, when a trap has run. A command that died of that
#   signal gives the same result. So the script calls `wait` until `kill -0` fails, which succeeds
#   for a command that was not reaped, even for a zombie. bash also reaps outside of `wait`, and a
#   signal after one `wait` interrupts the next. So two more calls follow: the first may be
#   interrupted, the second gives the exit code.
# - A second `wait` works only if the shell remembers the exit code. dash and BusyBox do. bash does
#   except in POSIX mode, which it enters under the name `sh`. Leaving that mode also removes
#   POSIXLY_CORRECT from the environment, so bash leaves it after the fork. Other shells return 127.
#   Then the first result counts.
# - bash loses the exit code of a process that it reaps in the moment of a signal. In bash 5.3, a
#   second `wait` then returns 127. In bash 5.2 it returns -1, or waits until PID 1 has no children
#   left, orphans included. For the command the first result counts then, 128 plus the signal. A
#   lost timer is not waited for.
# - `trap 'exit $code'` is set before `ending` is read, so that a signal between the two ends the
#   script. The other signals are ignored from then on: they would cut the sleep short.
# - The last hexadecimal digit of SigIgn holds the signals 1 to 4. If it cannot be read, as without
#   `grep`, the command gets TERM. The builtin `read` of BusyBox 1.38 never returns after a signal.
COMMENTED_SCRIPT = (
    f"{SCRIPT_MARKER} # {__version__} runs the command, $1+$2 s at least, $2 s after it: "
    r"""podsettle explain wrapper
# $1 and $2 are times in seconds. The command follows them.
{
# Pass a signal on to the command.
pass(){ kill -$1 $pid;} 2>/dev/null
# Pass a signal on that ends the container, and keep its exit code: 128 + the number.
end(){ ending=${2-143};pass $1;}
# dash and BusyBox make it ignore INT. Without a handler, it gets TERM.
interrupt(){
if grep -q "SigIgn.*$3\$" /proc/$pid/status;then end $1;else end TERM $2;fi;} 2>/dev/null
# dash and BusyBox would report that the command was killed.
started(){ exec 2>/dev/null;}
# bash: with job control, the command starts with both signals unchanged.
if shopt -q 2>/dev/null
then started(){ set +m;shopt -uo posix;}
set -m;trap : 4 5 6 7 8 9 11 13 16 24 25 26 27 29 31
interrupt(){ end $1;}
fi
# Start the command, without these times.
(shift 2;exec "$@")&pid=$! ending=;started
# Signals that end the container.
trap "end HUP" HUP;trap "end TERM" TERM
trap "interrupt INT 130 '[014589cd]'" INT
trap "interrupt QUIT 131 '[012389ab]'" QUIT
# Signals that do not end the container.
others='ALRM CONT PWR TSTP TTIN TTOU USR1 USR2 WINCH'
for s in $others;do trap "pass $s" $s;done
# A sleep without support for fractions sleeps for a second.
nap(){ sleep $1||sleep 1;} >/dev/null 2>&1
# The rest of the minimum lifetime runs beside the command.
nap $1&timer=$!
# A signal ends a wait early, so wait until the command has ended.
while wait $pid;code=$?;kill -0 $pid 2>/dev/null;do :;done
# From here on, signals no longer cut the sleep short, or end it with the exit code.
trap '' $others
trap 'exit $code' HUP INT QUIT TERM
# bash reaps outside of wait too. The second call has the exit code.
{ wait $pid;wait $pid;} 2>/dev/null;last=$?
# 127: the shell does not remember it. Then the first one counts.
case $last in 127|-*);;*)code=$last;esac
# A signal ends the container at once, and 143 becomes the code of that signal.
[ $ending ]&&{ [ $code = 143 ]&&code=$ending;exit $code;}
# Wait for the minimum lifetime, and then for the time of sleep.
kill -0 $timer 2>/dev/null&&wait $timer
nap $2&wait $!;exit $code
}"""
)
"""The wrapper script as a person reads it: with comments, each a line that begins with `# `."""
SCRIPT = "\n".join(line for line in COMMENTED_SCRIPT.split("\n") if not line.startswith("# "))
"""The wrapper script. Its arguments are two durations in seconds and the command. The first
duration is (minimum lifetime - sleep), or 0 if that is negative. The second one is sleep."""

EXEC_SCRIPT = f'{SCRIPT_MARKER}\nshift 2;exec "$@"'
"""The script without a delay. Process 1 becomes the command, so that nothing differs from a
container without the script. It has the arguments of SCRIPT, and ignores the durations."""

# A `ulimit` never raises the soft limit above the hard limit, not even as root. Then the soft limit
# becomes the hard limit. As root, it may raise the hard limit, so that is compared before. The hard
# limit must not fall below the soft limit, so the soft limit comes first.
_LIMITS = " { ulimit -Sn %d||ulimit -Sn `ulimit -Hn`;%s:;} 2>/dev/null"
_HARD_LIMIT = "[ `ulimit -Hn` -gt %d ]&&ulimit -Hn %d;"
_LIMITS_MARKER = f"{SCRIPT_MARKER} {{ ulimit "
"""The first characters of a script with limits, in every version that has them."""

WRAPPER_LENGTH = 6
"""The number of strings of a wrapper, in every version of podsettle."""
_BASH = "bash"
_SHELL_NAMES = ("sh", "ash", "dash", _BASH)
_SHELL_DIRECTORIES = ("", "/bin/", "/usr/bin/", "/usr/local/bin/", "/busybox/")
SHELLS = frozenset(directory + shell for directory in _SHELL_DIRECTORIES for shell in _SHELL_NAMES)
"""The first strings of a command that mean a shell in which the script is tested."""


def is_shell_that_ignores_interrupts(command: Sequence[str]) -> bool:
    """Return whether a command's traps of INT and QUIT have no effect behind the script.

    In bash they work. Under the name `sh`, any shell may be.
    """
    return bool(command) and command[0] in SHELLS and not command[0].endswith(_BASH)


def wrapper(shell: str, *, sleep_ms: int, min_lifetime_ms: int) -> list[str]:
    """Return the strings to put before a `command` that starts with `shell`.

    `shell` is one of SHELLS. `sleep_ms` is the minimum time that the wrapper stays after the
    command has ended. `min_lifetime_ms` is the minimum time between the start and the exit of
    the wrapper. Both apply. So the script gets the difference, which is the time that must pass
    before the last sleep begins.
    """
    before_sleep_ms = max(min_lifetime_ms - sleep_ms, 0)
    return [
        shell,
        "-c",
        SCRIPT,
        SCRIPT_NAME,
        _sleep_argument(before_sleep_ms),
        _sleep_argument(sleep_ms),
    ]


def exec_wrapper(shell: str) -> list[str]:
    """Return the strings to put before a `command` that starts with `shell`, without a delay."""
    return [shell, "-c", EXEC_SCRIPT, SCRIPT_NAME, "0", "0"]


def with_limits(strings: Sequence[str], soft: int, hard: int | None) -> list[str]:
    """Return the result of `wrapper` or `exec_wrapper` with limits on open files in the script.

    `soft` is the soft limit, or the container's hard limit if that is lower. A hard limit above
    `hard` becomes `hard`. None leaves it.
    """
    limits = _LIMITS % (soft, "" if hard is None else _HARD_LIMIT % (hard, hard))
    shell, option, script, *rest = strings
    return [shell, option, f"{SCRIPT_MARKER}{limits}{script.removeprefix(SCRIPT_MARKER)}", *rest]


def sets_limits(command: Sequence[str]) -> bool:
    """Return whether the wrapper with which a command begins sets limits on open files."""
    return command[2].startswith(_LIMITS_MARKER)


def limits(command: Sequence[str]) -> str:
    """Return the part of the script that sets limits, if `sets_limits` is true of the command."""
    return command[2].partition("2>/dev/null")[0]


def has_no_delay(command: Sequence[str]) -> bool:
    """Return whether the wrapper with which a command begins only executes the command."""
    return command[2].endswith(EXEC_SCRIPT.removeprefix(SCRIPT_MARKER))


def is_wrapped(command: Sequence[str]) -> bool:
    """Return whether a command begins with the wrapper of any version, with any durations."""
    return (
        len(command) > 3
        and command[0] in SHELLS
        and command[1] == "-c"
        and command[2].startswith(SCRIPT_MARKER)
        and command[3] == SCRIPT_NAME
    )


def durations(command: Sequence[str]) -> tuple[str, ...]:
    """Return the arguments of the wrapper with which a command begins."""
    return tuple(command[WRAPPER_LENGTH - 2 : WRAPPER_LENGTH])


def _sleep_argument(milliseconds: int) -> str:
    """Return a duration as an argument for `sleep`, such as `0.5` for 500.

    Whole seconds have no fraction, because some implementations support only whole seconds.
    """
    whole, rest = divmod(milliseconds, 1000)
    return f"{whole}.{rest:03d}".rstrip("0") if rest else str(whole)
