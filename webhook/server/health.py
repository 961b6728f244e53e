"""The routes /readyz and /version, and the log of changes of readiness checks.

The kubelet's probes go to the port of reviews, which answers /readyz in one word.
"""

from __future__ import annotations

import asyncio
import logging
import platform
from collections import Counter
from collections.abc import Callable, Iterable

from fastapi import APIRouter
from fastapi.responses import JSONResponse, Response

from webhook import __version__
from webhook.cluster.readiness import Readiness, ReadinessCheck
from webhook.cluster.source import Check
from webhook.tls.source import CertificateSource

log = logging.getLogger(__name__)

_POLL_SECONDS = 2.0
"""A state that changes back within this time is usually not logged."""
_POLLS_BETWEEN_LINES = 30
"""The minimum number of polls between two lines about one problem. Its text can change at each
attempt: an error may name a port."""


def health_router(
    checks: Callable[[], Iterable[Check]], certificates: CertificateSource
) -> APIRouter:
    """Return the routes."""
    router = APIRouter()

    @router.get(
        "/readyz",
        summary="Whether the server is ready for reviews, and each check",
        response_model=Readiness,
        responses={503: {"model": Readiness, "description": "Not ready."}},
    )
    async def get_readyz() -> Response:
        results = tuple(
            ReadinessCheck(name=each.name, ready=each.ready, note=each.note) for each in checks()
        )
        ready = all(each.ready for each in results)
        report = Readiness(ready=ready, certificate_expires=certificates.expires, checks=results)
        text = report.model_dump_json(by_alias=True, indent=2)
        return Response(f"{text}\n", 200 if ready else 503, media_type="application/json")

    @router.get("/version", summary="The versions of podsettle and Python, and the certificate")
    async def get_version() -> JSONResponse:
        # It is no secret: every client gets the certificate in the TLS handshake.
        about = {"notAfter": certificates.expires.isoformat(), "sha256": certificates.fingerprint}
        versions = {"version": __version__, "python": platform.python_version()}
        return JSONResponse({**versions, "certificate": about})

    # Some monitors send HEAD.
    for path, route in (("/readyz", get_readyz), ("/version", get_version)):
        router.add_api_route(
            path, route, methods=["HEAD"], response_class=JSONResponse, include_in_schema=False
        )
    return router


async def log_check_changes(
    checks: Callable[[], Iterable[Check]], poll_seconds: float = _POLL_SECONDS
) -> None:
    """Log when a problem of a readiness check begins, changes and ends, until cancelled.

    The log shows why a replica was not ready even after its pod has been deleted. A check that is
    ready without a note from the start is not logged. A problem that its component logs is not
    logged again.
    """
    last_results: dict[str, Check] = {}
    polls_left = Counter[str]()
    while True:
        await asyncio.sleep(poll_seconds)
        for check in checks():
            previous = last_results.get(check.name, Check(check.name, ready=True))
            polls_left[check.name] -= 1
            goes_on = check.ready is previous.ready and check.note and previous.note
            if check == previous or (goes_on and polls_left[check.name] > 0):
                continue
            _log_check(check, previous)
            last_results[check.name] = check
            polls_left[check.name] = 0 if check.logged else _POLLS_BETWEEN_LINES


def _log_check(check: Check, previous: Check) -> None:
    if check.logged:
        return
    if not check.ready:
        log.warning("not ready: %s: %s", check.name, check.note or "failed")
    elif check.note:
        log.warning("%s: %s", check.name, check.note)
    elif not previous.logged:
        log.info("%s: ok again", check.name)
