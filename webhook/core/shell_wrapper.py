"""A wrapper in POSIX shell for containers whose command is a shell already.

It does what linger, the static helper, does, and needs nothing in the image but that shell, so it
costs the pod no extra image, volume or container. Where the two differ:

- dash and BusyBox start every background command with SIGINT and SIGQUIT ignored, and nothing that
  the script does can undo it (`trap` in the subshell has no effect, `set -m` demands a terminal).
  So both are passed on as SIGTERM, in bash too, and if the command dies of it the exit code is 130
  or 131, as if the signal itself had arrived.
- SIGHUP, SIGTERM, SIGUSR1 and SIGUSR2 are forwarded, other signals are not. One that arrives before
  the shell has set its traps is lost, as it would be without the wrapper.
- bash keeps a signal to itself that arrives in the instant in which it begins to wait. It is passed
  on with the next one; if none comes, the command never hears of it. It was seen once in several
  thousand signals that each came on the heels of another (bash 5.2), in dash and BusyBox never.
- The command's standard input is /dev/null, which is right only for containers without `stdin` and
  `tty`: wrap no others.
- The shell's own standard error is /dev/null, because each of these shells would report there that
  the command was killed. It matters only to those who write to /proc/1/fd/2 instead of their own.
- A `sleep` that knows no fractions sleeps for a whole second; without `sleep` there is no delay.
"""

from __future__ import annotations

from collections.abc import Sequence

_MARKER = ": podsettle;"

# What the lines must get right:
#
# - The kubelet expands `$(NAME)` and halves `$$` in a command: neither may occur, so no arithmetic
#   and no command substitution. Clocks are out of reach; the minimum lifetime is a `sleep` in the
#   background that is waited for at the end.
# - The subshell is forked before any variable is assigned, since a variable of the same name may be
#   exported. Its `exec` makes $! the command itself, and skips functions and builtins.
# - `wait` returns early, with 128 plus a number, when a trap has run, which looks just like a
#   command that died of that signal. So it is called until `kill -0` fails: a command that was not
#   reaped yet is there, if only as a zombie. bash reaps outside of `wait` too, and lets a signal
#   that came after one `wait` interrupt the next; hence two more: the first uses up what is left of
#   an interruption, the second tells the truth.
# - Asking again needs a shell that remembers. dash and BusyBox do, and bash does, except in POSIX
#   mode, which the name `sh` puts it in. Another shell answers 127. Then the first answer stands,
#   unless a signal may have falsified it.
# - bash 5.2 loses what it reaps in the very moment of a signal: asked again it answers -1, or waits
#   until PID 1 has no children left, orphans included. For the command nothing better than the
#   first answer is left, 128 plus the signal; what has lost its timer must not wait for it.
# - `trap 'exit $r'` is set before `s` is looked at: a signal that comes between the two still ends
#   the script. USR1 and USR2 are ignored then, or they would cut the sleep short.
# - Up to `exec 2>/dev/null` it is one line: between lines, bash reports what was killed.
SCRIPT = (
    _MARKER
    + r"""(shift 2;exec "$@")&c=$! s=;exec 2>/dev/null
f(){ s=$1;kill -$2 $c;}
trap 'f 143 1' 1
trap 'f 130 15' 2
trap 'f 131 15' 3
trap 'f "$s" 10' 10
trap 'f "$s" 12' 12
trap 'f 143 15' 15
z(){ sleep $1||sleep 1;}
z $1 >&2&t=$!
shopt -uo posix
while wait $c;r=$?;kill -0 $c;do :;done
trap '' 10 12
trap 'exit $r' 1 2 3 15
wait $c
wait $c;q=$?
case $q$s in 127|-*);;*)r=$q;esac
[ $s ]&&{ [ $r = 143 ]&&r=$s;exit $r;}
z $2 >&2&kill -0 $t&&wait $t
wait $!;exit $r"""
)
"""The script: `$1` is the minimum lifetime, `$2` the sleep, both in seconds; then the command."""

_NAME = "podsettle"
_NAMES = ("sh", "ash", "dash", "bash")
_DIRECTORIES = ("", "/bin/", "/usr/bin/", "/usr/local/bin/", "/busybox/")
SHELLS = frozenset(directory + shell for directory in _DIRECTORIES for shell in _NAMES)
"""What a command may start with for the script to be known to work."""


def is_shell(argv0: str) -> bool:
    """Whether the first string of a command is a shell that the script is known to work in."""
    return argv0 in SHELLS


def wrapper(shell: str, *, sleep_ms: int, min_lifetime_ms: int) -> list[str]:
    """What to put in front of a `command` that starts with `shell`; its `args` stay as they are.

    Takes one of SHELLS and two durations in milliseconds: how long to stay at least once the
    command has ended, and how long to stay in all. The longer one counts.

    Raises ValueError for another shell, and for a negative duration.
    """
    if not is_shell(shell):
        raise ValueError(f"not a known shell: {shell!r}")
    return [shell, "-c", SCRIPT, _NAME, _seconds(min_lifetime_ms), _seconds(sleep_ms)]


def is_wrapped(command: Sequence[str]) -> bool:
    """Whether there is a wrapper in front: this version's or another, with whatever durations."""
    return (
        len(command) > 3
        and is_shell(command[0])
        and command[1] == "-c"
        and command[2].startswith(_MARKER)
        and command[3] == _NAME
    )


def _seconds(milliseconds: int) -> str:
    """Seconds for `sleep`: 500 gives `0.5`, and 2000 gives `2`, which every `sleep` understands."""
    if milliseconds < 0:
        raise ValueError(f"a duration cannot be negative: {milliseconds} ms")
    whole, rest = divmod(milliseconds, 1000)
    return f"{whole}.{rest:03d}".rstrip("0") if rest else str(whole)
