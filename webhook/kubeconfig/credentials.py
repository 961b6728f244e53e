"""The credentials of requests: tokens, passwords and client certificates."""

from __future__ import annotations

import base64
import logging
import time
from pathlib import Path
from typing import NamedTuple, Protocol

from webhook.kubeconfig.errors import CredentialsError

log = logging.getLogger(__name__)

# client-go reads a token file again after a minute (`transport/token_source.go`). The kubelet
# renews a service account's token when a fifth of its hour is left, so this is in time.
_TOKEN_FILE_SECONDS = 60.0


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
        """Return the credential for the next request. Raises CredentialsError."""
        ...

    async def renew(self, rejected: Credential) -> bool:
        """Return whether there is another credential than one that was answered with 401.

        Raises CredentialsError.
        """
        ...


class FileOrData(NamedTuple):
    """A PEM text: in a file that can change, or as data."""

    file: Path | None = None
    data: bytes = b""

    def read(self) -> bytes:
        """Return the text. Empty if there is none. Raises OSError."""
        return self.data if self.file is None else self.file.read_bytes()


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

        A token file takes precedence over `authorization`, as in client-go. Raises CredentialsError
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
        try:
            token = self._authorization()
            self._credential = Credential(token, self._certificate.read(), self._key.read())
        except (OSError, ValueError) as error:
            problem = f"{self._token_file}: {error}"
            if isinstance(error, OSError):
                problem = f"{error.filename}: {error.strerror}"
            if self._credential == Credential():
                raise CredentialsError(f"{self._name}: {problem}") from None
            log.warning("%s: %s; the former credentials are used", self._name, problem)

    def _authorization(self) -> str:
        if self._token_file is None or time.monotonic() < self._next_token:
            return self._credential.authorization
        self._next_token = time.monotonic() + _TOKEN_FILE_SECONDS
        if token := self._token_file.read_text().strip():
            return bearer(token, f"{self._name}.tokenFile")
        raise ValueError("it is empty")


def bearer(token: str, name: str) -> str:
    """Return the header of a token, without white space around it.

    Raises CredentialsError for a token that no HTTP header can have. `name` says whose token it is.
    """
    stripped = token.strip()
    if not (stripped.isascii() and stripped.isprintable()):
        raise CredentialsError(f"{name}: the token has characters that no token has, such as \\n")
    return f"Bearer {stripped}"


def basic(username: str, password: str) -> str:
    """Return the header of HTTP basic authentication."""
    return f"Basic {base64.b64encode(f'{username}:{password}'.encode()).decode()}"
