"""Options that several commands share, and the errors of these commands."""

from __future__ import annotations

import functools
import math
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, fields
from datetime import timedelta
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import click
from click.core import ParameterSource

from webhook import __version__
from webhook.cli.completions import complete_contexts, complete_namespaces, complete_pods
from webhook.cli.echo import echo_text
from webhook.cluster.manifest_files_source import ManifestsSource
from webhook.cluster.manifest_loader import ManifestsError
from webhook.cluster.progress import OnProgress, ignore_progress
from webhook.core.constants import OBJECT_NAME
from webhook.core.docs_url import docs_url_problem
from webhook.core.durations import parse_duration
from webhook.inspect.cluster_flags import ClusterFlags

if TYPE_CHECKING:
    from webhook.cluster.client import ApiServer
    from webhook.cluster.manifests import Manifests

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


_IMAGE_REFERENCE = re.compile(
    r"([a-zA-Z0-9][-a-zA-Z0-9.]*(:[0-9]+)?/)?[a-z0-9]+([._/-]+[a-z0-9]+)*"
    r"(:[A-Za-z0-9_][-A-Za-z0-9_.]{0,127})?(@[a-z0-9]+:[0-9a-f]{32,})?"
)


def check_docs_url(
    _context: click.Context, parameter: click.Parameter, value: str | None
) -> str | None:
    """Return a valid URL of a page, or None for an empty text. Raise click.BadParameter."""
    if not value:
        return None
    if problem := docs_url_problem(value):
        raise click.BadParameter(problem, param=parameter)
    return value


def check_image_reference(
    _context: click.Context, parameter: click.Parameter, value: str | None
) -> str | None:
    """Return a valid image reference, or None for an empty text. Raise click.BadParameter."""
    if value and not _IMAGE_REFERENCE.fullmatch(value):
        raise click.BadParameter(f"{value!r} is not an image reference", param=parameter)
    return value or None


