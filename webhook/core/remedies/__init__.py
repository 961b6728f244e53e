"""The remedies, in the order in which they are applied.

Each is a module that ends with its `REMEDY`. A remedy is welcome if its cause is a race, or an
operation on every file of a volume, in the kubelet, the runtime or the network; if its patch is
small and has a maximum size; and if a release or a condition exists at which it ends.

To add one, copy the module that is most like it: `fs_group_change_policy` sets a field,
`skip_selinux_relabel` sets annotations and a RuntimeClass, `kubelet_gate` injects an init
container, `retry_init_exit_255` changes init containers, `open_files` wraps commands.

1. Write the module: the settings, `apply`, and `REMEDY` (`base.py` describes its fields). Limit
   each setting as strictly as the API server does. A list is a `tuple[X, ...]` with `strict=False`,
   because settings are cache keys. An enum has no word that YAML reads as a boolean, such as `Off`.
2. Add it to `_IN_ORDER`. Remedies do not import one another.
3. Write `tests/unit/core/remedies/test_NAME.py` with a pod for each reason.
4. Add its name to the defect that it cures (`webhook.core.defects.catalogue`), a policy to
   `examples/policies.yaml`, settings that change a pod to `SETTINGS_OF_A_CHANGE` in
   `tests/support/remedy_settings.py` and to `EVERY_REMEDY` in `tests/support/every_remedy.py`, and
   what users read to the page of the fault, README.md and docs/export.md. Run `make docs`.

Tests name what else is missing. What only some remedies need:

- a field of pods that nothing reads yet: `webhook/core/pod.py`, with a strategy in
  `tests/support/strategies.py`; another fact: `facts_of` in `webhook/core/decision_input.py`,
  without what differs between pods of one template;
- a field in an object of `spec` other than `securityContext`: `PodPatch.set_field` and
  `Remedy.undo`;
- a new kind of edit: `webhook/core/patch/`, and `webhook/inspect/next_pod.py`, which removes it;
- a new reason: `webhook/core/reasons.py`, and the advice in `webhook/inspect/explain/target.py`;
- an init container or an annotation that pods may set: `webhook/core/constants.py`;
- another option of the helper: `webhook/linger/src/`, and `HelperFeature` with the version that
  has it first;
- a new kind of setting: its message in `webhook/core/policy/validation_errors.py`, and a strategy
  in `tests/support/remedy_settings.py`;
- a field that is newer than Kubernetes 1.31: `Context.server_is_older_than`, because an older
  API server drops it.
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
