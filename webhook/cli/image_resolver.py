"""Image look-ups, an optional part. No other module outside of `webhook.images` imports it."""

from __future__ import annotations

from collections.abc import Callable

from webhook.core.images import ImageResolver
from webhook.core.pull_secrets import PullSecrets


def new_image_resolver(
    pull_secrets: PullSecrets | None = None,
    *,
    count: Callable[[bool], None] = lambda _found: None,
    count_refused_dns_lookup: Callable[[], None] = lambda: None,
) -> ImageResolver:
    """Import `webhook.images` and its HTTP client, and return a new resolver.

    The import takes 0.1 s and several megabytes, which most servers and commands save.
    """
    from webhook.images.lookup import ImageLookup, new_resolver

    return ImageLookup(pull_secrets, count=count, resolver=new_resolver(count_refused_dns_lookup))
