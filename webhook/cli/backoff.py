"""The options of a back-off, and the errors of the commands that have them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from webhook.cli.options import DURATION, FiniteFloat, InputError
from webhook.core.durations import format_duration

if TYPE_CHECKING:
    from webhook.client import Backoff

_OPTIONS: dict[str, tuple[click.ParamType[Any], object, str]] = {
    "first": (DURATION, "500ms", "The pause before the first retry."),
    "factor": (
        FiniteFloat(min=1),
        1.5,
        "The factor by which each pause is longer than the one before.",
    ),
    "jitter": (
        FiniteFloat(0, 1),
        0.5,
        "The largest random change of a pause: 0.5 makes it up to 50 % shorter or longer.",
    ),
    "max": (DURATION, "1m", "The pause from which pauses no longer grow."),
    "total": (DURATION, "1m", "How long to retry a request after its first failure."),
}
"""The type, the default and the help of each option --backoff-NAME."""


def backoff_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the flags of a back-off to a command. The command gets the parameter `backoff`."""

    @functools.wraps(command)
    def wrapper(*arguments: Any, **options: Any) -> None:
        # Imported here, because the import takes 0.4 s and few commands need it.
        from webhook.client import Backoff

        given = {name: options.pop(f"backoff_{name}") for name in _OPTIONS}
        for name, value in given.items():
            if isinstance(value, timedelta):
                given[name] = value.total_seconds()
        backoff = Backoff(max_pause=given.pop("max"), **given)
        command(*arguments, backoff=backoff, **options)

    for name, (kind, default, about) in reversed(_OPTIONS.items()):
        wrapper = click.option(f"--backoff-{name}", type=kind, default=default, help=about)(wrapper)
    return wrapper


@contextmanager
def report_errors(
    backoff: Backoff, result: str, timeout: timedelta | None = None
) -> Iterator[None]:
    """Convert errors in the block to InputError, because its exit code is 2.

    `result` names the output of the command, such as "the exit code of POD". The messages say that
    the result is not known. `timeout` is the value of --timeout. Unexpected errors are converted
    too. Otherwise Python would exit with 1, and a caller could mistake this for the container's
    exit code.
    """
    from webhook.client import (
        ApiError,
        GaveUpError,
        PodError,
        Unreachable,
        WaitTimeoutError,
        is_retryable,
    )
    from webhook.cluster.errors import NoClusterError

    try:
        yield
    except (ApiError, PodError, Unreachable) as error:
        text = f"the API server answered {error}" if isinstance(error, ApiError) else str(error)
        # A retryable error arrives here only after the back-off is spent.
        if isinstance(error, GaveUpError | WaitTimeoutError) or (
            is_retryable(error) and not isinstance(error, NoClusterError)
        ):
            seconds, option = backoff.total, "--backoff-total"
            limit = seconds if timeout is None else timeout.total_seconds()
            if isinstance(error, WaitTimeoutError) or limit < seconds:
                seconds, option = limit, "--timeout"
            total = format_duration(round(seconds * 1000))
            text = f"gave up after {total} ({option}): {result} is not known: {text}"
        raise InputError(text) from None
    except BrokenPipeError:
        raise
    except Exception as error:
        message = " ".join(str(error).split())
        raise InputError(f"{result} is not known: {type(error).__name__}: {message}") from error
