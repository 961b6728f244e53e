"""The content of kubeconfig files, merged as kubectl merges them."""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

import msgspec

from webhook.kubeconfig.credentials import AccessError, FileOrData
from webhook.kubeconfig.go_yaml import load_yaml

Texts: TypeAlias = list[str | None]
"""A list in which null is an empty text, as for Go."""
T = TypeVar("T", bound=msgspec.Struct)
V = TypeVar("V")


class Variable(msgspec.Struct):
    """An environment variable of a credential plugin."""

    name: str = ""
    value: str = ""


class ExecConfig(msgspec.Struct, rename="camel"):
    """A credential plugin (KEP-541)."""

    command: str = ""
    args: Texts = []
    env: list[Variable] = []
    api_version: str = ""
    install_hint: str = ""
    provide_cluster_info: bool = False
    interactive_mode: str = ""


class AuthProvider(msgspec.Struct):
    """The built-in provider `oidc`, or one that client-go no longer has."""

    name: str = ""
    config: dict[str, str] = {}


class User(msgspec.Struct, rename="kebab"):
    """The credentials of a user, and whom the user impersonates."""

    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    token: str = ""
    token_file: str = msgspec.field(default="", name="tokenFile")
    username: str = ""
    password: str = ""
    as_user: str = msgspec.field(default="", name="as")
    as_uid: str = ""
    as_groups: Texts = []
    as_user_extra: dict[str, Texts] = {}
    auth_provider: AuthProvider | None = None
    exec: ExecConfig | None = None


class Cluster(msgspec.Struct, rename="kebab", omit_defaults=True):
    """An API server, and how it is reached and verified."""

    server: str = ""
    tls_server_name: str = ""
    insecure_skip_tls_verify: bool = False
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    proxy_url: str = ""
    disable_compression: bool = False
    extensions: list[dict[str, Any] | None] = []


class Context(msgspec.Struct):
    """A cluster, a user and a default namespace."""

    cluster: str = ""
    user: str = ""
    namespace: str = ""


class Entry(NamedTuple, Generic[T]):
    """A named cluster, user or context, and where it stands."""

    value: T
    file: Path
    key: str
    """Its place in the file, such as `users[ci]`."""

    def error(self, field: str, problem: str) -> AccessError:
        """Return the error about a field of this entry."""
        return AccessError(f"{self.file}: {self.key}.{field}: {problem}")

    def path(self, text: str) -> Path:
        """Return the path of a file, which is relative to the directory of the kubeconfig.

        Raises AccessError for a name that no file can have.
        """
        if "\0" in text:
            raise AccessError(f"{self.file}: {self.key}: a file named {text!r}")
        return Path(os.path.normpath(self.file.parent.absolute() / text))

    def file_or_data(self, field: str) -> FileOrData:
        """Return a field that names a file, or its sibling with data.

        Raises AccessError if both are set, and if the file cannot be opened.
        """
        name = field.replace("-", "_")
        text, data = getattr(self.value, name), getattr(self.value, f"{name}_data")
        if text and data:
            raise self.error(field, f"{field}-data is set too")
        try:
            if text:
                self.path(text).open().close()
                return FileOrData(self.path(text))
            # Go's decoder skips these two characters, and no others.
            encoded = re.sub(r"[\r\n]", "", data)
            return FileOrData(data=base64.b64decode(encoded, validate=True))
        except OSError as error:
            raise self.error(field, f"{self.path(text)}: {error.strerror}") from None
        except ValueError as error:
            raise self.error(f"{field}-data", f"not base64: {error}") from None


class Kubeconfig:
    """Merged kubeconfig files.

    The first file with a name wins, with all its fields, and so does the first current context that
    is not empty (client-go `tools/clientcmd/loader.go`).
    """

    def __init__(self, files: Sequence[Path]) -> None:
        """Read and merge files. Raises AccessError."""
        documents = [(file, _read(file)) for file in files]
        self.clusters = _merge(documents, "cluster", Cluster)
        self.users = _merge(documents, "user", User)
        self.contexts = _merge(documents, "context", Context)
        key = "current-context"
        current = [_convert(file, key, document.get(key, ""), str) for file, document in documents]
        self.current_context = next(filter(None, current), "")


def _merge(
    documents: Sequence[tuple[Path, dict[str, Any]]], field: str, model: type[T]
) -> dict[str, Entry[T]]:
    kind = f"{field}s"
    merged: dict[str, Entry[T]] = {}
    for file, document in documents:
        own: dict[str, Entry[T]] = {}
        for item in _convert(file, kind, document.get(kind, []), list[dict[str, Any] | None]):
            each = item or {}  # For Go, null is an object without fields.
            name = _convert(file, f"{kind}.name", each.get("name", ""), str)
            key = f"{kind}[{name}]"
            if name in own:
                raise AccessError(f"{file}: {key}: the name stands twice")
            own[name] = Entry(_convert(file, key, each.get(field, {}), model), file, key)
        merged = own | merged
    return merged


def _convert(file: Path, key: str, value: Any, model: type[V]) -> V:
    try:
        return msgspec.convert(value, model)
    except msgspec.ValidationError as error:
        problem, _, place = str(error).partition(" - at `$")
        text = f"{file}: no cluster found: {key}{place.rstrip('`')}: {problem}"
        raise AccessError(text) from None


def _read(file: Path) -> dict[str, Any]:
    try:
        content = load_yaml(file.read_bytes())
        document = msgspec.convert({} if content is None else content, dict[str, Any])
    except OSError as error:
        raise AccessError(f"{file}: {error.strerror}") from None
    except ValueError as error:
        raise AccessError(f"{file}: no cluster found: not a kubeconfig: {error}") from None
    for key, expected in (("apiVersion", "v1"), ("kind", "Config")):
        # client-go fills in what is empty.
        if (given := document.get(key) or expected) != expected:
            raise AccessError(f"{file}: no cluster found: {key}: {given!r} is not {expected}")
    return document
