"""Why a look-up fails. Messages are for the pod's owner; none repeats what a server sent."""

from __future__ import annotations


class LookupFailedError(Exception):
    """An image whose configuration cannot be had."""


class RefusedError(LookupFailedError):
    """A registry did not let this credential see the image; another one may be let."""
