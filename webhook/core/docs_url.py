"""The address of the page that explains podsettle to the developer of a pod."""

from __future__ import annotations

import re

_MAX_DOCS_URL_BYTES = 256
"""The maximum length of the URL, because each settled pod stores it in an annotation."""
# Anchors are appended to the URL, so it has no fragment of its own.
_DOCS_URL = re.compile(r"https?://[^\s#]+")


def docs_url_problem(url: str) -> str:
    """Return why a text is not the address of a page, or an empty text if it is one."""
    if not _DOCS_URL.fullmatch(url) or not url.isprintable():
        return f"{url!r} is not a URL: give http(s)://HOST/PAGE, without white space and #"
    if len(url.encode()) > _MAX_DOCS_URL_BYTES:
        return f"the URL is longer than {_MAX_DOCS_URL_BYTES} bytes"
    return ""
