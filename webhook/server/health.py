"""Health: GET /livez, /readyz and /version, and a log of readiness checks that change.

The responses have the format of Kubernetes' own components.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from webhook.cluster.source import Check
from webhook.server.lean_fastapi import APIRouter, JSONResponse, PlainTextResponse, Query

log = logging.getLogger(__name__)

_POLL_SECONDS = 2.0


def probes_router(checks: Callable[[], Iterable[Check]], version: dict[str, str]) -> APIRouter:
    """Return the routes. `version` is the response of /version."""
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
        found = list(checks())
        ready = all(check.ready for check in found)
        if ready and verbose is None:
            return PlainTextResponse("ok")
        lines = [
            f"[{_sign(check)}]{check.name} " + (check.note or ("ok" if check.ready else "failed"))
            for check in found
        ]
        lines.append(f"readyz check {'passed' if ready else 'failed'}")
        return PlainTextResponse("\n".join(lines) + "\n", 200 if ready else 503)

    @router.get("/version", summary="The versions of podsettle and Python")
    async def get_version() -> JSONResponse:
        return JSONResponse(version)

    return router


def _sign(check: Check) -> str:
    if check.ready:
        return "!" if check.note else "+"
    return "-"


async def log_check_changes(
    checks: Callable[[], Iterable[Check]], poll_seconds: float = _POLL_SECONDS
) -> None:
    """Log each change of a readiness check, until cancelled.

    The log remains after the pod is gone, when no probe can be sent any more. Checks that are ready
    from the start are not logged.
    """
    logged: dict[str, Check] = {}
    while True:
        await asyncio.sleep(poll_seconds)
        for check in checks():
            before = logged.get(check.name, Check(check.name, ready=True))
            if check != before:
                _log_check(check)
            logged[check.name] = check


def _log_check(check: Check) -> None:
    if not check.ready:
        log.warning("not ready: %s: %s", check.name, check.note or "failed")
    elif check.note:
        log.warning("%s: %s", check.name, check.note)
    else:
        log.info("%s: ok again", check.name)
