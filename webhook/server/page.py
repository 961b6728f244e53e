"""GET /: the preview page, one HTML file without external resources."""

from __future__ import annotations

import base64
import gzip
import hashlib
import re
from importlib.resources import files

from webhook.server.lean_fastapi import APIRouter, HTMLResponse, Request


def page_router() -> APIRouter:
    """Return the route of the page."""
    router = APIRouter()
    page = files("webhook.server").joinpath("page.html").read_text(encoding="utf-8")
    headers = {
        "Content-Security-Policy": _content_security_policy(page),
        "Cross-Origin-Opener-Policy": "same-origin",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "no-cache",
        "Vary": "Accept-Encoding",
    }
    compressed = gzip.compress(page.encode(), mtime=0)

    @router.get("/", include_in_schema=False, response_class=HTMLResponse)
    async def get_page(request: Request) -> HTMLResponse:
        if "gzip" in request.headers.get("Accept-Encoding", ""):
            return HTMLResponse(compressed, headers=headers | {"Content-Encoding": "gzip"})
        return HTMLResponse(page, headers=headers)

    return router


def _content_security_policy(page: str) -> str:
    """Return a policy that allows only the page's own style and script.

    A pasted pod can then neither load nor execute anything. In browsers with Trusted Types, the
    script cannot parse text as HTML at all.
    """
    return "; ".join(
        (
            "default-src 'none'",
            f"style-src {_hashes(page, 'style')}",
            f"script-src {_hashes(page, 'script')}",
            "connect-src 'self'",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        )
    )


def _hashes(page: str, tag: str) -> str:
    blocks = re.findall(f"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
    digests = (hashlib.sha256(block.encode()).digest() for block in blocks)
    return " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
