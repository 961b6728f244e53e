"""The remedies, in the order in which they are applied.

Each is a module that ends with its `REMEDY`. A new remedy is a module here and a line in
`_IN_ORDER`.
"""

from __future__ import annotations

from typing import Any

from webhook.core.remedies import (
    fs_group_change_policy,
    kubelet_gate,
    open_files,
    post_init_sleep,
    retry_init_exit_255,
    runtime_class,
    selinux_change_policy,
    skip_selinux_relabel,
    start_gate,
)
from webhook.core.remedies.base import Remedy

_IN_ORDER: tuple[Remedy[Any], ...] = (
    # The remedies that set a RuntimeClass come first, because the nodes of the class count for the
    # others. runtimeClass comes before skipSELinuxRelabel, which may set a class too.
    runtime_class.REMEDY,
    skip_selinux_relabel.REMEDY,
    selinux_change_policy.REMEDY,
    fs_group_change_policy.REMEDY,
    post_init_sleep.REMEDY,
    # openFiles adds its option to the wrapper of postInitSleep.
    open_files.REMEDY,
    retry_init_exit_255.REMEDY,
    # kubeletGate comes last, because it makes one container of its gate and the start gate.
    start_gate.REMEDY,
    kubelet_gate.REMEDY,
)

REMEDIES: dict[str, Remedy[Any]] = {remedy.name: remedy for remedy in _IN_ORDER}
"""Each remedy by its name, in the order of application."""
