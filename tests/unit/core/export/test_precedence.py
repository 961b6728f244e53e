"""Tests of what a native policy names as its origin, and of the policies to which it yields."""

from __future__ import annotations

import pytest

from tests.support.factories import policy, view
from webhook import __version__
from webhook.core.export.native_policies import export
from webhook.core.export.precedence import first_policies
from webhook.core.policy.coverage import PolicySet
from webhook.core.policy.model import SettlePolicy

FS_GROUP = {"fsGroupChangePolicy": "OnRootMismatch"}
SELINUX = {"seLinuxChangePolicy": "Recursive"}


def test_policies_name_their_source_and_the_version() -> None:
    found = export(view(policy(remedies=FS_GROUP), policy("first", priority=1, remedies=FS_GROUP)))
    annotations = {
        each.source.metadata.name: each.documents[0]["metadata"]["annotations"]
        for each in found.policies
    }
    assert annotations == {
        name: {"podsettle.dev/exported-from": name, "podsettle.dev/exported-by": __version__}
        for name in ("p", "first")
    }


@pytest.mark.parametrize(
    ("other", "comes_first"),
    [
        (policy("other", remedies=FS_GROUP, priority=1), True),
        (policy("other", remedies={**FS_GROUP, **SELINUX}, priority=1), True),
        (policy("other", remedies=FS_GROUP, priority=-1), False),
        (policy("other", remedies=SELINUX, priority=1), False),
        (policy("other", remedies=FS_GROUP, priority=1, action="Audit"), False),
    ],
    ids=["earlier", "earlier with more", "later", "another remedy", "another action"],
)
def test_policy_yields_to_earlier_ones_with_its_remedy_and_action(
    other: SettlePolicy, comes_first: bool
) -> None:
    own = policy(remedies=FS_GROUP)
    found = first_policies(own, PolicySet([own, other]).by_precedence)
    assert found == {"fsGroupChangePolicy": [other] if comes_first else []}


def test_policies_are_told_apart_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """To compare hundreds of policies with one another field by field took half a minute."""
    compared: list[object] = []
    monkeypatch.setattr(SettlePolicy, "__eq__", lambda _self, other: compared.append(other))
    seen = view(*(policy(f"p{i}", priority=i, remedies=FS_GROUP) for i in range(3)))
    assert len(export(seen).policies) == 3
    assert compared == []
