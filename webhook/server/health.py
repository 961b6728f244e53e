"""The routes /livez, /readyz and /version, and the log of changes of readiness checks.

The texts have the format of Kubernetes components.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import NamedTuple

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response

from webhook.cluster.readiness import Readiness, ReadinessCheck
from webhook.cluster.source import Check

log = logging.getLogger(__name__)

PROBE_PATHS = ("/livez", "/readyz")
"""The paths of the kubelet's probes. Floods of other requests do not keep them away."""

_POLL_SECONDS = 2.0
"""A state that changes back within this time is usually not logged."""

_VERBOSE = {
    "name": "verbose",
    "in": "query",
    "description": "If it is present, even empty, the answer is JSON and lists every check.",
    "schema": {"type": "string"},
    "allowEmptyValue": True,
}
"""The parameter of /readyz. Any value is valid, but FastAPI would describe an error for others."""


class ServedCertificate(NamedTuple):
    """What /version says of the certificate that the server serves.

    It is no secret, because every client gets the certificate in the TLS handshake.
    """

    expires: datetime
    fingerprint: str
    """The SHA-256 in hex."""


def probes_router(
    checks: Callable[[], Iterable[Check]],
    versions: dict[str, str],
    certificate: Callable[[], ServedCertificate],
) -> APIRouter:
    """Return the routes for probes. /version answers `versions` and the served certificate."""
    router = APIRouter()

    @router.get("/livez", summary="Whether the process is alive", response_class=PlainTextResponse)
    async def livez() -> str:
        return "ok"

    @router.get(
        "/readyz",
        summary="Whether the server is ready for reviews",
        response_class=PlainTextResponse,
        responses={
            200: {"content": {"application/json": {}}},
            503: {
                "description": "Not ready.",
                "content": {"text/plain": {}, "application/json": {}},
            },
        },
        openapi_extra={"parameters": [_VERBOSE]},
    )
    async def readyz(request: Request) -> Response:
        results = list(checks())
        ready = all(check.ready for check in results)
        status = 200 if ready else 503
        if "verbose" in request.query_params:
            report = Readiness(
                ready=ready,
                certificate_expires=certificate().expires,
                checks=tuple(
                    ReadinessCheck(name=each.name, ready=each.ready, note=each.note)
                    for each in results
                ),
            )
            text = report.model_dump_json(by_alias=True, indent=2)
            return Response(f"{text}\n", status, media_type="application/json")
        if ready:
            return PlainTextResponse("ok")
        lines = [
            f"[{_check_mark(check)}]{check.name} "
            + (check.note or ("ok" if check.ready else "failed"))
            for check in results
        ]
        return PlainTextResponse("\n".join((*lines, "readyz check failed\n")), status)

    @router.get("/version", summary="The versions of podsettle and Python, and the certificate")
    async def get_version() -> JSONResponse:
        served = certificate()
        about = {"notAfter": served.expires.isoformat(), "sha256": served.fingerprint}
        return JSONResponse({**versions, "certificate": about})

    # Some monitors probe with HEAD.
    for path, route in (("/livez", livez), ("/readyz", readyz), ("/version", get_version)):
        router.add_api_route(
            path,
            route,
            methods=["HEAD"],
            response_class=PlainTextResponse,
            include_in_schema=False,
        )
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
    ready without a note from the start is not logged. A problem that its component logs is not
    logged again.
    """
    last_results: dict[str, Check] = {}
    while True:
        await asyncio.sleep(poll_seconds)
        for check in checks():
            previous = last_results.get(check.name, Check(check.name, ready=True))
            if check != previous:
                _log_check(check, previous)
            last_results[check.name] = check


def _log_check(check: Check, previous: Check) -> None:
    if check.logged:
        return
    if not check.ready:
        log.warning("not ready: %s: %s", check.name, check.note or "failed")
    elif check.note:
        log.warning("%s: %s", check.name, check.note)
    elif not previous.logged:
        log.info("%s: ok again", check.name)
