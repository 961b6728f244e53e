"""The checks of an installation, in the order in which they run, and the rounds of them.

To add a check:

1. Write an async generator in a module of `checks`. It gets an `Installed` and yields findings,
   such as `State.FAULT("no replica exists")`. It may raise `UnansweredError`, and what requests
   raise.
2. Add a line to `CHECKS`. If one of the earlier findings in `blocked_by` is a fault, the check does
   not run, so that one cause gives one fault.
3. Add a section with the check's name to "What doctor finds" in docs/operations.md, with commands
   that end the fault.
4. Plant the fault in tests/e2e/inspect/test_doctor_faults.py, which runs the section's commands.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import NamedTuple

from webhook.cluster.client import ApiServer
from webhook.cluster.errors import ApiError, Unreachable
from webhook.cluster.progress import OnProgress
from webhook.cluster.raw_responses import well_formed
from webhook.cluster.reader import ClusterReader
from webhook.cluster.rights import NotAllowedError, Right
from webhook.images.lookup import ImageLookup
from webhook.inspect.cluster_flags import ClusterFlags
from webhook.inspect.doctor.checks import api_server, policies, replicas
from webhook.inspect.doctor.model import DoctorReport, Finding, Installed, State, UnansweredError
from webhook.inspect.installation import Absent, Installation, find_installation

GUIDE = "docs/operations.md"
"""The page with a section for each check."""
_PAUSE_SECONDS = 2.0
_PROGRESS_SECONDS = 0.5


class DoctorCheck(NamedTuple):
    """One check of an installation."""

    name: str
    run: Callable[[Installed], AsyncIterator[Finding]]
    holds: str = ""
    """What is true if the check yields nothing, as a clause."""
    blocked_by: tuple[str, ...] = ()
    """The names of earlier findings. If one of them is a fault, the check has no answer."""


CHECKS = (
    DoctorCheck("replicas", replicas.check_count),
    DoctorCheck("permissions", api_server.check_permissions, "the ServiceAccount has its rights"),
    DoctorCheck("webhook configuration", api_server.check_configuration),
    DoctorCheck(
        "exclusions",
        api_server.check_exclusions,
        "no webhook includes podsettle's own namespace, or kube-system with failurePolicy Fail",
        ("webhook configuration",),
    ),
    DoctorCheck("policies", policies.check_policies, "podsettle accepts every policy"),
    DoctorCheck("runtime classes", policies.check_runtime_classes, "those of policies are usable"),
    DoctorCheck("helper image", policies.check_helper_image, "none is named, and none is needed"),
    DoctorCheck("helper pull", policies.check_helper_pull, "no image is named"),
    DoctorCheck("readiness", replicas.check_readiness),
    DoctorCheck(
        "reachability",
        api_server.check_dry_run,
        blocked_by=("webhook configuration", "certificate", "registration", "readiness"),
    ),
    DoctorCheck("failed calls", api_server.check_failed_calls),
)


async def diagnose(
    server: ApiServer,
    *,
    namespace: str | None,
    chosen_namespace: str | None,
    new_image_lookup: Callable[[ApiServer], ImageLookup],
    flags: ClusterFlags,
    on_progress: OnProgress = lambda *_: None,
) -> DoctorReport:
    """Run every check once. Raises Unreachable if the API server does not answer.

    `namespace` is the namespace of the installation, and `chosen_namespace` is that of the dry run.
    Printed commands get `flags`.
    """
    found: Installation | Absent | Finding
    try:
        found = await find_installation(ClusterReader(server), namespace)
    except ApiError as error:
        found = State.UNKNOWN(f"the API server answered {error}")
    if isinstance(found, Absent):
        rights = " and ".join(map(str, found.rights))
        why = f"{found.why}: needs the right to {rights}" if rights else found.why
        found = _not_looked_at(why, found.rights, flags) if rights else State.FAULT(why)
    if isinstance(found, Finding):
        line = _complete(found, "installation")
        return DoctorReport(cluster=server.title, installation="", checks=(line,))
    installed = Installed(server, found, new_image_lookup, flags, chosen_namespace)
    lines: list[Finding] = []
    for number, check in enumerate(CHECKS):
        running = asyncio.ensure_future(_run(check, installed))
        while not (await asyncio.wait([running], timeout=_PROGRESS_SECONDS))[0]:
            on_progress(check.name, number, len(CHECKS))
        lines += running.result()
    title = f"{found.namespace}/{found.name}"
    return DoctorReport(cluster=server.title, installation=title, checks=tuple(lines))


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
            states = {each.state for each in report.checks}
            is_settled = State.FAULT not in states and states != {State.UNKNOWN}
            if is_settled or time.monotonic() + pause_seconds > deadline:
                return report
        await asyncio.sleep(pause_seconds)


async def _run(check: DoctorCheck, installed: Installed) -> list[Finding]:
    """Return the findings of one check, and note the faults in `installed`."""
    found: list[Finding] = []
    if blocking := [name for name in check.blocked_by if name in installed.faults]:
        found.append(State.UNKNOWN(f"it depends on {' and '.join(blocking)}, which has a fault"))
    else:
        try:
            with well_formed("an object"):
                async for each in check.run(installed):
                    found.append(each)  # noqa: PERF401 (after an error, it has those before it)
        except NotAllowedError as error:
            found.append(_not_looked_at(str(error), (error.right,), installed.flags))
        except ApiError as error:
            found.append(State.UNKNOWN(f"the API server answered {error}"))
        except (Unreachable, UnansweredError) as error:
            found.append(State.UNKNOWN(str(error)))
    found = [_complete(each, check.name) for each in found or [State.OK(check.holds)]]
    installed.faults.update(each.check for each in found if each.state is State.FAULT)
    return found


def _complete(finding: Finding, check: str) -> Finding:
    """Return a finding with the name of its check, and with the section that says what to do."""
    section = finding.repair or (finding.check or check).replace(" ", "-")
    needs_repair = finding.state in (State.FAULT, State.WARNING)
    changes = {"check": finding.check or check, "repair": f"{GUIDE}#{section}" * needs_repair}
    return finding.model_copy(update=changes)


def _not_looked_at(why: str, rights: tuple[Right, ...], flags: ClusterFlags) -> Finding:
    """Return the finding of a check that needs rights, and the command that asks for the first."""
    command, names = flags.command(rights[0].command), " and ".join(map(str, rights))
    return Finding(state=State.NOT_LOOKED_AT, result=why, command=command, right=names)
