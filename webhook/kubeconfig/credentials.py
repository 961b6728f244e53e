"""The credentials of requests: tokens, passwords and client certificates."""

from __future__ import annotations

import base64
import logging
import re
import time
from pathlib import Path
from typing import NamedTuple, Protocol

log = logging.getLogger(__name__)

# client-go reads a token file again after a minute (`transport/token_source.go`). The kubelet
# renews a service account's token when a fifth of its hour is left, so this is in time.
_TOKEN_FILE_SECONDS = 60.0
_NOT_IN_HEADERS = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


class AccessError(Exception):
    """A kubeconfig or credentials that cannot be used, such as those of a plugin that fails.

    The message names the file and the key.
    """


class Credential(NamedTuple):
    """What one request authenticates its user with."""

    authorization: str = ""
    """The value of the header. Empty for none."""
    certificate: bytes = b""
    """The client certificate and its chain in PEM. Empty for none."""
    key: bytes = b""


class Credentials(Protocol):
    """A source of credentials, which may change from request to request."""

    async def current(self) -> Credential:
        """Return the credential for the next request. Raises AccessError."""

    async def renew(self, rejected: Credential) -> bool:
        """Return whether there is another credential than one that was answered with 401.

        Raises AccessError.
        """


class FileOrData(NamedTuple):
    """A PEM text: in a file that can change, or as data."""

    file: Path | None = None
    data: bytes = b""

    def read(self) -> bytes:
        """Return the text. Empty if there is none. Raises AccessError.

        An empty file is an error: it stands for no CAs, and not for those of the system.
        """
        if self.file is None:
            return self.data
        try:
            content = self.file.read_bytes()
        except OSError as error:
            raise AccessError(f"{self.file}: {error.strerror}") from None
        if not content.strip():
            raise AccessError(f"{self.file}: it is empty")
        return content


class StoredCredentials:
    """The credentials that a kubeconfig contains, or whose files it names.

    Files are read again. A content that was read stays valid if its file cannot be read later.
    """

    def __init__(
        self,
        name: str = "",
        authorization: str = "",
        token_file: Path | None = None,
        certificate: FileOrData = FileOrData(),  # noqa: B008 (it is immutable)
        key: FileOrData = FileOrData(),  # noqa: B008
    ) -> None:
        """Create a source. `name` says whose credentials they are, for messages.

        A token file takes precedence over `authorization`, as in client-go. Raises AccessError
        if a file cannot be read.
        """
        self._name = name
        self._token_file = token_file
        self._certificate, self._key = certificate, key
        self._next_token = 0.0
        self._credential = Credential(authorization)
        self._refresh()

    async def current(self) -> Credential:
        """Return the credential that the files have."""
        self._refresh()
        return self._credential

    async def renew(self, rejected: Credential) -> bool:
        """Read the files again, and return whether they have another credential."""
        self._next_token = 0.0
        return await self.current() != rejected

    def _refresh(self) -> None:
        authorization, certificate, key = self._credential
        try:
            authorization = self._authorization()
        except AccessError as error:
            self._keep(authorization, error)
        try:
            certificate, key = self._certificate.read(), self._key.read()
        except AccessError as error:
            self._keep(certificate, error)
        self._credential = Credential(authorization, certificate, key)

    def _keep(self, former: str | bytes, error: AccessError) -> None:
        if not former:
            raise AccessError(f"{self._name}: {error}") from None
        log.warning("%s: %s; the former credentials are used", self._name, error)

    def _authorization(self) -> str:
        if self._token_file is None or time.monotonic() < self._next_token:
            return self._credential.authorization
        self._next_token = time.monotonic() + _TOKEN_FILE_SECONDS
        token = FileOrData(self._token_file).read().decode(errors="replace").strip()
        return bearer(token, f"{self._name}.tokenFile")


def fits_in_header(text: str) -> bool:
    """Return whether Go's HTTP client sends a text as the value of a header."""
    return not _NOT_IN_HEADERS.search(text)


def bearer(token: str, name: str) -> str:
    """Return the header of a token. `name` says whose token it is. Raises AccessError."""
    if not fits_in_header(token):
        raise AccessError(f"{name}: the token has characters that no header has, such as \\n")
    return f"Bearer {token}"


def basic(username: str, password: str) -> str:
    """Return the header of HTTP basic authentication."""
    return f"Basic {base64.b64encode(f'{username}:{password}'.encode()).decode()}"
