"""Tests of the measurement of relabelling: what a kubelet asks for, and what a start shows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lab.selinux import (
    ANOTHER_LEVEL,
    FIRST,
    LATER,
    LEVEL,
    NO_HANDLER,
    NO_LEVEL,
    SETTLED,
    SKIPS,
    UNSETTLED,
    WALKS,
    WITHOUT_CLASS,
    Requests,
    Start,
    Starts,
    expected_outcomes,
    unproven,
)
from tests.support.vm.image import RELEASES
from webhook.core.constants import SKIP_RELABEL_ANNOTATIONS
from webhook.node_config.crio import Mode

pytestmark = pytest.mark.lab

SKIP = dict.fromkeys(SKIP_RELABEL_ANNOTATIONS, "true")
RIGHT, WRONG = (f"system_u:object_r:{kind}:{LEVEL}" for kind in ("container_file_t", "etc_t"))
STARTED = Start(error="", seconds=0.5, written=0, nested_label=WRONG)


def test_podsettle_settles_the_pods_of_the_cases(tmp_path: Path) -> None:
    requests = Requests(tmp_path)
    annotated, with_class = set(), set()
    for name in expected_outcomes(RELEASES[0])["--mode handler"]:
        request = requests.named(name, "small")
        if SKIP.items() <= request["sandbox"]["annotations"].items():
            annotated.add(name)
        if request["handler"]:
            with_class.add(name)
    assert annotated == {SETTLED, WITHOUT_CLASS, ANOTHER_LEVEL, NO_LEVEL}
    assert with_class == {*expected_outcomes(RELEASES[0])["--mode handler"]} - {
        UNSETTLED,
        WITHOUT_CLASS,
    }


@pytest.mark.parametrize(
    ("start", "outcome"),
    [
        (STARTED, SKIPS),
        (replace(STARTED, written=1, nested_label=RIGHT), WALKS),
        (replace(STARTED, written=1), f"1 labels written, the nested file has {WRONG}"),
        (replace(STARTED, error=f"{NO_HANDLER} skipping: not found"), NO_HANDLER),
        (replace(STARTED, error="context deadline exceeded"), "context deadline exceeded"),
    ],
)
def test_nested_file_tells_skipping_from_visiting(start: Start, outcome: str) -> None:
    assert start.outcome == outcome


def test_cases_have_every_mode_of_node_config() -> None:
    named = " ".join(name for release in RELEASES for name in expected_outcomes(release))
    assert all(f"--mode {mode}" in named for mode in Mode)


def starts(
    settled: float = 0.6, unsettled: float = 3.0, written: int = 0
) -> dict[tuple[str, int], Starts]:
    return {
        (kind, files): {
            FIRST: [replace(STARTED, written=files + 2)],
            LATER: [replace(STARTED, seconds=seconds, written=written)],
        }
        for kind, large in ((UNSETTLED, unsettled), (SETTLED, settled))
        for files, seconds in ((1_000, 0.5), (100_000, large))
    }


def test_remedy_is_proven_if_only_unsettled_starts_grow_with_the_number_of_files() -> None:
    assert unproven(starts()) == []
    assert unproven(starts(settled=0.8)) == [f"{SETTLED}: the time grew 1.60 times"]
    assert unproven(starts(unsettled=1.4)) == [f"{UNSETTLED}: the time grew 2.80 times"]
    assert unproven(starts(written=7))[0].startswith(f"{UNSETTLED}: a later start wrote 7 labels")
