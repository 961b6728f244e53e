"""The two wrappers of commands: linger and the shell wrapper."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from webhook.core.remedies import shell_wrapper


@dataclass(frozen=True)
class Wrapper:
    """linger or the shell wrapper. Both have the same contract and the same tests."""

    name: str

    @property
    def shell(self) -> str:
        """The shell for commands in the container."""
        return "/bin/ash" if self.name == "linger" else f"/bin/{self.name}"

    def around(
        self,
        command: Sequence[str],
        *,
        sleep_ms: int | None = 0,
        min_lifetime_ms: int = 0,
        soft: int | None = None,
        hard: int | None = None,
    ) -> list[str]:
        """Return the container command that wraps `command`.

        Without `sleep_ms`, there is no delay. With `soft`, there are limits on open files.
        """
        if self.name == "linger":
            options = []
            if sleep_ms is not None:
                options = ["--sleep", f"{sleep_ms}ms", "--min-lifetime", f"{min_lifetime_ms}ms"]
            if soft is not None:
                options += ["--open-files", str(soft) if hard is None else f"{soft}:{hard}"]
            return ["/linger", *options, "--", *command]
        wrapped = shell_wrapper.exec_wrapper(self.shell)
        if sleep_ms is not None:
            wrapped = shell_wrapper.wrapper(
                self.shell, sleep_ms=sleep_ms, min_lifetime_ms=min_lifetime_ms
            )
        if soft is not None:
            wrapped = shell_wrapper.with_limits(wrapped, soft, hard)
        return [*wrapped, *command]

    def script(self, text: str, *, sleep_ms: int = 0, min_lifetime_ms: int = 0) -> list[str]:
        """Return the container command that wraps a script named `the-command`."""
        return self.around(
            [self.shell, "-c", text, "the-command"],
            sleep_ms=sleep_ms,
            min_lifetime_ms=min_lifetime_ms,
        )
