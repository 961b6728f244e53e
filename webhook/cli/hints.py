"""Hints about valid policies that may not have the effect that their author wants."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from webhook.core.policy.model import SettlePolicy
from webhook.core.remedies import REMEDIES


def policy_hints(policy: SettlePolicy) -> Iterator[str]:
    """Yield hints about settings without an effect, and those of the remedies."""
    spec, name = policy.spec, policy.metadata.name
    images = spec.image_config
    if images.lookup == "Never" and (images.registries or images.mirrors):
        yield (
            f"{name}: registries and mirrors of imageConfig have no effect with lookup Never: "
            "set lookup: Registry"
        )
    for remedy, settings in spec.settings().items():
        yield from (f"{name}: {hint}" for hint in REMEDIES[remedy].hints(settings))


def unknown_class_hints(
    policies: Iterable[SettlePolicy], class_names: Collection[str]
) -> Iterator[str]:
    """Yield a hint for each RuntimeClass that a policy names and `class_names` does not contain.

    If `class_names` is empty, yield no hint, because the manifests contain no RuntimeClasses.
    """
    for policy in policies if class_names else ():
        for name in policy.spec.runtime_classes():
            if name not in class_names:
                yield f"{policy.metadata.name}: RuntimeClass {name!r} is not among the manifests"


def missing_node_hints(
    policies: Iterable[SettlePolicy], has_nodes: bool, manifests: object
) -> Iterator[str]:
    """Yield a hint if a remedy has `when: NodesNeedIt`, but the manifests contain no Node."""
    if not has_nodes and any(
        getattr(settings, "when", None) == "NodesNeedIt"
        for policy in policies
        for settings in policy.spec.settings().values()
    ):
        yield f"no Node in {manifests}: remedies with `when: NodesNeedIt` are treated as needed"
