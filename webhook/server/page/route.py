"""The route of the preview page, which is one HTML document without external resources.

The page needs no token, because it contains no data. Its script sends the user's token to podsettle
only.
"""

from __future__ import annotations

import gzip
import re

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from webhook.server.page.document import make_page

_accepts_gzip = re.compile(
    r"(?:^|,)[ \t]*gzip(?=[ \t]*(?:[;,]|$))(?![ \t]*;[ \t]*q=0(?:\.0*)?[ \t]*(?:,|$))",
    re.IGNORECASE,
).search
"""RFC 9110, 12.5.3: a coding with the weight 0 is not acceptable."""


def page_router() -> APIRouter:
    """Return the route of the preview page."""
    router = APIRouter()
    page, security_policy = make_page()
    headers = {
        "Content-Security-Policy": security_policy,
        "Cross-Origin-Opener-Policy": "same-origin",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "no-cache",
        "Vary": "Accept-Encoding",
    }
    compressed = gzip.compress(page.encode(), mtime=0)

    @router.get("/", summary="The web page for previews", response_class=HTMLResponse)
    async def get_page(request: Request) -> HTMLResponse:
        if _accepts_gzip(request.headers.get("Accept-Encoding", "")):
            return HTMLResponse(compressed, headers=headers | {"Content-Encoding": "gzip"})
        return HTMLResponse(page, headers=headers)

    return router
