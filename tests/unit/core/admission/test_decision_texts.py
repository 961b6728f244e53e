"""Tests of what channels derive from the outcomes of a decision."""

from __future__ import annotations

import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from webhook.core.admission.decision import Decision
from webhook.core.admission.response import audit_annotations_for, encode_texts, warnings_for
from webhook.core.reasons import Outcome, Reason

OUTCOMES = st.builds(
    Outcome,
    st.sampled_from([Reason.APPLIED, Reason.ALREADY_SETTLED, Reason.NOT_NEEDED, Reason.NO_SHELL]),
    remedy=st.sampled_from(["", "postInitSleep", "kubeletGate"]),
    policy=st.sampled_from(["", "p", "q"]),
    container=st.sampled_from(["", "a", "b", "x" * 300]),
    changed=st.booleans(),
    message=st.sampled_from(["", "m", "n"]),
    effect=st.sampled_from(["", "kept alive"]),
)


@given(st.lists(OUTCOMES, max_size=25))
def test_texts_are_those_of_the_outcomes(outcomes: list[Outcome]) -> None:
    found = Decision(tuple(outcomes)).texts
    annotations = audit_annotations_for(outcomes)
    assert found.audit_annotations == annotations
    assert found.texts_json == encode_texts(warnings_for(outcomes), annotations)
    assert found.log_summary == "; ".join(f"{k}: {v}" for k, v in annotations.items())
    pairs = {(each.policy, each.remedy) for each in outcomes if each.changed}
    assert sorted(found.applied_pairs) == sorted(pairs)
    counted = [(each.remedy, each.reason) for each in outcomes]
    assert dict(found.reason_counts) == {pair: counted.count(pair) for pair in counted}


def test_texts_of_any_pods_occupy_little_memory() -> None:
    tracemalloc.start()
    for number in range(1000):
        for count, length in ((20, 10_000), (50, 10), (20, 10)):
            names = [f"{number}-{index}-" + "x" * length for index in range(count)]
            outcomes = [
                Outcome(Reason.APPLIED, "postInitSleep", "p", name, changed=True) for name in names
            ]
            assert Decision(tuple(outcomes)).texts
    used_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert used_bytes < 4 * 1024 * 1024
