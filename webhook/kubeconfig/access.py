"""How requests reach one API server: its address, proxy, TLS, credentials and impersonation."""

from __future__ import annotations

import base64
import os
import posixpath
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple
from urllib.parse import quote, unquote, urlsplit

import msgspec
from multidict import CIMultiDict

from webhook.kubeconfig.checks import check, check_for_tls
from webhook.kubeconfig.credentials import (
    AccessError,
    Credentials,
    FileOrData,
    StoredCredentials,
    basic,
    bearer,
    fits_in_header,
)
from webhook.kubeconfig.document import Cluster, Entry, Kubeconfig, User
from webhook.kubeconfig.exec_plugin import ExecPlugin
from webhook.kubeconfig.paths import KubeconfigPaths
from webhook.no_proxy import NoProxy, parse_address, proxy_variable

# The name of what a cluster has for credential plugins (KEP-541).
_EXEC_EXTENSION = "client.authentication.k8s.io/exec"
# The characters of an HTTP token (RFC 9110, 5.6.2) without `%`, as client-go escapes keys.
_HEADER_KEY_CHARACTERS = "!#$&'*+-.^_`|~"
# The characters of a path that Go does not escape.
_PATH_CHARACTERS = "$&+,/:;=@"


class Impersonation(NamedTuple):
    """The user and the groups whose rights requests have, as kubectl's --as and --as-group."""

    user: str | None = None
    groups: tuple[str, ...] = ()

    def headers(self, user: User = User()) -> CIMultiDict[str]:  # noqa: B008 (it is not changed)
        """Return the headers that impersonate. What is set here replaces the field of a user.

        Raises ValueError.
        """
        name, groups = self.user or user.as_user, self.groups or user.as_groups
        if not name:
            if user.as_uid or groups or user.as_user_extra:
                raise ValueError("no user is named, but a uid, groups or extra fields are")
            return CIMultiDict()
        pairs = [("User", name), *([("Uid", user.as_uid)] if user.as_uid else [])]
        pairs += [("Group", group or "") for group in groups]
        for key, values in user.as_user_extra.items():
            # aiohttp would send only the last of two names that differ in their case.
            extra = f"Extra-{quote(key, safe=_HEADER_KEY_CHARACTERS).lower()}"
            pairs += [(extra, value or "") for value in values]
        if not all(fits_in_header(value) for _, value in pairs):
            raise ValueError("a name has characters that no header can have, such as \\n")
        return CIMultiDict((f"Impersonate-{key}", value.strip(" \t")) for key, value in pairs)


@dataclass(frozen=True)
class Access:
    """How requests reach one API server, and as whom."""

    url: str
    """The URL before the path of a request, without a slash at its end."""
    proxy: str = ""
    """The URL of the proxy. Empty for none."""
    ca: FileOrData = FileOrData()  # noqa: RUF009 (it is immutable)
    """The CA certificates of the server. Empty for those of the system."""
    verify: bool = True
    server_name: str = ""
    """The name or address in the server's certificate. Empty for the host of the URL."""
    credentials: Credentials = field(default_factory=StoredCredentials)
    headers: CIMultiDict[str] = field(default_factory=CIMultiDict)
    """The headers of impersonation."""
    namespace: str = ""
    """The default namespace of commands. Empty if the kubeconfig's context has none."""
    context: str = ""
    """The kubeconfig's context. Empty if there is no kubeconfig."""


def from_kubeconfig(
    paths: KubeconfigPaths,
    context: str | None = None,
    impersonation: Impersonation = Impersonation(),  # noqa: B008 (it is immutable)
) -> Access:
    """Return what the kubeconfig files say about a context, or about the current one.

    Raises AccessError.
    """
    merged = Kubeconfig(paths.files)
    name = context or merged.current_context
    if name not in merged.contexts:
        no_name = "no cluster found: current-context: it is empty"
        which = f"there is no context {name!r}" if name else no_name
        names = ", ".join(merged.contexts) or "no contexts"
        raise AccessError(f"{paths.text}: {which}; it has: {names}")
    chosen = merged.contexts[name]
    cluster, user = merged.clusters.get(chosen.value.cluster), merged.users.get(chosen.value.user)
    if cluster is None:
        raise chosen.error("cluster", f"there is no cluster {chosen.value.cluster!r}")
    if user is None and chosen.value.user:
        raise chosen.error("user", f"there is no user {chosen.value.user!r}")
    access = _access(cluster, user or Entry(User(), chosen.file, chosen.key), impersonation)
    return replace(access, namespace=chosen.value.namespace, context=name)


