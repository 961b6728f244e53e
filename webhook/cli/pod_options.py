"""What the commands have in common that read from a pod."""

from __future__ import annotations

import functools
import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypedDict

import click

from webhook.cli.options import DurationType, FiniteFloat, InputError
from webhook.core.constants import OBJECT_NAME
from webhook.core.types import format_duration

if TYPE_CHECKING:
    from webhook.client import Backoff

_KIND = re.compile(r"^(pods?|po)/")


def _object_name(
    _context: click.Context, parameter: click.Parameter, value: str | None
) -> str | None:
    """A name as Kubernetes allows it: a script whose variable is empty asks for no pod at all."""
    name = value
    if value and parameter.name == "pod":
        # `kubectl create -o name` prints pod/NAME; kubectl also takes the others.
        name = _KIND.sub("", value)
    if name and "/" in name and parameter.name == "pod":
        raise click.BadParameter(f"{value!r}: only pods: POD or pod/NAME", param=parameter)
    if name is not None and not OBJECT_NAME.fullmatch(name):
        raise click.BadParameter(f"{value!r} is not a name", param=parameter)
    return name


pod_argument = click.argument("pod", metavar="POD", callback=_object_name)
namespace_option = click.option(
    "-n",
    "--namespace",
    metavar="NAME",
    callback=_object_name,
    help="The pod's namespace. Without it: that of the kubeconfig's context, or the one in which "
    "podsettle runs.",
)


class Cluster(TypedDict):
    """Which cluster, where the command line says so."""

    kubeconfig: str | None
    context: str | None


_CLUSTER = (
    click.option(
        "--kubeconfig",
        type=click.Path(dir_okay=False),
        metavar="FILE",
        help="The kubeconfig to use instead of the one that KUBECONFIG names.",
    ),
    click.option("--context", metavar="NAME", help="The context of the kubeconfig to use."),
)


def cluster_options(command: Callable[..., None]) -> Callable[..., None]:
    """kubectl's flags that choose a cluster, which the command takes as `cluster`."""

    @functools.wraps(command)
    def wrapped(
        *arguments: Any, kubeconfig: str | None, context: str | None, **options: Any
    ) -> None:
        command(*arguments, cluster=Cluster(kubeconfig=kubeconfig, context=context), **options)

    for option in reversed(_CLUSTER):
        wrapped = option(wrapped)
    return wrapped


container_option = click.option(
    "-c",
    "--container",
    metavar="NAME",
    help="The container. Needed only if the pod has several.",
)

_BACKOFF = (
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
        help="The random share of each pause, up or down.",
    ),
    click.option(
        "--backoff-total",
        type=DurationType(),
        default="1m",
        show_default=True,
        help="How long to retry the same request.",
    ),
)


def backoff_options(command: Callable[..., None]) -> Callable[..., None]:
    """The four flags of a back-off, which the command takes as `backoff`."""

    @functools.wraps(command)
    def wrapped(
        *arguments: Any,
        backoff_first: timedelta,
        backoff_factor: float,
        backoff_jitter: float,
        backoff_total: timedelta,
        **options: Any,
    ) -> None:
        # The client takes a quarter of a second to import: only those who need it pay.
        from webhook.client import Backoff

        backoff = Backoff(
            backoff_first.total_seconds(),
            backoff_factor,
            backoff_jitter,
            backoff_total.total_seconds(),
        )
        command(*arguments, backoff=backoff, **options)

    for option in reversed(_BACKOFF):
        wrapped = option(wrapped)
    return wrapped


def log_to_stderr() -> None:
    """Say on standard error what is tried again and what is waited for."""
    logging.basicConfig(format="podsettle: %(message)s")
    logging.getLogger("webhook.client").setLevel(logging.INFO)


@contextmanager
def errors_as_input(backoff: Backoff, unknown: str) -> Iterator[None]:
    """What is wrong with the pod or the way to it, as exit code 2.

    Where the back-off was spent, that is said, and that therefore something is `unknown`.
    So is what nobody foresaw: Python's exit code 1 would look like the container's.
    """
    from webhook.client import ApiError, GaveUpError, PodError, Unreachable, may_pass
    from webhook.cluster.errors import NoClusterError

    try:
        yield
    except (ApiError, PodError, Unreachable) as error:
        text = f"the API server said {error}" if isinstance(error, ApiError) else str(error)
        # What may pass comes this far only once the back-off is spent.
        if isinstance(error, GaveUpError) or (
            may_pass(error) and not isinstance(error, NoClusterError)
        ):
            total = format_duration(round(backoff.total * 1000))
            text = f"gave up after {total} (--backoff-total): {unknown} is not known: {text}"
        raise InputError(text) from None
    except BrokenPipeError:
        raise
    except Exception as error:
        words = " ".join(str(error).split())
        raise InputError(f"{unknown} is not known: {type(error).__name__}: {words}") from error
