"""Containers whose end has to be the same with and without podsettle.

The sleep of a wrapper, its script and the helper are visible in none of exit code, reason,
termination message and log.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.support.node.image_files import GROUP_ID, USER_ID

RANDOM_USER_ID = 1_000_650_000
"""Of the range in which OpenShift assigns a user to a namespace."""
EROFS = 30
RESTRICTED = {
    "runAsNonRoot": True,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}
"""What the Pod Security Standard `restricted` demands of a container."""


@dataclass(frozen=True)
class Case:
    """A container, and how it ends."""

    command: tuple[str, ...]
    args: tuple[str, ...] = ()
    exit_code: int = 0
    reason: str = ""
    """Empty: the reason that belongs to the exit code."""
    lines: tuple[str, ...] = ()
    """Lines that its log contains."""
    message: str = ""
    image: str = "shell"
    """`shell`: BusyBox or bash. `static`: an image without a shell. `user`: with a named user."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of the container."""

    @property
    def needs_helper(self) -> bool:
        """Whether a shell script cannot wrap it."""
        return self.image == "static"

    @property
    def expected_reason(self) -> str:
        return self.reason or ("Error" if self.exit_code else "Completed")


def _script(text: str, **fields: Any) -> Case:
    return Case(("sh", "-c", text), **fields)


def act(*arguments: str, **fields: Any) -> Case:
    """Return a case that runs the program of the image without a shell."""
    return Case(("/act",), arguments, image="static", **fields)


_ODD_ARGUMENTS = ("zero", "a b", "", "$(CASE)", "$$(CASE)", "ü", "-n", "--", "it's", '"$HOME"')
_ODD_VARIABLES = {
    "env": [
        {"name": "CASE", "value": "value"},
        {"name": "LINES_AND_QUOTES", "value": "one\ntwo 'three' \"four\" $(CASE) $$(CASE) \\"},
        {"name": "pid", "value": "of the wrapper's script"},
        {"name": "code", "value": "9"},
        {"name": "IFS", "value": "x"},
    ]
}
_USER = {"securityContext": {"runAsUser": 4242, "runAsGroup": 2424}}
_SMALL = {"resources": {"limits": {"memory": "32Mi"}, "requests": {"memory": "32Mi"}}}
# containerd begins to watch for OOM kills after the start. It may miss an earlier one, and then the
# reason is `Error`.
_ALLOCATE_IN_SHELL = "sleep 1; exec dd if=/dev/zero of=/dev/null bs=128M count=1"

CASES: Mapping[str, Case] = {
    "code-0": _script("exit 0"),
    "code-1": _script("exit 1", exit_code=1),
    "code-7": _script("exit 7", exit_code=7),
    "code-126": _script("exit 126", exit_code=126),
    "code-137": _script("exit 137", exit_code=137),
    "code-143": _script("exit 143", exit_code=143),
    "code-255": _script("exit 255", exit_code=255),
    "code-of-a-child": _script("sh -c 'kill -KILL $$$$'; exit $?", exit_code=137),
    "streams": _script("echo out; echo err >&2", lines=("out", "err")),
    "long-line": _script("head -c 100000 /dev/zero | tr '\\0' x; echo end"),
    "arguments": Case(
        ("sh", "-c", 'printf "<%s>\\n" "$0" "$@"'),
        _ODD_ARGUMENTS,
        lines=("<zero>", "<>", "<a b>", "<value>", "<$(CASE)>", "<it's>", '<"$HOME">'),
        fields=_ODD_VARIABLES,
    ),
    "environment": _script(
        "env | grep -v ^SHLVL= | sort", lines=("CASE=value", "code=9"), fields=_ODD_VARIABLES
    ),
    "directory": _script("pwd", lines=("/tmp",), fields={"workingDir": "/tmp"}),
    "user": _script("id -u; id -g; id -G", lines=("4242", "2424", "2424 5555"), fields=_USER),
    "named-user": _script(
        "id -u; id -g; id -un", lines=(f"{USER_ID}", f"{GROUP_ID}", "builder"), image="user"
    ),
    "random-user": _script(
        "id -u; id -g",
        lines=(f"{RANDOM_USER_ID}", "0"),
        fields={"securityContext": {**RESTRICTED, "runAsUser": RANDOM_USER_ID}},
    ),
    "read-only-root": _script(
        "touch /new 2>/dev/null || exit 5",
        exit_code=5,
        fields={"securityContext": {"readOnlyRootFilesystem": True}},
    ),
    "message": _script(
        "printf 'why it failed' >/dev/termination-log; exit 4", exit_code=4, message="why it failed"
    ),
    "standard-input": _script("cat; echo end", lines=("end",)),
    "out-of-memory": _script(_ALLOCATE_IN_SHELL, exit_code=137, reason="OOMKilled", fields=_SMALL),
    "static-code-0": act("exit", "0"),
    "static-code-9": act("exit", "9", exit_code=9),
    "static-code-255": act("exit", "255", exit_code=255),
    "static-report": act(
        "report",
        *_ODD_ARGUMENTS,
        lines=("argument a b", "argument ", "argument value", "variable code=9", "user 0:0"),
        fields=_ODD_VARIABLES,
    ),
    "static-user": act(
        "report", lines=("user 4242:2424", "group 5555", "directory /"), fields=_USER
    ),
    "static-restricted": act(
        "write",
        "/new",
        exit_code=EROFS,
        fields={
            "securityContext": {
                **RESTRICTED,
                "runAsUser": RANDOM_USER_ID,
                "readOnlyRootFilesystem": True,
            }
        },
    ),
    "static-out-of-memory": act(
        "allocate", "128", exit_code=137, reason="OOMKilled", fields=_SMALL
    ),
}


def container(name: str, case: Case, image: str) -> dict[str, Any]:
    """Return the container of a case."""
    made = {"name": name, "image": image, "command": list(case.command), **case.fields}
    return made | ({"args": list(case.args)} if case.args else {})


def in_shell(name: str, script: str, image: str, **fields: Any) -> dict[str, Any]:
    """Return a container that runs a script."""
    return {"name": name, "image": image, "command": ["sh", "-c", script], **fields}
