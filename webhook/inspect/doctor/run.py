"""The rounds of checks of `podsettle doctor`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeAlias

from webhook.cluster.client import ApiServer
from webhook.cluster.errors import ApiError, Unreachable
from webhook.cluster.reader import ClusterReader
from webhook.cluster.unread import NotAllowedError
from webhook.cluster.view_reader import read_view
from webhook.inspect.cluster_flags import ClusterFlags
from webhook.inspect.doctor.checks import CHECKS
from webhook.inspect.doctor.checks.check import DoctorCheck
from webhook.inspect.doctor.checks.exported_policies import (
    EXPORTED,
    Compared,
    find_exported,
    judge_exported,
)
from webhook.inspect.doctor.model import (
    Advice,
    CheckResult,
    DoctorReport,
    Result,
    State,
    not_looked_at,
    ok,
    unknown,
)
from webhook.inspect.doctor.round_readings import Installed, NewImageResolver
from webhook.inspect.installation import Absent, find_installation

_PAUSE_SECONDS = 2.0

_Line: TypeAlias = tuple[str, str, Result]
"""The name of a check, what it checks, and a result of it."""


async def diagnose(
    server: ApiServer,
    *,
    namespace: str | None,
    chosen_namespace: str | None,
    new_image_resolver: NewImageResolver,
    flags: ClusterFlags,
) -> DoctorReport:
    """Run every check once. Raises Unreachable if the API server does not answer.

    `namespace` is the namespace of the installation, and `chosen_namespace` is that of the dry run.
    The commands of the advice get `flags`.
    """
    reader = ClusterReader(server)
    try:
        found = await find_installation(reader, namespace)
        if isinstance(found, Absent):
            lines = await _without_webhook(server, found, reader, is_wanted=namespace is not None)
            return _report(server, "", lines, flags)
    except ApiError as error:
        line = _absence_line(unknown(f"the API server answered {error}"))
        return _report(server, "", [line], flags)
    installed = Installed(server, found, new_image_resolver, chosen_namespace)
    lines = []
    for check in CHECKS:
        results = await _run(check, installed)
        installed.states[check.name] = [each.state for each in results]
        lines += [(check.name, check.what, each) for each in results]
    return _report(server, f"{found.namespace}/{found.name}", lines, flags)


async def repeat_until_healthy(
    diagnose_once: Callable[[], Awaitable[DoctorReport]],
    seconds: float,
    pause_seconds: float = _PAUSE_SECONDS,
) -> DoctorReport:
    """Repeat all checks until none finds a fault, or until the time is over.

    The API server may be restarting, so an answer that it does not give is no result either. Raises
    Unreachable if the last round got none.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            report = await diagnose_once()
        except Unreachable:
            if time.monotonic() + pause_seconds > deadline:
                raise
        else:
            is_settled = not report.faults and not report.is_unanswered
            if is_settled or time.monotonic() + pause_seconds > deadline:
                return report
        await asyncio.sleep(pause_seconds)


async def _run(check: DoctorCheck, installed: Installed) -> Sequence[Result]:
    blocking = [name for name in check.blocked_by if installed.has_fault(name)]
    if blocking:
        return [unknown(f"it depends on {' and '.join(blocking)}, which has a fault")]
    try:
        return await check.run(installed)
    except NotAllowedError as error:
        return [not_looked_at(error)]
    except ApiError as error:
        return [unknown(f"the API server answered {error}")]
    except Unreachable as error:
        return [unknown(str(error))]


async def _without_webhook(
    server: ApiServer, absent: Absent, reader: ClusterReader, *, is_wanted: bool
) -> list[_Line]:
    """Return the lines about native policies, which need no installation.

    `is_wanted` says whether the user named the namespace of an installation. Raises ApiError and
    Unreachable.
    """
    absence, found = _absence(absent), await find_exported(reader)
    results = [*found.unread]
    if found.are_any:
        compared = Compared(await read_view(server), is_webhook_registered=False)
        results[:0] = judge_exported(found.by_api, compared)
        if absence.state is State.FAULT and not is_wanted and not absent.several:
            absence = ok(f"{absent.why}; native policies need none")
    lines = [(EXPORTED.name, EXPORTED.what, each) for each in results]
    return [_absence_line(absence), *lines]


def _absence_line(result: Result) -> _Line:
    return ("installation", "whether podsettle is installed", result)


def _absence(absent: Absent) -> Result:
    if absent.rights:
        rights = " and ".join(map(str, absent.rights))
        sentence = "Name the namespace of the installation with -n, or ask for the right."
        commands = tuple(right.command for right in absent.rights)
        text = f"{absent.why}: needs the right to {rights}"
        return Result(State.NOT_LOOKED_AT, text, Advice(sentence, commands), rights)
    sentence = "Install podsettle, or name the namespace of the installation with -n."
    return Result(State.FAULT, absent.why, Advice(sentence))


def _report(
    server: ApiServer, installation: str, lines: Iterable[_Line], flags: ClusterFlags
) -> DoctorReport:
    checks = (
        CheckResult(
            check,
            result.state,
            what,
            result.result,
            result.advice.printed(flags) if result.advice else None,
            result.right,
        )
        for check, what, result in lines
    )
    return DoctorReport(server.title, installation, tuple(checks))
