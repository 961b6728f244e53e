"""The errors of kubeconfigs and credentials."""

from __future__ import annotations


class KubeconfigError(Exception):
    """A kubeconfig that cannot be used. The message names the file and the key."""


class CredentialsError(Exception):
    """Credentials that cannot be had now, such as those of a plugin that fails."""
