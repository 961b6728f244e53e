"""The HTML document of the preview page, made of its parts, and its Content-Security-Policy."""

from __future__ import annotations

import base64
import hashlib
import json
from importlib.resources import files

from webhook.core.remedies.shell_wrapper import SCRIPT
from webhook.server.page.examples import examples

_SCRIPTS = (
    "dom",
    "input",
    "preview",
    "errors",
    "view",
    "policies",
    "examples",
    "link",
    "answer",
    "matches",
    "reasons",
    "tabs",
    "diff",
    "yaml",
    "start",
)
"""The files in `scripts`, in the order in which the browser runs them."""


def make_page() -> tuple[str, str]:
    """Return the page with its style and its scripts, and its Content-Security-Policy."""
    parts = files("webhook.server.page")
    scripts = parts.joinpath("scripts")
    texts = {
        "style": parts.joinpath("page.css").read_text(encoding="utf-8"),
        "script": "\n".join(
            scripts.joinpath(f"{name}.js").read_text(encoding="utf-8") for name in _SCRIPTS
        ),
    }
    page = parts.joinpath("page.html").read_text(encoding="utf-8")
    for tag, text in texts.items():
        page = page.replace(f"<{tag}></{tag}>", f"<{tag}>{text}</{tag}>")
    data = {"examples": examples(), "wrapperScript": SCRIPT}
    page = page.replace("<!-- data -->", json.dumps(data).replace("<", "\\u003c"))
    return page, _content_security_policy(**texts)


def _content_security_policy(style: str, script: str) -> str:
    """Return a Content-Security-Policy that allows only this style and this script.

    HTML in a pasted pod therefore cannot load resources or run scripts. In browsers that support
    Trusted Types, the page's script cannot parse text as HTML.
    """
    return "; ".join(
        (
            "default-src 'none'",
            f"style-src {_hash_source(style)}",
            f"script-src {_hash_source(script)}",
            "connect-src 'self'",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        )
    )


def _hash_source(text: str) -> str:
    """Return the CSP hash source of the content of an element."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
