"""The route of the preview page, which is one HTML document without external resources.

The page needs no token, because it contains no data. Its script sends the user's token to podsettle
only.
"""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from webhook.server.page.document import make_page


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
    }

    @router.get("/", summary="The web page for previews", response_class=HTMLResponse)
    async def get_page() -> HTMLResponse:
        return HTMLResponse(page, headers=headers)

    return router
