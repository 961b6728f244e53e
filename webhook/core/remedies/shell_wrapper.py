"""A wrapper in POSIX shell for containers whose command is a shell already.

It does what linger, the static helper, does, and needs nothing in the image but that shell, so it
costs the pod no extra image, volume or container. `docs/post-init-sleep.md` has the table of where
the two differ. The reasons:

- dash and BusyBox start every background command with SIGINT and SIGQUIT ignored. A `trap` in the
  subshell does not undo it, and `set -m`, which would, demands a terminal there. A command that has
  set a handler of its own gets the signal all the same. Another one gets SIGTERM instead, and if
  it dies of it the exit code is 130 or 131, as if the signal itself had arrived. In bash `set -m`
  works without a terminal: the command starts with both signals as they were, and leads a process
  group.
- dash and BusyBox lose what other processes write to /proc/1/fd/2: they would report there that the
  command was killed.
- Signals that are not in the script's list are not passed on. One that arrives before the shell has
  set its traps is lost, as it would be without the wrapper.
- bash keeps a signal to itself that arrives in the instant in which it begins to wait. It is passed
  on with the next one; if none comes, the command never hears of it. It was seen once in several
  thousand signals that each came on the heels of another (bash 5.2), in dash and BusyBox never.
- dash and BusyBox make /dev/null the command's standard input, which is right only for containers
  without `stdin` and `tty`: wrap no others.
- A `sleep` that knows no fractions sleeps for whole seconds; without `sleep` there is no delay.
"""

from __future__ import annotations

from collections.abc import Sequence

_MARKER = ": podsettle;"
"""How a wrapper begins, in every version. `:` does nothing in a shell. While an upgrade rolls out,
replicas of two versions settle pods side by side: each must recognise what the other wrapped."""

# What the lines must get right:
#
# - The kubelet expands `$(NAME)` and halves `$$` in a command: neither may occur, so no arithmetic
#   and no command substitution. Clocks are out of reach, so the delays are `sleep` commands: one of
#   (minimum lifetime - sleep) beside the command, and once both are over one of `sleep`. That makes
#   max(minimum lifetime, command + sleep) in all.
# - The subshell is forked before any variable is assigned, since a variable of the same name may be
#   exported. Its `exec` makes $! the command itself, and skips functions and builtins.
# - A command that is killed causes no output, and process 1 keeps its standard error where it can,
#   since others may write to /proc/1/fd/2. bash, which alone has `shopt`, reports no signal that it
#   has a trap for: not even SIGKILL, for which no trap ever runs. dash and BusyBox report the death
#   of the job that a `wait` names, not in a `wait` for all; but that one also waits for orphans in
#   BusyBox 1.35 and in dash of 2020 (before its commit 6359d7a), and they may never end. So what
#   they say goes to /dev/null, as does what any other shell says.
# - `wait` returns early, with 128 plus a number, when a trap has run, which looks just like a
#   command that died of that signal. So it is called until `kill -0` fails: a command that was not
#   reaped yet is there, if only as a zombie. bash reaps outside of `wait` too, and lets a signal
#   that came after one `wait` interrupt the next; hence two more: the first uses up what is left of
#   an interruption, the second gives the exit code.
# - Asking again needs a shell that remembers. dash and BusyBox do, and bash does, except in POSIX
#   mode, which the name `sh` puts it in. To leave that mode also takes POSIXLY_CORRECT out of the
#   environment, so bash leaves it after the fork. Another shell answers 127. Then the first answer
#   stands, unless a signal may have falsified it.
# - bash 5.2 loses what it reaps in the very moment of a signal: asked again it answers -1, or waits
#   until PID 1 has no children left, orphans included. For the command nothing better than the
#   first answer is left, 128 plus the signal; what has lost its timer must not wait for it.
# - `trap 'exit $code'` is set before `ending` is looked at: a signal that comes between the two
#   still ends the script. The others are ignored then, or they would cut the sleep short.
# - The last hexadecimal digit of SigIgn holds the signals 1 to 4. Where it cannot be read, the
#   command gets TERM.
SCRIPT = (
    _MARKER
    + r""" # Runs the command below, passes signals on, ends $2 s after it, not before $1+$2 s.
{
pass(){ kill -$1 $pid;} 2>/dev/null
end(){ ending=${2-143};pass $1;}
interrupt(){
while read key bits;do case $key$bits in SigIgn:$3)end $1;return;;esac;done </proc/$pid/status
end TERM $2;} 2>/dev/null
started(){ exec 2>/dev/null;}
if shopt -q 2>/dev/null
then started(){ set +m;shopt -uo posix;};set -m;trap : 4 5 6 7 8 9 11 13 16 24 25 26 27 29 31
interrupt(){ end $1;}
fi
(shift 2;exec "$@")&pid=$! ending=;started
for s in HUP TERM;do trap "end $s" $s;done
trap "interrupt INT 130 '*[014589cd]'" INT
trap "interrupt QUIT 131 '*[012389ab]'" QUIT
others='ALRM CONT PWR TSTP TTIN TTOU USR1 USR2 WINCH'
for s in $others;do trap "pass $s" $s;done
nap(){ sleep $1||sleep 1;} >/dev/null 2>&1
nap $1&timer=$!
while wait $pid;code=$?;kill -0 $pid 2>/dev/null;do :;done
trap '' $others
trap 'exit $code' HUP INT QUIT TERM
wait $pid 2>/dev/null
wait $pid 2>/dev/null;last=$?
case $last$ending in 127|-*);;*)code=$last;esac
[ $ending ]&&{ [ $code = 143 ]&&code=$ending;exit $code;}
kill -0 $timer 2>/dev/null&&wait $timer
nap $2&wait $!;exit $code
}"""
)
"""The script. Its arguments are two durations in seconds, (minimum lifetime - sleep, or 0) and
sleep, and then the command."""

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
    command has ended, and how long to stay in all. The longer one counts, so the script gets the
    difference: what is to pass before the last sleep may begin.

    Raises ValueError for another shell, and for a negative duration.
    """
    if not is_shell(shell):
        raise ValueError(f"not a known shell: {shell!r}")
    if min_lifetime_ms < 0 or sleep_ms < 0:
        raise ValueError(f"a duration cannot be negative: {min(min_lifetime_ms, sleep_ms)} ms")
    before_sleep_ms = max(min_lifetime_ms - sleep_ms, 0)
    return [shell, "-c", SCRIPT, _NAME, _seconds(before_sleep_ms), _seconds(sleep_ms)]


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
    whole, rest = divmod(milliseconds, 1000)
    return f"{whole}.{rest:03d}".rstrip("0") if rest else str(whole)
