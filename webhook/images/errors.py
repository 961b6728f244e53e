"""Why a look-up fails. Messages are for the pod's owner; none repeats what a server sent."""

from __future__ import annotations


class LookupFailedError(Exception):
    """An image whose configuration cannot be had."""


class RefusedError(LookupFailedError):
    """A registry answered this credential with another status than 200.

    Another one may fare better, whatever the status: limits count by account, and some registries
    deny that a repository exists to those who may not see it. The kubelet tries the next one on
    any error (kubernetes `pkg/kubelet/kuberuntime/kuberuntime_image.go`).
    """
