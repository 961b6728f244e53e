"""The routes /livez, /readyz and /version, and the log of changes of readiness checks.

The responses have the same format as those of Kubernetes components.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from fastapi import APIRouter, Query
from fastapi.responses import JSONResponse, PlainTextResponse

from webhook.cluster.source import Check

log = logging.getLogger(__name__)

_POLL_SECONDS = 2.0
"""A state that changes back within this time is usually not logged."""


def probes_router(checks: Callable[[], Iterable[Check]], version: dict[str, str]) -> APIRouter:
    """Return the routes for probes. `version` is the response of /version."""
    router = APIRouter()

    @router.get("/livez", summary="Whether the process is alive", response_class=PlainTextResponse)
    async def livez() -> str:
        return "ok"

    @router.get(
        "/readyz",
        summary="Whether the server is ready for reviews",
        response_class=PlainTextResponse,
        responses={503: {"description": "Not ready."}},
    )
    async def readyz(
        verbose: str | None = Query(
            None, description="If it is present, even empty, the answer lists every check."
        ),
    ) -> PlainTextResponse:
        results = list(checks())
        ready = all(check.ready for check in results)
        if ready and verbose is None:
            return PlainTextResponse("ok")
        lines = [
            f"[{_check_mark(check)}]{check.name} "
            + (check.note or ("ok" if check.ready else "failed"))
            for check in results
        ]
        lines.append(f"readyz check {'passed' if ready else 'failed'}")
        return PlainTextResponse("\n".join(lines) + "\n", 200 if ready else 503)

    @router.get("/version", summary="The versions of podsettle and Python")
    async def get_version() -> JSONResponse:
        return JSONResponse(version)

    return router


def _check_mark(check: Check) -> str:
    """Return `-` for a failed check, `!` for a passed check with a note, else `+`."""
    if check.ready:
        return "!" if check.note else "+"
    return "-"


async def log_check_changes(
    checks: Callable[[], Iterable[Check]], poll_seconds: float = _POLL_SECONDS
) -> None:
    """Log each change of a readiness check, until cancelled.

    The log shows why a replica was not ready even after its pod has been deleted. A check that is
    ready without a note from the start is not logged.
    """
    last_results: dict[str, Check] = {}
    while True:
        await asyncio.sleep(poll_seconds)
        for check in checks():
            previous = last_results.get(check.name, Check(check.name, ready=True))
            if check != previous:
                _log_check(check)
            last_results[check.name] = check


def _log_check(check: Check) -> None:
    if not check.ready:
        log.warning("not ready: %s: %s", check.name, check.note or "failed")
    elif check.note:
        log.warning("%s: %s", check.name, check.note)
    else:
        log.info("%s: ok again", check.name)
