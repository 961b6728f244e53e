"""Options that more than one command takes, and the errors they end in."""

from __future__ import annotations

import math
import re
from datetime import timedelta
from pathlib import Path
from typing import IO, Any

import click

from webhook import __version__
from webhook.cluster.manifest_loader import ManifestsError
from webhook.cluster.manifest_source import ManifestsSource
from webhook.core.types import parse_duration

PLACEHOLDER_IMAGE = f"registry.example/podsettle/linger:{__version__}"
"""Below a top-level domain that RFC 2606 reserves: no one can publish an image of this name."""


class InputError(click.ClickException):
    """Input that cannot be used: exit code 2."""

    exit_code = 2

    def show(self, file: IO[Any] | None = None) -> None:
        """Print the message as it is, for people and for tools that parse it."""
        click.echo(f"podsettle: {self.format_message()}", file=file, err=True)


_REFERENCE = re.compile(
    r"([a-zA-Z0-9][-a-zA-Z0-9.]*(:[0-9]+)?/)?[a-z0-9]+([._/-]+[a-z0-9]+)*"
    r"(:[A-Za-z0-9_][-A-Za-z0-9_.]{0,127})?(@[a-z0-9]+:[0-9a-f]{32,})?"
)


def image_reference(
    _context: click.Context, parameter: click.Parameter, value: str | None
) -> str | None:
    """The reference, or None for an empty one: a container without an image would be refused."""
    if value and not _REFERENCE.fullmatch(value):
        raise click.BadParameter(f"{value!r} is not an image reference", param=parameter)
    return value or None


class DurationType(click.ParamType[timedelta]):
    """A duration such as `10s`, as a timedelta."""

    name = "duration"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> timedelta:
        """The duration in a text."""
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
    """A number in a range, whose comparisons alone would let NaN and infinity pass."""

    def convert(
        self, value: float, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The number in a text."""
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
    callback=image_reference,
    metavar="IMAGE",
    help="The image of the helper, the program that wraps containers without a shell.",
)


def load_manifests(directory: Path) -> ManifestsSource:
    """The manifests in a directory, read once."""
    source = ManifestsSource(directory)
    try:
        source.refresh()
    except ManifestsError as error:
        raise InputError(str(error)) from None
    return source
