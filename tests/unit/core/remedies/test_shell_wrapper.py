"""Tests of the command that the shell wrapper makes."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.data.earlier_wrapper import EARLIER_SCRIPT
from tests.support.factories import in_shell
from webhook import __version__
from webhook.core.remedies.shell_wrapper import SCRIPT, SHELLS, is_wrapped, wrapper

texts = st.text(st.characters(exclude_characters="\0", codec="utf-8"))
shells = st.sampled_from(["sh", "/bin/sh", "bash", "/usr/local/bin/bash", "/busybox/ash", "dash"])
commands = st.builds(lambda shell, rest: [shell, *rest], shells, st.lists(texts))
durations = st.integers(min_value=0, max_value=10**9)


@given(commands, durations, durations)
def test_wrapped_command_is_recognised_and_unchanged(
    command: list[str], sleep: int, min_lifetime: int
) -> None:
    once = in_shell(command, sleep_ms=sleep, min_lifetime_ms=min_lifetime)
    assert not is_wrapped(command)
    assert is_wrapped(once)
    assert once[:4] == [command[0], "-c", SCRIPT, "podsettle"]
    assert float(once[5]) == sleep / 1000
    assert round((float(once[4]) + float(once[5])) * 1000) == max(min_lifetime, sleep)
    assert once[6:] == command


def test_wrapped_command_has_the_documented_form() -> None:
    assert in_shell(["/bin/sh", "-c", "true"], sleep_ms=10, min_lifetime_ms=1500) == [
        *("/bin/sh", "-c", SCRIPT, "podsettle", "1.49", "0.01"),
        *("/bin/sh", "-c", "true"),
    ]
    assert wrapper("sh", sleep_ms=0, min_lifetime_ms=2000)[4:] == ["2", "0"]
    assert wrapper("sh", sleep_ms=2000, min_lifetime_ms=500)[4:] == ["0", "2"]


def is_wrapped_to_earlier_replicas(command: Sequence[str]) -> bool:
    """Return whether an earlier version recognises a command as wrapped."""
    return (
        len(command) > 3
        and command[0] in SHELLS
        and command[1] == "-c"
        and command[2].startswith(": podsettle;")
        and command[3] == "podsettle"
    )


@given(commands, durations, durations)
def test_replicas_of_two_versions_recognise_each_others_wrapper(
    command: list[str], sleep: int, min_lifetime: int
) -> None:
    """During an upgrade one replica may review a pod that the other has changed."""
    new = in_shell(command, sleep_ms=sleep, min_lifetime_ms=min_lifetime)
    earlier = [*new[:2], EARLIER_SCRIPT, *new[3:]]
    assert is_wrapped(earlier)
    assert is_wrapped_to_earlier_replicas(new)
    assert not is_wrapped_to_earlier_replicas(command)


@pytest.mark.parametrize(
    "command",
    [
        [],
        ["sh"],
        ["sh", "-c", ": podsettle;"],
        ["sh", "-c", ": podsettle;", "something else"],
        ["sh", "-e", ": podsettle;", "podsettle", "sh"],
        ["python", "-c", ": podsettle;", "podsettle", "sh"],
        ["sh", "-c", "echo ': podsettle;'", "podsettle", "sh"],
    ],
)
def test_other_commands_are_not_recognised_as_wrapped(command: list[str]) -> None:
    assert not is_wrapped(command)


@pytest.mark.parametrize("name", ["", "zsh", "./sh", "/tmp/sh", "/bin/sh ", "SH", "bin/sh", "/sh"])
def test_other_paths_are_not_shells(name: str) -> None:
    assert name not in SHELLS


def test_script_is_plain_ascii() -> None:
    assert SCRIPT.isascii()
    assert not any(forbidden in SCRIPT for forbidden in ("$(", "$$", "`", "\r", "\t"))


def test_script_begins_with_its_version_its_purpose_and_where_it_is_explained() -> None:
    """`kubectl describe pod` prints the script line by line."""
    first, *rest = SCRIPT.splitlines()
    assert first.startswith(f": podsettle; # {__version__} runs the command, ")
    assert first.endswith(": podsettle explain wrapper")
    assert all(len(line) <= 100 for line in (first, *rest))
    assert len(SCRIPT) <= 1152
