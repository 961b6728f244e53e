"""linger and the shell wrapper as PID 1 of real containers with a read-only root."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from tests.support.runc import (
    Container,
    Machine,
    make_rootfs,
)
from tests.support.waiting import await_that
from tests.support.wrappers import Wrapper
from webhook.core.remedies import shell_wrapper
from webhook.linger.build import TARGETS, compile_c, host_arch

TERMINATING = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP)
# Longer than any test: a test that waits for the end of this delay fails.
AN_HOUR_MS = 3_600_000
NOT_FORWARDED = {
    *(signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD),
    *(signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP, signal.SIGSYS),
    *(32, 33),  # reserved by glibc, which these shells use
}


def test_orphans_do_not_keep_the_container_alive(machine: Machine, wrapper: Wrapper) -> None:
    """Process 1 becomes the parent of orphans, which may be servers that never end."""
    script = "(sleep 3600 &); (sleep 3600 &); sleep 0.5; exit 7"
    for min_lifetime_ms in (0, 20, 1000):
        command = wrapper.script(script, min_lifetime_ms=min_lifetime_ms)
        assert machine.run(command) == (7, "", "")


@pytest.mark.parametrize(
    ("command", "code", "out", "err"),
    [
        ("echo out; echo err >&2", 0, "out\n", "err\n"),
        ("exit 255", 255, "", ""),
        ("kill -9 $$", 137, "", ""),
        ("kill -11 $$", 139, "", ""),
        ("kill -15 $$", 143, "", ""),
        (["/bin/missing", "x"], 127, "", "/bin/missing"),
        (["/tmp"], 126, "", "/tmp"),
    ],
)
@pytest.mark.parametrize("delay", ["sleep_ms", "min_lifetime_ms"])
def test_container_ends_after_its_delay_with_the_exit_code_and_the_output_of_its_command(
    machine: Machine,
    wrapper: Wrapper,
    delay: str,
    command: str | list[str],
    code: int,
    out: str,
    err: str,
) -> None:
    started = time.monotonic()
    if isinstance(command, str):
        command = [wrapper.shell, "-c", command]
    found = machine.run(wrapper.around(command, **{delay: 600}))
    assert time.monotonic() - started >= 0.6
    assert found[:2] == (code, out)
    assert err in found[2]
    assert bool(found[2]) is bool(err)


def test_airflows_xcom_sidecar_ends_without_an_error_unless_its_shell_ignores_interrupts(
    machine: Machine, wrapper: Wrapper
) -> None:
    """Airflow ends the sidecar by SIGINT. Where the trap has no effect, podsettle takes linger."""
    script = 'trap "exit 0" INT; echo ready; while true; do sleep 1; done;'
    with machine.start(wrapper.script(script)) as container:
        container.await_ready()
        container.signal(signal.SIGINT)
        is_ignored = shell_wrapper.is_shell_that_ignores_interrupts([wrapper.shell])
        works = wrapper.name == "linger" or not is_ignored
        assert container.finish() == (0 if works else 130, "", "")


FORWARDED_BY_BOTH = [
    *(signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM),
    *(signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM, signal.SIGCONT, signal.SIGWINCH),
    *(signal.SIGPWR, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU),
]


@pytest.fixture(scope="module")
def with_handler(
    machine: Machine, linger: Path, tmp_path_factory: pytest.TempPathFactory
) -> Machine:
    """A machine with a program that handles a signal, also if it is ignored at the start."""
    rootfs = make_rootfs(tmp_path_factory.mktemp("rootfs"), linger)
    flags = ("-std=gnu11", "-static", "-Os")
    source = Path(__file__).with_name("handler.c")
    compile_c([source], rootfs / "handler", target=TARGETS[host_arch()], flags=flags)
    return Machine(rootfs, machine.scratch)


@pytest.mark.parametrize("number", FORWARDED_BY_BOTH)
def test_command_with_a_handler_receives_the_same_signal(
    with_handler: Machine, wrapper: Wrapper, number: signal.Signals
) -> None:
    command = wrapper.around(["/handler", str(int(number))])
    with with_handler.start(command) as container:
        container.await_ready()
        container.signal(number)
        assert container.finish() == (40 + number, "", "")


def test_output_to_the_standard_error_of_process_1_is_kept(
    machine: Machine, wrapper: Wrapper
) -> None:
    """dash and BusyBox discard this output, because they also write their own message there."""
    discarded = wrapper.name in ("ash", "dash")
    # The command runs before the wrapper has redirected its own standard error.
    begin = "until [ /proc/1/fd/2 -ef /dev/null ]; do :; done; " if discarded else ""
    script = f"{begin}echo one > /proc/1/fd/2; sleep 1; echo two > /proc/1/fd/2; kill -9 $$"
    command = wrapper.script(script, min_lifetime_ms=500)
    heard = "" if discarded else "one\ntwo\n"
    assert machine.run(command) == (137, "", heard)


@pytest.mark.parametrize("wrapper", ["ash", "dash"], indirect=True)
def test_stop_signals_have_no_effect_on_the_command_in_dash_and_busybox(
    machine: Machine, wrapper: Wrapper
) -> None:
    """The command is in the orphaned group of process 1: the kernel drops TSTP, TTIN and TTOU."""
    script = "trap 'exit 9' TERM; echo ready; while :; do sleep 1000 & wait; done"
    with machine.start(wrapper.script(script)) as container:
        container.await_ready()
        for number in (signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU):
            container.signal(number)
        container.signal(signal.SIGTERM)
        assert container.finish() == (9, "", "")


@pytest.mark.parametrize("wrapper", ["linger", "bash"], indirect=True)
def test_stopped_command_continues_after_sigcont(machine: Machine, wrapper: Wrapper) -> None:
    """The command leads its own group and has no handler, so it stops. Process 1 would not."""
    script = "trap 'exit 9' TERM; echo ready; while :; do sleep 1000 & wait; done"
    with machine.start(wrapper.script(script)) as container:
        container.await_ready()
        container.signal(signal.SIGTSTP)
        await_that(lambda: _states(container) == {"T"}, "the command stopped")
        # It runs for a moment, because the kernel has told it that the command stopped.
        await_that(lambda: container.status("State")[0] == "S", "process 1 waits")
        container.signal(signal.SIGCONT)
        await_that(lambda: _states(container) == {"S"}, "the command goes on")
        container.signal(signal.SIGTERM)
        assert container.finish() == (9, "", "")


def _states(container: Container) -> set[str]:
    """Return the states of the command's processes, without the timers of the shell wrapper."""
    return {child[0] for child in container.children().values() if "the-command" in child}


