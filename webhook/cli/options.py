"""Options that several commands share, and the errors of these commands."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple, TypeVar

import click
from click.core import ParameterSource

from webhook import __version__
from webhook.cli.echo import echo_text
from webhook.core.constants import OBJECT_NAME
from webhook.core.durations import parse_duration
from webhook.core.labels import parse_labels
from webhook.core.types import TextPattern
from webhook.inspect.cluster_flags import NO_FLAGS, ClusterFlags

if TYPE_CHECKING:
    from webhook.cluster.client import ApiServer

T = TypeVar("T")

# RFC 2606 reserves the domain `example`, so an attacker cannot publish an image with this name.
PLACEHOLDER_IMAGE = f"registry.example/podsettle/linger:{__version__}"


class InputError(click.ClickException):
    """An error in the input, which ends the command with exit code 2."""

    exit_code = 2

    def show(self, file: IO[Any] | None = None) -> None:  # noqa: ARG002 (the name is click's)
        """Print the message without the prefix and the usage that click adds."""
        # Indented, a line of the API server's message cannot be mistaken for another message.
        message = self.format_message().replace("\n", "\n  ")
        echo_text(f"podsettle: {message}\n", err=True)


class Parsed(click.ParamType[T]):
    """An option type whose values a function parses. Its ValueErrors have the user's message."""

    def __init__(self, name: str, parse: Callable[[str], T]) -> None:
        """`name` is what the help shows for a value."""
        self.name = name
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> T:
        """Parse a value. One that is parsed already, such as a default, stays as it is."""
        if not isinstance(value, str):
            return value  # type: ignore[no-any-return]
        try:
            return self._parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class FiniteFloat(click.FloatRange):
    """An option type for a finite number in a range. click's FloatRange also accepts NaN."""

    def convert(
        self, value: float, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Parse a number."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number", param, ctx)
        return number


def _parse_duration(text: str) -> timedelta:
    try:
        return timedelta(milliseconds=parse_duration(text))
    except OverflowError:
        hours = timedelta.max.days * 24
        raise ValueError(f"{text!r} is too long: {hours}h is the longest") from None


def _parse_seconds_or_duration(text: str) -> timedelta:
    return _parse_duration(f"{text}s" if text.isascii() and text.isdecimal() else text)


DURATION = Parsed("duration", _parse_duration)
KUBECTL_DURATION = Parsed("duration", _parse_seconds_or_duration)
"""As in kubectl, the duration may also be a number of seconds."""

_IMAGE = TextPattern(
    r"|([a-zA-Z0-9][-a-zA-Z0-9.]*(:[0-9]+)?/)?[a-z0-9]+([._/-]+[a-z0-9]+)*"
    r"(:[A-Za-z0-9_][-A-Za-z0-9_.]{0,127})?(@[a-z0-9]+:[0-9a-f]{32,})?",
    "is not an image reference",
)
IMAGE = Parsed("image", _IMAGE.check)
"""A reference, or an empty text for no image."""

_POD_PREFIX = re.compile(r"^(pods?|po)/")
# An empty name is refused, because it often comes from a shell variable that is not set.
_NAME = TextPattern(OBJECT_NAME.pattern, "is not a valid name")


def _parse_pod(text: str) -> str:
    # `kubectl create -o name` prints pod/NAME. kubectl also accepts the other two prefixes.
    name = _POD_PREFIX.sub("", text)
    if "/" in name:
        raise ValueError(f"{text!r} is not a pod: give NAME or pod/NAME")
    return _NAME.check(name)


def parse_label_options(
    _context: click.Context, parameter: click.Parameter, pairs: tuple[str, ...]
) -> dict[str, str]:
    """Return the labels of a repeated option KEY=VALUE. Raise click.BadParameter."""
    try:
        return parse_labels(pairs)
    except ValueError as error:
        raise click.BadParameter(str(error), param=parameter) from None


NAME = Parsed("name", _NAME.check)
_HEADER = Parsed("name", TextPattern("[ -~]+", "is not a name").check)

paths_argument = click.argument(
    "paths",
    nargs=-1,
    required=True,
    type=click.Path(allow_dash=True, path_type=Path),
    metavar="PATH...",
)
CERTS_DIR: dict[str, Any] = {
    "type": click.Path(file_okay=False, path_type=Path),
    "default": Path("certs"),
    "envvar": "PODSETTLE_CERTS_DIR",
    "metavar": "DIR",
    "help": "The directory of ca.crt, tls.crt and tls.key.",
}
"""The attributes of the option --certs-dir."""


def namespace_flag(about: str) -> Callable[[Callable[..., None]], Any]:
    """Return the option -n of a command."""
    return click.option("-n", "--namespace", metavar="NAME", type=NAME, help=about)


namespace_option = namespace_flag(
    "The pod's namespace. The default is the namespace of the kubeconfig's context, or the "
    "namespace in which podsettle runs."
)


