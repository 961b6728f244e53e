"""linger, built once a session, and the machine that runs containers."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support import runc
from tests.support.factories import in_shell
from webhook.linger.build import build, host_arch


@pytest.fixture(scope="session")
def linger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The executable for this machine."""
    return build(host_arch(), tmp_path_factory.mktemp("linger"))


@pytest.fixture(scope="session")
def machine(tmp_path_factory: pytest.TempPathFactory, linger: Path) -> runc.Machine:
    """What runs containers; where nothing can, the test is skipped, and fails in CI."""
    reason = runc.missing()
    if reason and os.environ.get("CI") == "true":
        pytest.fail(f"no containers: {reason}")
    if reason:
        pytest.skip(f"no containers: {reason}")
    rootfs = runc.make_rootfs(tmp_path_factory.mktemp("rootfs"), linger)
    return runc.Machine(rootfs, tmp_path_factory.mktemp("bundles"))


@dataclass(frozen=True)
class Wrapper:
    """linger or the shell wrapper: the same contract, so the same tests."""

    name: str

    @property
    def shell(self) -> str:
        """The shell for commands in the container."""
        return "/bin/ash" if self.name == "linger" else f"/bin/{self.name}"

    def around(
        self, command: Sequence[str], *, sleep_ms: int = 0, min_lifetime_ms: int = 0
    ) -> list[str]:
        """The command of a container whose own command this wraps."""
        if self.name == "linger":
            durations = ["--sleep", f"{sleep_ms}ms", "--min-lifetime", f"{min_lifetime_ms}ms"]
            return ["/linger", *durations, "--", *command]
        wrapped = in_shell([self.shell], sleep_ms=sleep_ms, min_lifetime_ms=min_lifetime_ms)
        return [*wrapped[:-1], *command]

    def script(self, text: str, *, sleep_ms: int = 0, min_lifetime_ms: int = 0) -> list[str]:
        """The command of a container that runs a script, `the-command` to those who look."""
        return self.around(
            [self.shell, "-c", text, "the-command"],
            sleep_ms=sleep_ms,
            min_lifetime_ms=min_lifetime_ms,
        )


@pytest.fixture(params=["linger", "ash", "dash", "bash"])
def wrapper(request: pytest.FixtureRequest) -> Wrapper:
    """Every way to keep a container alive."""
    return Wrapper(request.param)
