"""Authentication and authorization by bearer token, for the page, /preview and /metrics.

The API server decides whether a token permits a request; see `webhook.cluster.token_review`.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from webhook.cluster.authorizer import Access, Authorizer
from webhook.server.lean_fastapi import HTTPException, Request

_BEARER_HINT = (
    "send a token as `Authorization: Bearer TOKEN`; make one with: "
    "kubectl create token SERVICEACCOUNT -n NAMESPACE"
)
_BROWSER_HINT = "or sign in with any user name and the token as the password"
_GRANT_HINT = (
    "grant access with: kubectl create clusterrole NAME --verb={verb} --non-resource-url={path}, "
    "and a clusterrolebinding"
)

BEARER_CHALLENGE = 'Bearer realm="podsettle"'
BASIC_CHALLENGE = 'Basic realm="podsettle: any user name, and a Kubernetes token as the password"'

Guard: TypeAlias = Callable[[Request], Awaitable[None]]


def guard(authorizer: Authorizer | None, challenge: str = BEARER_CHALLENGE) -> Guard:
    """Return a FastAPI dependency that answers 401, 403 or 503 to unauthorized requests.

    If `authorizer` is None, the dependency allows every request. `challenge` is the value of the
    WWW-Authenticate header. With BASIC_CHALLENGE, browsers open a password dialog, even for
    requests of a script. Use it only for the page itself, whose script has its own token field.
    """

    async def check(request: Request) -> None:
        if authorizer is None:
            return
        token = _parse_token(request.headers.get("Authorization", ""))
        if token is None:
            detail = (
                _BEARER_HINT
                if challenge == BEARER_CHALLENGE
                else f"{_BEARER_HINT}; {_BROWSER_HINT}"
            )
            raise HTTPException(401, detail, {"WWW-Authenticate": challenge})
        # Not `request.url.path`: older Starlette versions parse it from the Host header.
        verb, path = request.method.lower(), request.scope["path"]
        access, note = await authorizer.authorize(token, verb, path)
        if access is Access.UNAUTHENTICATED:
            detail = f"the API server does not accept this token: {note or 'invalid or expired'}"
            raise HTTPException(401, f"{detail}; {_BEARER_HINT}", {"WWW-Authenticate": challenge})
        if access is Access.FORBIDDEN:
            raise HTTPException(403, f"{note}; {_GRANT_HINT.format(verb=verb, path=path)}")
        if access is Access.UNKNOWN:
            raise HTTPException(503, f"the API server could not check this token: {note}")

    return check


def _parse_token(authorization: str) -> str | None:
    """Return the token in the value of an Authorization header, or None if it contains none.

    With the scheme Basic, the token is the password.
    """
    scheme, _, value = authorization.partition(" ")
    value = value.strip()
    if scheme.lower() == "bearer":
        return value or None
    if scheme.lower() == "basic":
        try:
            decoded = base64.b64decode(value, validate=True).decode()
        except (binascii.Error, UnicodeDecodeError):
            return None
        return decoded.partition(":")[2].strip() or None
    return None