def test_linger_forwards_every_signal_that_can_be_forwarded(machine: Machine) -> None:
    numbers = [n for n in range(1, 65) if n not in NOT_FORWARDED]
    script = (
        f'for n in {" ".join(map(str, numbers))}; do trap "echo got $n" $n; done; echo ready;'
        "while :; do sleep 1000 & wait; done"
    )
    with machine.start(Wrapper("linger").script(script)) as container:
        assert container.read_line() == "ready"
        for number in numbers:
            container.signal(number)
            line = container.read_line()
            while line == f"got {signal.SIGURG}" and number != signal.SIGURG:
                # Go's scheduler uses this signal, and `runc run` forwards it.
                line = container.read_line()
            assert line == f"got {number}"


@pytest.mark.parametrize("number", TERMINATING)
def test_termination_signal_ends_the_delay_immediately(
    machine: Machine, wrapper: Wrapper, number: signal.Signals
) -> None:
    command = wrapper.script("echo ready; exit 7", sleep_ms=AN_HOUR_MS, min_lifetime_ms=AN_HOUR_MS)
    with machine.start(command) as container:
        container.await_ready()
        container.await_end_of_command()
        container.signal(number)
        assert container.finish() == (7, "", "")


def test_other_signals_do_not_shorten_the_delay(machine: Machine, wrapper: Wrapper) -> None:
    started = time.monotonic()
    with machine.start(wrapper.script("echo ready; exit 7", min_lifetime_ms=4_000)) as container:
        container.await_ready()
        container.await_end_of_command()
        container.signal(signal.SIGUSR1)
        assert container.finish() == (7, "", "")
    assert time.monotonic() - started >= 4


