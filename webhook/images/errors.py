"""Errors of image look-ups. Their messages go to the pod's owner and never quote a server."""

from __future__ import annotations


class LookupFailedError(Exception):
    """The configuration of an image cannot be fetched."""


class RefusedError(LookupFailedError):
    """A registry answered a request with another status than 200.

    Another credential may succeed, whatever the status: rate limits count per account, and some
    registries hide repositories from accounts without access. The kubelet, too, tries the next
    credential after any error (kubernetes `pkg/kubelet/kuberuntime/kuberuntime_image.go`).
    """
