"""The interface of checks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from webhook.inspect.doctor.model import Result
from webhook.inspect.doctor.round_readings import Installed


class DoctorCheck(NamedTuple):
    """One check of an installation."""

    name: str
    what: str
    """What is checked, as a clause that begins with `whether` or `how`."""
    run: Callable[[Installed], Awaitable[Sequence[Result]]]
    """Return the results. It raises NotAllowedError if the user lacks a right, and ApiError or
    Unreachable if the API server gives no usable answer."""
    blocked_by: tuple[str, ...] = ()
    """The names of earlier checks. If one of them has a fault, this check has no answer. So one
    cause gives one fault."""