def container_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the argument POD, and the options -n and -c, which choose a container of the pod."""
    about = "The name of the container. Needed only if the pod has several containers."
    command = namespace_option(
        click.option("-c", "--container", metavar="NAME", help=about)(command)
    )
    return click.argument("pod", metavar="POD", type=Parsed("pod", _parse_pod))(command)


def output_option(*formats: str, about: str) -> Callable[[Callable[..., None]], Any]:
    """Return the option -o of a command with some formats, the first of which is the default."""
    choice = click.Choice(formats)
    return click.option("-o", "--output", type=choice, default=formats[0], help=about)


class Cluster(NamedTuple):
    """The cluster and the user that flags choose. None means kubectl's default."""

    flags: ClusterFlags = NO_FLAGS
    """The flags, which printed commands have too."""
    request_timeout: timedelta | None = None

    @property
    def is_chosen(self) -> bool:
        """Whether a flag is given. Else it is the cluster that kubectl would use."""
        return self != Cluster()

    async def connect(self) -> ApiServer:
        """Return a client for the cluster. Raises NoClusterError."""
        # Imported here, because the import takes 0.4 s and 60 MiB.
        from webhook.cluster.client import ApiServer
        from webhook.kubeconfig.access import Impersonation

        kubeconfig, context, user, groups = self.flags
        return await ApiServer.connect(
            kubeconfig=kubeconfig,
            context=context,
            impersonation=Impersonation(user, groups),
            request_timeout=self.request_timeout,
        )


def _complete_contexts(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    from webhook.kubeconfig.access import context_names
    from webhook.kubeconfig.paths import kubeconfig_paths

    names = context_names(kubeconfig_paths(context.params.get("kubeconfig")))
    return [name for name in names if name.startswith(incomplete)]


def _log_requests(_context: click.Context, _parameter: click.Parameter, chosen: bool) -> None:
    if chosen:
        from webhook.cli.logging import log_requests

        log_requests()


_CLUSTER_OPTIONS = (
    click.option(
        "--kubeconfig",
        type=click.Path(dir_okay=False),
        metavar="FILE",
        help="The kubeconfig to use instead of the one that KUBECONFIG names.",
    ),
    click.option(
        "--context",
        metavar="NAME",
        shell_complete=_complete_contexts,
        help="The context of the kubeconfig to use.",
    ),
    click.option(
        "--as",
        "as_user",
        metavar="USER",
        type=_HEADER,
        help="The user whose rights are used, such as system:serviceaccount:ci:default.",
    ),
    click.option(
        "--as-group",
        "as_groups",
        multiple=True,
        metavar="GROUP",
        type=_HEADER,
        help="A group whose rights are used with --as. Can be repeated.",
    ),
    click.option(
        "--request-timeout",
        type=KUBECTL_DURATION,
        metavar="DURATION",
        show_default="10s, and 30s for a page of a list",
        help="The limit for each request to the API server, such as 1m. 0 means none.",
    ),
    click.option(
        "--log-requests",
        is_flag=True,
        expose_value=False,
        callback=_log_requests,
        help="Print each request to the API server to standard error.",
    ),
)


def cluster_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add kubectl's flags for a cluster to a command. The command gets the parameter `cluster`."""

    @functools.wraps(command)
    def wrapper(*arguments: Any, **options: Any) -> None:
        flags = ClusterFlags(*map(options.pop, ClusterFlags._fields))
        cluster = Cluster(flags, options.pop("request_timeout"))
        command(*arguments, cluster=cluster, **options)

    for option in reversed(_CLUSTER_OPTIONS):
        wrapper = option(wrapper)
    return wrapper


class ViewChoice(NamedTuple):
    """What a command looks at: manifests if there are any, else a cluster."""

    manifests: tuple[Path, ...]
    cluster: Cluster

    @property
    def manifest_flags(self) -> list[str]:
        """The flags of printed commands. FILE stands for a copy of standard input."""
        files = ("FILE" if str(path) == "-" else str(path) for path in self.manifests)
        return [word for file in files for word in ("--manifests", file)]


_MANIFESTS_OPTION = click.option(
    "--manifests",
    type=click.Path(allow_dash=True, path_type=Path),
    multiple=True,
    envvar="PODSETTLE_MANIFESTS",
    show_envvar=True,
    metavar="PATH",
    help="A file or directory that describes the cluster, or - for standard input: SettlePolicy, "
    "Namespace, RuntimeClass and Node documents. Can be repeated. Without it, the cluster of the "
    "kubeconfig is read.",
)


def view_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add --manifests and kubectl's flags to a command. The command gets the parameter `view`."""

    @functools.wraps(command)
    def wrapper(
        *arguments: Any, manifests: tuple[Path, ...], cluster: Cluster, **options: Any
    ) -> None:
        if manifests and cluster.is_chosen:
            source = click.get_current_context().get_parameter_source("manifests")
            if source is not ParameterSource.ENVIRONMENT:
                raise click.UsageError(
                    "give --manifests, or flags that choose a cluster such as --context, not both"
                )
            manifests = ()
        read = [*manifests, *options.get("paths", ()), *options.get("names", ())]
        if list(map(str, read)).count("-") > 1:
            raise click.UsageError("standard input can be read only once: give - only once")
        command(*arguments, view=ViewChoice(manifests, cluster), **options)

    return _MANIFESTS_OPTION(cluster_options(wrapper))
