"""The configuration of the API client, from a kubeconfig or from the cluster around this process.

Every fault of a kubeconfig is a NoClusterError that names the file. kubectl stops at a credential
plugin that fails. `kubernetes.aio` only logs the failure, and goes on as an anonymous user, so that
each request would fail for want of a right.

The messages of `kubernetes.aio` repeat the output of a plugin, which contains credentials. An error
of podsettle can become part of a JSON document or a CI log. So what a plugin wrote to standard
output is never shown, and what it wrote to standard error is logged, as kubectl passes it on.
"""

from __future__ import annotations

import ast
import logging
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import yaml
from multidict import CIMultiDict

from webhook.cluster.errors import NoClusterError
from webhook.cluster.own_pod import own_namespace
from webhook.cluster.rest_client import (
    ConfigException,
    Configuration,
    list_kube_config_contexts,
    load_incluster_config,
    load_kube_config,
)

_TOKEN = "BearerToken"  # noqa: S105 (a key of the client's settings)
_LIBRARY_LOGGER = "kubernetes.aio.config"
# The message of `ExecProvider`, with the bytes of standard error as a Python literal.
_PLUGIN_FAILED = re.compile(
    r"exec: process returned (?P<code>-?\d+)(\. (?P<stderr>b(['\"]).*\4))?", re.DOTALL
)
_MAX_STDERR_BYTES = 4000

log = logging.getLogger(__name__)


class Chosen(NamedTuple):
    """The configuration of a client, and what it says besides."""

    configuration: Configuration
    namespace: str
    """The default namespace of commands."""
    context: str = ""
    """The kubeconfig's context. Empty if there is no kubeconfig."""


class Impersonation(NamedTuple):
    """The user and the groups whose rights requests have, as kubectl's --as and --as-group."""

    user: str | None = None
    groups: tuple[str, ...] = ()

    def add_to(self, configuration: Configuration) -> None:
        """Let all requests of a client impersonate the user."""
        if self.user is None:
            return
        headers = CIMultiDict([("Impersonate-User", self.user)])
        for group in self.groups:
            headers.add("Impersonate-Group", group)
        settings = configuration.client_session_kwargs or {}
        configuration.client_session_kwargs = {**settings, "headers": headers}


def from_the_cluster_around() -> Chosen:
    """Return the configuration of a pod's service account. Raises NoClusterError."""
    configuration = _new_configuration()
    try:
        load_incluster_config(configuration)
        # HTTPS_PROXY is for registries. A company's proxy cannot reach the address of a
        # Service, and aiohttp does not support CIDRs in NO_PROXY.
        configuration.client_session_kwargs = {"trust_env": False}
        return Chosen(configuration, own_namespace())
    except Exception as error:
        raise NoClusterError(f"no cluster found: {error}") from None


async def from_kubeconfig(path: str, context: str | None) -> Chosen:
    """Return the configuration of a kubeconfig. `context` None means its current context.

    `path` names one file, or several as KUBECONFIG does. Raises NoClusterError.
    """
    configuration = _new_configuration()
    try:
        with _logged_errors() as errors:
            loader = await load_kube_config(
                config_file=path, context=context, client_configuration=configuration
            )
        chosen = loader.current_context
        context_name, namespace = chosen["name"], chosen["context"].get("namespace") or "default"
    except yaml.YAMLError as error:
        # The parser's message has several lines.
        reason = " ".join(str(error).split())
        raise NoClusterError(f"{path}: no cluster found: not YAML: {reason}") from None
    except (AttributeError, TypeError, KeyError):
        message = f"{path}: no cluster found: it is empty, or a value in it has the wrong type"
        raise NoClusterError(message) from None
    except Exception as error:  # The library has no common error for invalid kubeconfigs.
        names = context_names(path)
        if context is not None and names and context not in names:
            message = f"{path}: there is no context {context!r}; it has: {', '.join(names)}"
            raise NoClusterError(message) from None
        raise NoClusterError(f"{path}: no cluster found: {error}") from None
    if errors:
        raise NoClusterError(f"{path}: getting credentials: {'; '.join(errors)}")
    if not (isinstance(namespace, str) and isinstance(context_name, str)):
        raise NoClusterError(f"{path}: the namespace of context {context_name} is not a text")
    if not configuration.host:
        raise NoClusterError(f"{path}: the cluster of context {context_name} has no server")
    _clean_token(configuration, path)
    return Chosen(configuration, namespace, context_name)


def context_names(path: str) -> list[str]:
    """Return the names of the contexts in a kubeconfig. Empty if it cannot be read."""
    try:
        contexts, _ = list_kube_config_contexts(path)
    except Exception:  # The library has no common error for invalid kubeconfigs.
        return []
    return [str(context["name"]) for context in contexts]


def _new_configuration() -> Configuration:
    configuration = Configuration()
    # The client must not retry, because callers retry and have deadlines. The value None
    # disables retries. The client would convert False to 0, and 0 means unlimited retries of
    # 5xx responses.
    configuration.retries = None
    # kubectl accepts CAs that VERIFY_X509_STRICT rejects; see `webhook.client_tls_context`.
    configuration.disable_strict_ssl_verification = True
    return configuration


@contextmanager
def _logged_errors() -> Iterator[list[str]]:
    """Collect the errors that the library logs. It raises nothing when a plugin fails."""
    texts: list[str] = []
    handler = _Collector(texts)
    logger = logging.getLogger(_LIBRARY_LOGGER)
    propagated, logger.propagate = logger.propagate, False
    logger.addHandler(handler)
    try:
        yield texts
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagated


class _Collector(logging.Handler):
    """A handler that keeps the messages of errors, without the output of plugins."""

    def __init__(self, texts: list[str]) -> None:
        super().__init__(logging.ERROR)
        self._texts = texts

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a message as one line."""
        # The library logs the text of an error while it handles the error.
        error = sys.exc_info()[1]
        text = record.getMessage() if error is None else _describe_plugin_error(error)
        self._texts.append(" ".join(text.split()))


def _describe_plugin_error(error: BaseException) -> str:
    """Return what failed, without the output of the plugin. Log its standard error."""
    if isinstance(error, OSError):
        return f"exec: {error.strerror}: {error.filename}"  # The plugin was not started.
    failed = _PLUGIN_FAILED.fullmatch(str(error)) if isinstance(error, ConfigException) else None
    if failed is None:
        return (
            "exec: the output of the credential plugin is not an ExecCredential with the "
            "apiVersion of the kubeconfig; it is not shown, because it can contain credentials"
        )
    if failed["stderr"]:
        written = ast.literal_eval(failed["stderr"])[:_MAX_STDERR_BYTES]
        for line in written.decode(errors="replace").splitlines():
            log.warning("credential plugin: %s", line)
    return f"exec: the credential plugin ended with exit code {failed['code']}"


def _clean_token(configuration: Configuration, path: str) -> None:
    """Remove white space around the token, as kubectl does with that of a file.

    Raises NoClusterError for a token that no HTTP header can have.
    """
    token = configuration.api_key.get(_TOKEN)
    if token is None:
        return
    stripped = token.strip()
    if not (stripped.isascii() and stripped.isprintable()):
        raise NoClusterError(f"{path}: the token has characters that no token has, such as \\n")
    configuration.api_key[_TOKEN] = stripped