def context_names(paths: KubeconfigPaths) -> list[str]:
    """Return the names of the contexts in a kubeconfig. Empty if it cannot be read."""
    try:
        return list(Kubeconfig(paths.files).contexts)
    except AccessError:
        return []


def _access(cluster: Entry[Cluster], user: Entry[User], impersonation: Impersonation) -> Access:
    check(cluster, user)
    url = _url(cluster)
    try:
        headers = impersonation.headers(user.value)
    except ValueError as error:
        raise user.error("as", str(error)) from None
    access = Access(url, _proxy(cluster, url), headers=headers)
    if not url.startswith("https:"):
        return access  # kubectl sends no credentials without TLS.
    check_for_tls(cluster, user)
    ca = cluster.file_or_data("certificate-authority")
    name = cluster.value.tls_server_name or urlsplit(url).hostname or ""
    return replace(
        access,
        ca=ca,
        verify=not cluster.value.insecure_skip_tls_verify,
        # Go compares addresses, and not their texts. No certificate has the dot after a name.
        server_name=str(parse_address(name) or name.removesuffix(".")),
        credentials=_credentials(user, cluster, ca),
    )


def _url(entry: Entry[Cluster]) -> str:
    server = entry.value.server
    try:
        parts = urlsplit(server)
        if not (parts.scheme and parts.netloc):
            parts = urlsplit(f"http://{server}")
            if parts.path not in ("", "/"):
                raise ValueError("it has a path, but no https:// in front of it")
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0:
            raise ValueError("it is no URL with http or https")
    except ValueError as error:
        raise entry.error("server", f"{server!r}: {error}") from None
    if "@" in parts.netloc:
        raise entry.error("server", "it has a user; only username and password are supported")
    # client-go joins the decoded path with that of a request.
    path = posixpath.normpath(f"/{unquote(parts.path).lstrip('/')}")
    path = quote(path, safe=_PATH_CHARACTERS)
    return parts._replace(path=path, query="", fragment="").geturl().rstrip("/")


def _proxy(entry: Entry[Cluster], url: str) -> str:
    proxy = entry.value.proxy_url or _environment_proxy(url)
    try:
        parts = urlsplit(proxy)
        is_supported = not proxy or (parts.scheme in ("http", "https") and parts.port != 0)
    except ValueError:
        is_supported = False
    if not is_supported:  # aiohttp would speak HTTP to other proxies.
        key = "proxy-url" if entry.value.proxy_url else "server: the proxy of the environment"
        # The message does not repeat the value, because that may contain a password.
        text = "only the URL of an http:// or https:// proxy is supported, and not socks5://"
        raise entry.error(key, text)
    return proxy


def _environment_proxy(url: str) -> str:
    """Return the proxy of the environment for a URL. Empty for none."""
    target = urlsplit(url)
    value = proxy_variable(os.environ, f"{target.scheme.upper()}_PROXY")
    port = target.port or (443 if target.scheme == "https" else 80)
    if not value or NoProxy.from_environment(os.environ).applies_to(target.hostname or "", port):
        return ""
    return value if "://" in value else f"http://{value}"


def _credentials(entry: Entry[User], cluster: Entry[Cluster], ca: FileOrData) -> Credentials:
    """Return the credentials of a user, in the order in which client-go prefers them."""
    user = entry.value
    name = f"{entry.file}: {entry.key}"
    certificate = entry.file_or_data("client-certificate")
    token = user.token
    if user.auth_provider is not None and not token:
        # kubectl also renews this token, and writes the new one into the file.
        token = user.auth_provider.config.get("id-token", "")
    has_secret = token or user.token_file or user.username
    if user.exec is not None and not has_secret and not any(certificate):
        return ExecPlugin(entry, user.exec, _cluster_information(cluster, ca))
    authorization = bearer(token, f"{name}.token") if token else ""
    if user.username:
        authorization = basic(user.username, user.password)
    return StoredCredentials(
        name,
        authorization,
        entry.path(user.token_file) if user.token_file else None,
        certificate,
        entry.file_or_data("client-key") if any(certificate) else FileOrData(),
    )


def _cluster_information(entry: Entry[Cluster], ca: FileOrData) -> Mapping[str, Any]:
    """Return what a plugin with `provideClusterInfo` is told (`ExecCredentialSpec.cluster`)."""
    told = msgspec.to_builtins(entry.value)
    for name in ("certificate-authority", "certificate-authority-data", "extensions"):
        told.pop(name, None)
    if content := ca.read():
        told["certificate-authority-data"] = base64.b64encode(content).decode()
    extensions = filter(None, entry.value.extensions)
    by_name = {each.get("name"): each.get("extension") for each in extensions}
    return {**told, "config": by_name.get(_EXEC_EXTENSION)}
