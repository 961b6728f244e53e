"""The route of the preview page, which is one HTML file without external resources.

The page needs no token, because it contains no data. Its script sends the user's token to /preview.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import re
from importlib.resources import files

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse


def page_router() -> APIRouter:
    """Return the route of the preview page."""
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
    """Return a Content-Security-Policy that allows only the page's own style and script.

    HTML in a pasted pod therefore cannot load resources or run scripts. In browsers that support
    Trusted Types, the page's script cannot parse text as HTML.
    """
    return "; ".join(
        (
            "default-src 'none'",
            f"style-src {_hash_sources(page, 'style')}",
            f"script-src {_hash_sources(page, 'script')}",
            "connect-src 'self'",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        )
    )


def _hash_sources(page: str, tag: str) -> str:
    """Return the CSP hash sources of the contents of all elements with this tag."""
    blocks = re.findall(f"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
    digests = (hashlib.sha256(block.encode()).digest() for block in blocks)
    return " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