class DurationType(click.ParamType[timedelta]):
    """An option type that converts a duration such as `10s` to a timedelta."""

    name = "duration"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> timedelta:
        """Parse a duration."""
        if isinstance(value, timedelta):
            return value
        try:
            return timedelta(milliseconds=parse_duration(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)
        except OverflowError:
            hours = timedelta.max.days * 24
            self.fail(f"{value!r} is too long: {hours}h is the longest", param, ctx)


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


paths_argument = click.argument(
    "paths",
    nargs=-1,
    required=True,
    type=click.Path(allow_dash=True, path_type=Path),
    metavar="PATH...",
)
certs_dir_option = click.option(
    "--certs-dir",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("certs"),
    envvar="PODSETTLE_CERTS_DIR",
    show_envvar=True,
    show_default=True,
    metavar="DIR",
    help="The directory of ca.crt, tls.crt and tls.key.",
)


def _check_linger_image(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> str | None:
    """Return a valid image reference, or the value itself if it is empty or None."""
    return check_image_reference(context, parameter, value) if value else value


linger_image_option = click.option(
    "--linger-image",
    envvar="PODSETTLE_LINGER_IMAGE",
    show_envvar=True,
    show_default=f"that of the installation in the cluster, else {PLACEHOLDER_IMAGE}",
    callback=_check_linger_image,
    metavar="IMAGE",
    help="The image of the helper, the program that wraps containers without a shell.",
)


_STDIN = Path("-")


def load_manifests(*paths: Path) -> ManifestsSource:
    """Read manifests. Raise InputError if a path cannot be read."""
    source = ManifestsSource(*paths)
    try:
        source.refresh()
    except ManifestsError as error:
        raise InputError(str(error)) from None
    return source


def read_all_manifests(
    paths: tuple[Path, ...], on_progress: OnProgress = ignore_progress
) -> Manifests:
    """Read manifests once, of which `-` is standard input. Raises InputError."""
    from webhook.cluster.manifests import read_manifests

    try:
        return read_manifests(paths, sys.stdin.buffer.read, on_progress)
    except ManifestsError as error:
        raise InputError(str(error)) from None


_POD_PREFIX = re.compile(r"^(pods?|po)/")


def check_object_name(
    _context: click.Context, parameter: click.Parameter, value: str | None
) -> str | None:
    """Return a valid object name, without the prefix `pod/` of the argument POD.

    An empty name is rejected, because it often comes from a shell variable that is not set.
    """
    name = value
    if value and parameter.name == "pod":
        # `kubectl create -o name` prints pod/NAME. kubectl also accepts the other two prefixes.
        name = _POD_PREFIX.sub("", value)
    if name and "/" in name and parameter.name == "pod":
        raise click.BadParameter(f"{value!r} is not a pod: give NAME or pod/NAME", param=parameter)
    if name is not None and not OBJECT_NAME.fullmatch(name):
        raise click.BadParameter(f"{value!r} is not a valid name", param=parameter)
    return name


pod_argument = click.argument(
    "pod", metavar="POD", callback=check_object_name, shell_complete=complete_pods
)
namespace_option = click.option(
    "-n",
    "--namespace",
    metavar="NAME",
    callback=check_object_name,
    shell_complete=complete_namespaces,
    help="The pod's namespace. The default is the namespace of the kubeconfig's context, or the "
    "namespace in which podsettle runs.",
)


@dataclass(frozen=True)
class Cluster:
    """The flags that choose a cluster and a user. None means kubectl's default."""

    kubeconfig: str | None = None
    context: str | None = None
    as_user: str | None = None
    as_groups: tuple[str, ...] = ()
    request_timeout: timedelta | None = None

    @property
    def is_chosen(self) -> bool:
        """Whether a flag is given. Else it is the cluster that kubectl would use."""
        return self != Cluster()

    @property
    def flags(self) -> ClusterFlags:
        """The flags of printed commands."""
        return ClusterFlags(self.kubeconfig, self.context, self.as_user, self.as_groups)

    async def connect(self) -> ApiServer:
        """Return a client for the cluster. Raises NoClusterError."""
        # Imported here, because the import takes 0.4 s and 60 MiB.
        from webhook.cluster.client import ApiServer
        from webhook.kubeconfig.access import Impersonation

        return await ApiServer.connect(
            kubeconfig=self.kubeconfig,
            context=self.context,
            impersonation=Impersonation(self.as_user, self.as_groups),
            request_timeout=self.request_timeout,
        )


class RequestTimeoutType(DurationType):
    """An option type for a duration that may also be a number of seconds, as in kubectl."""

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> timedelta:
        """Parse a duration or a number of seconds."""
        if isinstance(value, str) and value.isascii() and value.isdecimal():
            value = f"{value}s"
        return super().convert(value, param, ctx)


def _check_header(
    context: click.Context, parameter: click.Parameter, value: Any
) -> str | tuple[str, ...] | None:
    """Return names that a header can have. Raise click.BadParameter."""
    names: str | tuple[str, ...] | None = value
    for name in (names,) if isinstance(names, str) else names or ():
        if not (name and name.isascii() and name.isprintable()):
            raise click.BadParameter(f"{name!r} is not a name", context, parameter)
    return names


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
        shell_complete=complete_contexts,
        help="The context of the kubeconfig to use.",
    ),
    click.option(
        "--as",
        "as_user",
        metavar="USER",
        callback=_check_header,
        help="The user whose rights are used, such as system:serviceaccount:ci:default.",
    ),
    click.option(
        "--as-group",
        "as_groups",
        multiple=True,
        metavar="GROUP",
        callback=_check_header,
        help="A group whose rights are used with --as. Can be repeated.",
    ),
    click.option(
        "--request-timeout",
        type=RequestTimeoutType(),
        metavar="DURATION",
        show_default="10s, and 30s for a page of a list",
        help="The limit for each request to the API server, such as 1m. 0 means none.",
    ),
)


def cluster_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add kubectl's flags for a cluster to a command. The command gets the parameter `cluster`."""

    @functools.wraps(command)
    def wrapper(*arguments: Any, **options: Any) -> None:
        cluster = Cluster(**{each.name: options.pop(each.name) for each in fields(Cluster)})
        if cluster.as_groups and cluster.as_user is None:
            raise click.UsageError("--as-group has no effect without --as")
        command(*arguments, cluster=cluster, **options)

    for option in reversed(_CLUSTER_OPTIONS):
        wrapper = option(wrapper)
    return wrapper


class ViewChoice(NamedTuple):
    """What a command looks at: manifests if there are any, else a cluster."""

    manifests: tuple[Path, ...]
    cluster: Cluster

    @property
    def names_cluster(self) -> bool:
        """Whether a flag chooses the cluster. Else it is the one that kubectl would use."""
        return self.cluster.is_chosen


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
        if _STDIN in manifests and _STDIN in options.get("paths", ()):
            raise click.UsageError("standard input can be read only once: give - only once")
        command(*arguments, view=ViewChoice(manifests, cluster), **options)

    return _MANIFESTS_OPTION(cluster_options(wrapper))


def _log_requests(_context: click.Context, _parameter: click.Parameter, verbose: bool) -> None:
    if verbose:
        from webhook.cli.logging import log_requests

        log_requests()


verbose_option = click.option(
    "-v",
    "--verbose",
    is_flag=True,
    expose_value=False,
    callback=_log_requests,
    help="Print each request to the API server to standard error.",
)
container_option = click.option(
    "-c",
    "--container",
    metavar="NAME",
    help="The name of the container. Needed only if the pod has several containers.",
)
