"""Tests of what a pod alone tells of podsettle."""

from __future__ import annotations

import msgspec
import pytest

from tests.support.factories import container, mutate_pod, pod
from tests.support.paths import DATA, EXAMPLES
from tests.support.reviews import PODS, load_pod
from webhook.cluster.manifest_files_source import ManifestsSource
from webhook.core.pod import decode_pod
from webhook.core.remedies import REMEDIES
from webhook.inspect.explain.record import record_of


def test_admitted_pod_shows_a_sign_of_each_remedy() -> None:
    source = ManifestsSource(EXAMPLES)
    source.refresh()
    applied: set[str] = set()
    for path in [*PODS, *(EXAMPLES / "pods").glob("*.yaml"), *(DATA / "reasons").glob("*.yaml")]:
        document = load_pod(path)
        settled = mutate_pod(document, source.view, namespace=document["metadata"]["namespace"])
        record = record_of(decode_pod(msgspec.json.encode(settled)))
        assert not record.unshown, path
        applied |= record.shown
    assert applied == REMEDIES.keys()


@pytest.mark.parametrize("remedy", REMEDIES)
def test_plain_pod_shows_no_sign_of_any_remedy(remedy: str) -> None:
    plain = pod(container("a"), annotations={"podsettle.dev/applied": f"p/{remedy}"})
    assert record_of(decode_pod(msgspec.json.encode(plain))).unshown == (remedy,)
