"""Hints about policies that are valid and perhaps not meant so."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from webhook.core.policy.model import SettlePolicy
from webhook.core.types import format_duration

_MEASURED_SAFE = 250
"""Milliseconds: with these none of 840 init containers was lost, of 100 ms up to 1.7 %
(README, Limits)."""


def notes_on_policy(policy: SettlePolicy) -> Iterator[str]:
    """What to know about a policy by itself."""
    spec, name = policy.spec, policy.metadata.name
    images = spec.image_config
    if images.lookup == "Never" and (images.registries or images.mirrors):
        yield f"{name}: imageConfig asks no registry: lookup is Never; write lookup: Registry"
    sleep = spec.remedies.post_init_sleep
    if sleep is not None and sleep.min_lifetime < _MEASURED_SAFE:
        yield (
            f"{name}: minLifetime {format_duration(sleep.min_lifetime)} is short: on CRI-O "
            "1.33.12, the race provoked, 100 ms still lost up to 1.7 % of exit codes, 50 ms up to "
            "17 %, 250 ms none of 840"
        )


def notes_on_classes(policies: Iterable[SettlePolicy], known: Collection[str]) -> Iterator[str]:
    """RuntimeClasses that are not among those of a directory, if that holds any."""
    for policy in policies if known else ():
        for name in policy.spec.runtime_classes():
            if name not in known:
                yield f"{policy.metadata.name}: RuntimeClass {name!r} is not among the manifests"


def note_on_nodes(policies: Iterable[SettlePolicy], any_node: bool, where: object) -> Iterator[str]:
    """That decisions were made without a node to look at."""
    if not any_node and any(
        getattr(settings, "when", None) == "NodesNeedIt"
        for policy in policies
        for settings in policy.spec.settings().values()
    ):
        yield f"no Node in {where}: remedies with `when: NodesNeedIt` are taken as needed"
