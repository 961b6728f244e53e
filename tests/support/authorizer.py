"""An authorizer that knows three tokens."""

from __future__ import annotations

from webhook.cluster.access_decision import Access, AccessDecision


class Known:
    """An authorizer with a fixed result for each token. Records its calls."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, str]] = []
        self.clients: set[str] = set()
        """The addresses of the clients that sent tokens."""

    async def authorize(self, token: str, verb: str, path: str, client: str) -> AccessDecision:
        self.asked.append((token, verb, path))
        self.clients.add(client)
        return {
            "good": AccessDecision(Access.GRANTED),
            "poor": AccessDecision(Access.FORBIDDEN, f"'poor' may not {verb} {path}"),
            "lost": AccessDecision(Access.UNKNOWN, "connection refused"),
        }.get(token, AccessDecision(Access.UNAUTHENTICATED, "expired"))
