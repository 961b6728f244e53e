"""What is read of a review beside the pod."""

from __future__ import annotations

import pytest

from webhook.core.review import name_of


@pytest.mark.parametrize(
    ("pod", "name"),
    [
        (b'{"metadata":{"name":"a"}}', "a"),
        (b'{"metadata":{"generateName":"build-x7"}}', "build-x7*"),
        (b'{"metadata":{"name":"a","generateName":"b-"}}', "a"),
        (b'{"metadata":{}}', ""),
        (b"{}", ""),
        (b'{"metadata":{"name":7}}', ""),
        (b"", ""),
    ],
)
def test_a_pod_has_a_name_for_people(pod: bytes, name: str) -> None:
    assert name_of(pod) == name
