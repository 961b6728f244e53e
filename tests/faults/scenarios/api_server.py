"""Faults of the API server as podsettle meets it. Pods are created past them."""

from __future__ import annotations

from functools import partial

from tests.faults.api_proxy import Mode
from tests.faults.rig import Rig
from tests.faults.scenario import Steps, scenario


def _answers(mode: Mode, rig: Rig) -> Steps:
    yield
    rig.api.switch(mode)
    yield
    rig.api.switch("pass")


_MODES: tuple[tuple[str, Mode, str], ...] = (
    ("api-hangs", "hang", "accepts podsettle's requests and does not answer"),
    ("api-refuses", "refuse", "refuses podsettle's connections"),
    ("api-500", "500", "answers podsettle with 500"),
    ("api-429", "429", "answers podsettle with 429"),
    ("api-half-answers", "half", "ends each answer to podsettle in the middle of an object"),
)
for _name, _mode, _about in _MODES:
    scenario(f"the API server {_about}", name=_name, seconds=15, short=_mode == "hang")(
        partial(_answers, _mode)
    )


@scenario("each watch is cut in the middle of a line, five times")
def watch_cut(rig: Rig) -> Steps:
    """End the watches again and again."""
    yield
    rig.in_parallel(lambda _: rig.api.cut_watches(), 5, seconds=10, threads=1)
    rig.done = ""
    yield


@scenario("etcd is compacted, and each watch is answered with 410 Gone")
def compaction(rig: Rig) -> Steps:
    """Compact etcd, and end the watches: another list follows."""
    yield
    rig.cluster.compact_etcd()
    rig.api.switch("gone")
    yield
    rig.api.switch("pass")
