"""The two wrappers that keep a container alive: linger and the shell wrapper."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests.support.factories import in_shell


@dataclass(frozen=True)
class Wrapper:
    """linger or the shell wrapper. Both have the same contract and the same tests."""

    name: str

    @property
    def shell(self) -> str:
        """The shell for commands in the container."""
        return "/bin/ash" if self.name == "linger" else f"/bin/{self.name}"

    def around(
        self, command: Sequence[str], *, sleep_ms: int = 0, min_lifetime_ms: int = 0
    ) -> list[str]:
        """Return the container command that wraps `command`."""
        if self.name == "linger":
            durations = ["--sleep", f"{sleep_ms}ms", "--min-lifetime", f"{min_lifetime_ms}ms"]
            return ["/linger", *durations, "--", *command]
        wrapped = in_shell([self.shell], sleep_ms=sleep_ms, min_lifetime_ms=min_lifetime_ms)
        return [*wrapped[:-1], *command]

    def script(self, text: str, *, sleep_ms: int = 0, min_lifetime_ms: int = 0) -> list[str]:
        """Return the container command that wraps a script named `the-command`."""
        return self.around(
            [self.shell, "-c", text, "the-command"],
            sleep_ms=sleep_ms,
            min_lifetime_ms=min_lifetime_ms,
        )
