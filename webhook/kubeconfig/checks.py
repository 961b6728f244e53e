"""What kubectl refuses in a kubeconfig (client-go `validation.go`, `transport.go`, `exec.go`)."""

from __future__ import annotations

from webhook.kubeconfig.document import Cluster, Entry, User
from webhook.kubeconfig.exec_plugin import API_VERSIONS

_INTERACTIVE_MODES = ("Never", "IfAvailable", "Always")


def check(cluster: Entry[Cluster], user: Entry[User]) -> None:
    """Raise AccessError for fields that contradict each other, and files that are missing."""
    if not cluster.value.server:
        raise cluster.error("server", "no cluster found: it is empty")
    cluster.file_or_data("certificate-authority")
    given = user.value
    if given.token and (given.username or given.password):
        raise user.error("username", "a token is set too")
    if any(user.file_or_data("client-certificate")) and not any(user.file_or_data("client-key")):
        raise user.error("client-key", "it is empty, but there is a client certificate")
    if given.exec is None:
        return
    if given.auth_provider is not None:
        raise user.error("auth-provider", "exec is set too")
    required = {"command": given.exec.command, "apiVersion": given.exec.api_version}
    required |= {f"env[{n}].name": each.name for n, each in enumerate(given.exec.env)}
    for name, value in required.items():
        if not value:
            raise user.error(f"exec.{name}", "it is empty")
    mode = given.exec.interactive_mode
    # In versions before v1, the field can be left out.
    if mode not in _INTERACTIVE_MODES and (mode or given.exec.api_version == API_VERSIONS[0]):
        raise user.error("exec.interactiveMode", f"it is none of {', '.join(_INTERACTIVE_MODES)}")


def check_for_tls(cluster: Entry[Cluster], user: Entry[User]) -> None:
    """Raise AccessError for what kubectl refuses only for servers with TLS."""
    trusted = cluster.value.certificate_authority or cluster.value.certificate_authority_data
    if trusted and cluster.value.insecure_skip_tls_verify:
        raise cluster.error("insecure-skip-tls-verify", "a certificate authority is set too")
    given = user.value
    if given.token_file and given.username:
        raise user.error("username", "a tokenFile is set too")
    if given.auth_provider is not None and given.auth_provider.name != "oidc":
        problem = f"kubectl no longer has {given.auth_provider.name!r}; use a credential plugin"
        raise user.error("auth-provider.name", problem)
    if given.exec is not None and given.exec.api_version not in API_VERSIONS:
        raise user.error("exec.apiVersion", f"it is none of {', '.join(API_VERSIONS)}")
