"""The answer to `/readyz?verbose`, which the server writes and `podsettle doctor` reads."""

from __future__ import annotations

from pydantic import AwareDatetime

from webhook.core.types import CamelCaseModel


class ReadinessCheck(CamelCaseModel):
    """The result of one readiness check."""

    name: str
    ready: bool
    """Whether the check passes."""
    note: str = ""
    """The problem. A check with a note may pass: the server answers correctly despite it."""


class Readiness(CamelCaseModel):
    """The results of all readiness checks of a replica."""

    ready: bool
    """Whether every check passes."""
    certificate_expires: AwareDatetime
    checks: tuple[ReadinessCheck, ...]
