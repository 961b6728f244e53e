"""Credential plugins: programs that print a token or a client certificate (KEP-541)."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import msgspec

from webhook.kubeconfig.credentials import AccessError, Credential, bearer
from webhook.kubeconfig.document import Entry, ExecConfig, User
from webhook.kubeconfig.go_yaml import load_yaml, without_nulls

API_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
# Plugins ask a cloud's API. One that asks a person on the terminal has no limit.
_LIMIT_SECONDS = 60.0


class _Status(msgspec.Struct, rename="camel"):
    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: Annotated[datetime, msgspec.Meta(tz=True)] | None = None


class _ExecCredential(msgspec.Struct, rename="camel"):
    api_version: str
    status: _Status
    kind: Literal["ExecCredential", ""] = ""


class ExecPlugin:
    """Credentials that a plugin prints. It runs again when they expire, and after a 401.

    kubectl waits for a plugin for ever. podsettle gives up after a minute, unless a person at a
    terminal can answer the plugin. What a plugin writes to standard error is passed on.
    """

    def __init__(self, entry: Entry[User], config: ExecConfig, cluster: Mapping[str, Any]) -> None:
        """Create a source. `cluster` is what a plugin with `provideClusterInfo` is told.

        Raises AccessError if the plugin needs a terminal that is not there.
        """
        self._config = config
        self._name = f"{entry.file}: {entry.key}.exec"
        command = config.command
        self._command = str(entry.path(command)) if os.sep in command else command
        is_terminal = sys.stdin is not None and not sys.stdin.closed and sys.stdin.isatty()
        if config.interactive_mode == "Always" and not is_terminal:
            raise self._error("it needs a terminal (interactiveMode), and standard input is none")
        self._interactive = config.interactive_mode != "Never" and is_terminal
        # Also if standard input is no terminal, a plugin can ask a person at /dev/tty.
        self._in_own_group = not self._interactive and (
            config.interactive_mode == "Never" or not _has_terminal()
        )
        spec = {"interactive": self._interactive}
        self._spec = {**spec, "cluster": cluster} if config.provide_cluster_info else spec
        self._lock = asyncio.Lock()
        self._credential = Credential()
        self._expires: datetime | None = datetime.min.replace(tzinfo=UTC)

    async def current(self) -> Credential:
        """Return the last credential, or a new one if that has expired. Raises AccessError."""
        async with self._lock:
            if self._expires is not None and datetime.now(UTC) > self._expires:
                await self._refresh()
            return self._credential

    async def renew(self, rejected: Credential) -> bool:
        """Run the plugin, unless another request did it since. Raises AccessError."""
        async with self._lock:
            if self._credential == rejected:
                await self._refresh()
            return self._credential != rejected

    async def _refresh(self) -> None:
        try:
            output = await self._run()
            # For client-go, it is JSON if it begins with a brace. YAML has no surrogate pairs.
            is_json = output.lstrip().startswith(b"{")
            printed = without_nulls(msgspec.json.decode(output)) if is_json else load_yaml(output)
            answer = msgspec.convert(printed, _ExecCredential)
        except (ValueError, RecursionError):
            # The output is not shown. An error can become part of a JSON document or a CI log.
            raise self._error("its output (not shown) is not an ExecCredential") from None
        status, version = answer.status, self._config.api_version
        if answer.api_version != version:
            raise self._error(f"its output has not the apiVersion of the kubeconfig, {version}")
        if bool(status.client_certificate_data) != bool(status.client_key_data):
            raise self._error("it printed a certificate without a key, or a key alone")
        if not (status.token or status.client_key_data):
            raise self._error("it printed no token and no certificate")
        self._expires = status.expiration_timestamp
        authorization = bearer(status.token, self._name) if status.token else ""
        certificate, key = status.client_certificate_data.encode(), status.client_key_data.encode()
        self._credential = Credential(authorization, certificate, key)

    async def _run(self) -> bytes:
        """Return what the plugin prints. Raises AccessError."""
        version = self._config.api_version
        request = {"apiVersion": version, "kind": "ExecCredential", "spec": self._spec}
        variables = {each.name: each.value for each in self._config.env}
        variables["KUBERNETES_EXEC_INFO"] = msgspec.json.encode(request).decode()
        try:
            process = await asyncio.create_subprocess_exec(
                _executable(self._command),
                *(each or "" for each in self._config.args),
                env={**os.environ, **variables},
                stdin=None if self._interactive else asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                # In a process group of its own, its children end with it. One that reads from the
                # terminal has to stay in the foreground group.
                process_group=0 if self._in_own_group else None,
            )
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            hint = " ".join(self._config.install_hint.split())
            raise self._error(f"{reason}{f'; {hint}' if hint else ''}") from None
        try:
            async with asyncio.timeout(None if self._interactive else _LIMIT_SECONDS):
                output, _ = await process.communicate()
        except BaseException as error:
            # The children may hold the pipe when the plugin itself has ended.
            with suppress(ProcessLookupError):
                if self._in_own_group:
                    os.killpg(process.pid, signal.SIGKILL)
                    await process.communicate()  # To the end of the pipe, which closes it.
                else:
                    process.kill()
            if isinstance(error, TimeoutError):
                raise self._error(f"it did not end in {_LIMIT_SECONDS:g} s") from None
            raise
        if process.returncode:
            raise self._error(f"it ended with exit code {process.returncode}")
        return output

    def _error(self, problem: str) -> AccessError:
        plugin = f"the credential plugin {self._config.command}"
        return AccessError(f"{self._name}: getting credentials: {plugin}: {problem}")


def _has_terminal() -> bool:
    """Return whether this process has a controlling terminal."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR))
    except OSError:
        return False
    return True


def _executable(command: str) -> str:
    """Return the path of a command. Raises FileNotFoundError.

    Go searches the PATH of its own process, not that which the kubeconfig sets for the plugin, and
    does not run what a relative directory in PATH has.
    """
    path = command if os.sep in command else shutil.which(command)
    if path is None or not os.path.isabs(path):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    return path
