"""Tests of wrapped commands in containers with a terminal."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.support.runc import Container, Machine
from tests.support.waiting import TIMEOUT_SECONDS, await_that
from tests.support.wrappers import Wrapper


@pytest.mark.parametrize("shell", ["ash", "dash", "bash"])
def test_interactive_shell_starts_without_error_messages(machine: Machine, shell: str) -> None:
    command = Wrapper("linger").around([f"/bin/{shell}", "-i"])
    with machine.start(command, terminal=True) as container:
        shown = container.read_until("prompt> ")
        assert "job control" not in shown
        assert "ioctl" not in shown
        container.type("exit 6\n")
        assert container.runc.wait(TIMEOUT_SECONDS) == 6


@pytest.mark.parametrize(
    ("shell", "job"),
    [(["/linger", "--", "/bin/dash", "-i"], "cat"), (["/bin/dash", "-i"], "/linger -- cat")],
    ids=["linger runs the shell", "the shell runs linger"],
)
def test_job_control_works_with_linger_around_or_inside_the_shell(
    machine: Machine, shell: list[str], job: str
) -> None:
    with machine.start(shell, terminal=True) as container:
        assert container.read_until("prompt> ") == "prompt> "
        container.type(f"{job}\n")
        container.read_until(f"{job}\r\n")
        _await_cat(container, "one")
        container.type("\x03")
        container.read_until("prompt> ")
        container.type(f"{job}\n")
        container.read_until(f"{job}\r\n")
        _await_cat(container, "two")
        container.type("\x1a")
        container.read_until("Stopped")
        container.read_until("prompt> ")
        container.type("fg\n")
        container.read_until(f"{job}\r\n")
        _await_cat(container, "three")
        container.type("\x03")
        container.read_until("prompt> ")
        container.type("exit 5\n")
        assert container.runc.wait(TIMEOUT_SECONDS) == 5


def _await_cat(container: Container, line: str) -> None:
    """Wait until `cat` reads from the terminal. It then repeats each typed line."""
    container.type(f"{line}\n")
    container.read_until(f"{line}\r\n{line}\r\n")


def test_shell_reports_the_job_as_stopped_only_after_the_command_has_stopped(
    machine: Machine,
) -> None:
    """Before, the command still reads from the terminal, so it could take the shell's input."""
    script = (
        "trap 'echo saving; read line; trap - TSTP; echo $line; kill -TSTP $$; echo resumed' TSTP;"
        " echo ready; while :; do sleep 1000 & wait; done"
    )
    with machine.start(["/bin/dash", "-i"], terminal=True) as container:
        container.read_until("prompt> ")
        container.type(f'/linger -- /bin/ash -c "{_quoted(script)}"\n')
        container.read_until("ready\r\n")
        container.type("\x1a")
        container.read_until("saving\r\n")
        container.type("saved\n")
        assert container.read_until("Stopped").startswith("saved\r\nsaved\r\n")
        container.read_until("prompt> ")
        container.type("fg\n")
        container.read_until("resumed\r\n")


def test_control_z_stops_neither_linger_nor_a_command_that_ignores_it(machine: Machine) -> None:
    script = "trap '' TSTP; echo ready; read line; echo read $line"
    with machine.start(["/bin/dash", "-i"], terminal=True) as container:
        container.read_until("prompt> ")
        container.type(f'/linger -- /bin/ash -c "{_quoted(script)}"\n')
        container.read_until("ready\r\n")
        container.type("\x1a")
        container.read_until("^Z")
        container.type("on\n")
        assert "Stopped" not in container.read_until("read on\r\n")


def _quoted(script: str) -> str:
    """Return a script for double quotes."""
    return script.replace("$", "\\$")


def test_control_c_reaches_the_command_exactly_once(machine: Machine) -> None:
    script = (
        "n=0; trap 'n=$((n + 1)); echo interrupted $n.' INT; echo ready;"
        "while :; do read line && exit $n; done"
    )
    with machine.start(Wrapper("linger").script(script), terminal=True) as container:
        container.read_until("ready")
        for count in range(1, 21):
            container.type("\x03")
            container.read_until(f"interrupted {count}.")
        container.type("\n")
        assert container.runc.wait(TIMEOUT_SECONDS) == 20


def test_linger_does_not_forward_control_c_from_the_terminal(machine: Machine) -> None:
    """The command has left the session, so the terminal does not send it SIGINT."""
    script = (
        'exec setsid ash -c \'n=0; trap n=1 INT; trap "echo interrupted \\$n times; exit 6" USR1;'
        " echo ready; while :; do sleep 1000 & wait; done'"
    )
    with machine.start(Wrapper("linger").script(script), terminal=True) as container:
        container.read_until("ready")
        container.type("\x03")
        container.read_until("^C")
        # Of two pending signals, INT is delivered before USR1, because it has the lower number.
        container.signal(signal.SIGUSR1)
        container.read_until("interrupted 0 times")
        assert container.runc.wait(TIMEOUT_SECONDS) == 6


def test_control_z_does_not_stop_a_command_without_a_shell(machine: Machine) -> None:
    script = "echo ready; read line; echo read $line; exit 6"
    with machine.start(Wrapper("linger").script(script), terminal=True) as container:
        container.read_until("ready")
        container.type("\x1a")
        container.read_until("^Z")
        container.type("on\n")
        container.read_until("read on")
        assert container.runc.wait(TIMEOUT_SECONDS) == 6


def test_closed_terminal_sends_sighup_to_the_command(machine: Machine) -> None:
    script = "trap 'exit 7' HUP; echo ready; while :; do read line; done"
    with machine.start(Wrapper("linger").script(script), terminal=True) as container:
        container.read_until("ready")
        container.runc.kill()  # `runc run` holds the other end of the container's terminal
        container.runc.wait(TIMEOUT_SECONDS)
        await_that(lambda: not Path(f"/proc/{container.pid}").exists(), "the container ended")