def test_termination_signal_during_the_command_prevents_the_delay(
    machine: Machine, wrapper: Wrapper
) -> None:
    script = "trap 'exit 9' TERM; echo ready; while :; do sleep 1000 & wait; done"
    with machine.start(wrapper.script(script, sleep_ms=AN_HOUR_MS)) as container:
        container.await_ready()
        container.signal(signal.SIGTERM)
        assert container.finish() == (9, "", "")


def test_orphans_are_reaped_while_the_command_runs(machine: Machine, wrapper: Wrapper) -> None:
    script = (
        "for n in 1 2 3 4 5 6 7 8 9 10; do (sh -c 'echo gone' &); done;"
        "while :; do sleep 1000 & wait; done"
    )
    with machine.start(wrapper.script(script)) as container:
        assert [container.read_line() for _ in range(10)] == ["gone"] * 10
        await_that(
            lambda: all("the-command" in child for child in container.children().values()),
            "all orphans were reaped",
        )
        assert any("the-command" in child for child in container.children().values())


def test_linger_reaps_orphans_during_the_delay(machine: Machine) -> None:
    orphan = "(while [ ! -e /tmp/go ]; do usleep 1000; done) &"
    command = Wrapper("linger").script(f"({orphan}); exit 3", sleep_ms=AN_HOUR_MS)
    with machine.start(command) as container:
        await_that(
            lambda: [c[0] for c in container.children().values()] in (["S"], ["R"]),
            "only the orphan was left",
        )
        Path(f"/proc/{container.pid}/root/tmp/go").touch()
        await_that(lambda: not container.children(), "the orphan was reaped")
        container.signal(signal.SIGTERM)
        assert container.finish() == (3, "", "")


def test_wrapped_command_runs_as_a_user_without_passwd_entry(
    machine: Machine, wrapper: Wrapper
) -> None:
    uid = machine.unprivileged_uid
    assert machine.run(wrapper.script("id -u; exit 5"), uid=uid) == (5, f"{uid}\n", "")


def test_linger_executes_the_command_itself_if_it_cannot_fork(machine: Machine) -> None:
    command = Wrapper("linger").around(["/bin/ash", "-c", "echo ran; exit 5"], sleep_ms=AN_HOUR_MS)
    code, out, err = machine.run(command, uid=machine.unprivileged_uid, rlimits={"RLIMIT_NPROC": 1})
    assert (code, out) == (5, "ran\n")
    assert "cannot fork" in err


@pytest.mark.parametrize("call", ["rt_sigtimedwait", "wait4"])
def test_linger_executes_the_command_itself_if_a_seccomp_profile_denies_waiting(
    machine: Machine, call: str
) -> None:
    """Such a profile was recorded of the command alone. linger would wait without an end."""
    command = Wrapper("linger").around(["/bin/ash", "-c", "echo ran; exit 5"], sleep_ms=AN_HOUR_MS)
    code, out, err = machine.run(command, denied_calls=[call])
    assert (code, out) == (5, "ran\n")
    assert "cannot wait: Operation not permitted; running the command without delays" in err


def test_install_works_for_any_user_on_a_read_only_root(machine: Machine) -> None:
    script = (
        "umask 077; /linger install /shared && /linger install /shared/linger &&"
        " ls /shared && stat -c %a /shared/linger && cmp /linger /shared/linger &&"
        " /shared/linger -- sh -c 'exit 8'"
    )
    command = ["/bin/ash", "-c", script]
    assert machine.run(command, uid=machine.unprivileged_uid) == (8, "linger\n755\n", "")


def test_install_reports_the_file_that_it_cannot_write(machine: Machine) -> None:
    code, out, err = machine.run(["/linger", "install", "/bin"])
    assert (code, out) == (1, "")
    assert "/bin/linger: Read-only file system" in err
