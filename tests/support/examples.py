"""How many examples Hypothesis generates for a property."""

from __future__ import annotations

from hypothesis import settings

FULL_EXAMPLES = 150
"""In the profile `full`, of `make test-all`."""
QUICK_EXAMPLES = 15
"""In the profile `quick`, of `make unit` and `make test`."""


def examples(count: int) -> settings:
    """Return settings for `count` examples in the profile `full`, and for a tenth in `quick`."""
    return settings(max_examples=count * settings().max_examples // FULL_EXAMPLES)
