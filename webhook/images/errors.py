"""Errors of image look-ups.

Their messages are shown to the creator of the pod, so they never contain text from a server.
"""

from __future__ import annotations


class LookupFailedError(Exception):
    """The configuration of an image cannot be fetched."""


class NotAnImageError(LookupFailedError):
    """A manifest is not that of a container image for Linux, so no node starts it."""


class RefusedError(LookupFailedError):
    """A registry answered a request with a status other than 200.

    Another credential may succeed for every status: rate limits count per account, and some
    registries hide repositories from accounts without access. The kubelet also tries the next
    credential after any error (kubernetes `pkg/kubelet/kuberuntime/kuberuntime_image.go`).
    """
