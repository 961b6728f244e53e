"""The measurement of umount times: what strace prints, and what the page shows."""

from __future__ import annotations

from bench.node.umount_report import (
    CHART,
    PAGE,
    RESULTS,
    as_json,
    as_markdown,
    from_json,
    render_chart,
)
from bench.node.umount_trace import UmountCall, parse_calls
from bench.report import fill_page

ROOTFS = "/run/containerd/io.containerd.runtime.v2.task/k8s.io/0c1d/rootfs"


def test_finished_calls_are_read_from_the_output_of_strace() -> None:
    text = f"""\
4711  1795376174.100000 umount2("{ROOTFS}", 0) = 0 <0.250000>
4712  1795376174.400000 umount2("{ROOTFS}", 0) = -1 EINVAL (Invalid argument) <0.000010>
4711  1795376175.100000 umount2("/other", MNT_DETACH|UMOUNT_NOFOLLOW) = 0 (DELAYED) <2.000100>
4711  1795376176.100000 +++ exited with 0 +++
"""
    assert list(parse_calls(text)) == [
        UmountCall(ROOTFS, True, 0.25),
        UmountCall(ROOTFS, False, 0.00001),
        UmountCall("/other", True, 2.0001),
    ]


def test_calls_of_two_threads_are_told_apart_when_strace_prints_them_in_two_parts() -> None:
    text = """\
4711  1795376174.100000 umount2("/a", 0 <unfinished ...>
4712  1795376174.200000 umount2("/b", 0 <unfinished ...>
4713  1795376174.250000 umount2("/c", 0 <unfinished ...>
4711  1795376174.300000 <... umount2 resumed>) = 0 <0.200000>
4712  1795376174.400000 <... umount2 resumed>) = -1 EBUSY (Device or resource busy) (DELAYED) <0.2>
"""
    assert list(parse_calls(text)) == [UmountCall("/a", True, 0.2), UmountCall("/b", False, 0.2)]


def test_figures_and_chart_of_the_page_are_those_of_the_results_file() -> None:
    tables, environment = from_json(RESULTS.read_text(encoding="utf-8"))
    page = PAGE.read_text(encoding="utf-8")
    assert page == fill_page(page, as_markdown(tables, environment), "umount")
    assert CHART.read_text(encoding="utf-8") == render_chart(tables)
    assert RESULTS.read_text(encoding="utf-8") == as_json(tables, environment)
