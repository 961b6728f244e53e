"""Reviews spread over replicas: now and then an answer ends its connection."""

from __future__ import annotations

from random import random

CHANCE_TO_CLOSE = 0.001
"""That a connection is closed with an answer, as by `--goaway-chance` of the API server itself: its
connections live for as long as they are used, so a new replica would get next to nothing."""


def is_last() -> bool:
    """Whether a connection is to be closed with the answer that is about to be given."""
    return random() < CHANCE_TO_CLOSE  # noqa: S311
