"""Options that several commands share, and the errors of these commands."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypedDict

import click

from webhook import __version__
from webhook.cluster.manifest_loader import ManifestsError
from webhook.cluster.manifest_source import ManifestsSource
from webhook.core.constants import OBJECT_NAME
from webhook.core.types import format_duration, parse_duration

if TYPE_CHECKING:
    from webhook.client import Backoff

# RFC 2606 reserves the domain `example`, so an attacker cannot publish an image with this name.
PLACEHOLDER_IMAGE = f"registry.example/podsettle/linger:{__version__}"


class InputError(click.ClickException):
    """An error in the input, which ends the command with exit code 2."""

    exit_code = 2

    def show(self, file: IO[Any] | None = None) -> None:
        """Print the message without the prefix and the usage that click adds."""
        click.echo(f"podsettle: {self.format_message()}", file=file, err=True)


_IMAGE_REFERENCE = re.compile(
    r"([a-zA-Z0-9][-a-zA-Z0-9.]*(:[0-9]+)?/)?[a-z0-9]+([._/-]+[a-z0-9]+)*"
    r"(:[A-Za-z0-9_][-A-Za-z0-9_.]{0,127})?(@[a-z0-9]+:[0-9a-f]{32,})?"
)


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
manifests_option = click.option(
    "--manifests",
    type=click.Path(file_okay=False, path_type=Path),
    required=True,
    envvar="PODSETTLE_MANIFESTS",
    show_envvar=True,
    metavar="DIR",
    help="A directory of files that describes the cluster: SettlePolicy, Namespace, RuntimeClass "
    "and Node documents.",
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
linger_image_option = click.option(
    "--linger-image",
    default=PLACEHOLDER_IMAGE,
    envvar="PODSETTLE_LINGER_IMAGE",
    show_envvar=True,
    show_default=True,
    callback=check_image_reference,
    metavar="IMAGE",
    help="The image of the helper, the program that wraps containers without a shell.",
)


def load_manifests(directory: Path) -> ManifestsSource:
    """Read the manifests in a directory. Raise InputError if the directory cannot be read."""
    source = ManifestsSource(directory)
    try:
        source.refresh()
    except ManifestsError as error:
        raise InputError(str(error)) from None
    return source


_POD_PREFIX = re.compile(r"^(pods?|po)/")


def _check_object_name(
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


pod_argument = click.argument("pod", metavar="POD", callback=_check_object_name)
namespace_option = click.option(
    "-n",
    "--namespace",
    metavar="NAME",
    callback=_check_object_name,
    help="The pod's namespace. The default is the namespace of the kubeconfig's context, or the "
    "namespace in which podsettle runs.",
)


class Cluster(TypedDict):
    """The flags that choose a cluster. None means kubectl's default."""

    kubeconfig: str | None
    context: str | None


_CLUSTER_OPTIONS = (
    click.option(
        "--kubeconfig",
        type=click.Path(dir_okay=False),
        metavar="FILE",
        help="The kubeconfig to use instead of the one that KUBECONFIG names.",
    ),
    click.option("--context", metavar="NAME", help="The context of the kubeconfig to use."),
)


def cluster_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add kubectl's flags for a cluster to a command. The command gets the parameter `cluster`."""

    @functools.wraps(command)
    def wrapper(
        *arguments: Any, kubeconfig: str | None, context: str | None, **options: Any
    ) -> None:
        command(*arguments, cluster=Cluster(kubeconfig=kubeconfig, context=context), **options)

    for option in reversed(_CLUSTER_OPTIONS):
        wrapper = option(wrapper)
    return wrapper


container_option = click.option(
    "-c",
    "--container",
    metavar="NAME",
    help="The name of the container. Needed only if the pod has several containers.",
)

_BACKOFF_OPTIONS = (
    click.option(
        "--backoff-first",
        type=DurationType(),
        default="500ms",
        show_default=True,
        help="The pause before the first retry.",
    ),
    click.option(
        "--backoff-factor",
        type=FiniteFloat(min=1),
        default=1.5,
        show_default=True,
        help="The factor by which each pause is longer than the one before.",
    ),
    click.option(
        "--backoff-jitter",
        type=FiniteFloat(0, 1),
        default=0.5,
        show_default=True,
        help="The largest random change of a pause: 0.5 makes it up to 50 % shorter or longer.",
    ),
    click.option(
        "--backoff-total",
        type=DurationType(),
        default="1m",
        show_default=True,
        help="How long to retry a request after its first failure.",
    ),
)


def backoff_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the four flags of a back-off to a command. The command gets the parameter `backoff`."""

    @functools.wraps(command)
    def wrapper(
        *arguments: Any,
        backoff_first: timedelta,
        backoff_factor: float,
        backoff_jitter: float,
        backoff_total: timedelta,
        **options: Any,
    ) -> None:
        # Imported here, because the import takes 0.4 s and few commands need it.
        from webhook.client import Backoff

        backoff = Backoff(
            backoff_first.total_seconds(),
            backoff_factor,
            backoff_jitter,
            backoff_total.total_seconds(),
        )
        command(*arguments, backoff=backoff, **options)

    for option in reversed(_BACKOFF_OPTIONS):
        wrapper = option(wrapper)
    return wrapper


@contextmanager
def report_errors(backoff: Backoff, result: str) -> Iterator[None]:
    """Convert errors in the block to InputError, because its exit code is 2.

    `result` names the output of the command, such as "the exit code of POD". The messages say that
    the result is not known. Unexpected errors are converted too. Otherwise Python would exit with
    1, and a caller could mistake this for the container's exit code.
    """
    from webhook.client import ApiError, GaveUpError, PodError, Unreachable, is_retryable
    from webhook.cluster.errors import NoClusterError

    try:
        yield
    except (ApiError, PodError, Unreachable) as error:
        text = f"the API server answered {error}" if isinstance(error, ApiError) else str(error)
        # A retryable error arrives here only after the back-off is spent.
        if isinstance(error, GaveUpError) or (
            is_retryable(error) and not isinstance(error, NoClusterError)
        ):
            total = format_duration(round(backoff.total * 1000))
            text = f"gave up after {total} (--backoff-total): {result} is not known: {text}"
        raise InputError(text) from None
    except BrokenPipeError:
        raise
    except Exception as error:
        message = " ".join(str(error).split())
        raise InputError(f"{result} is not known: {type(error).__name__}: {message}") from error
