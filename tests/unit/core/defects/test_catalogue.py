"""Tests of the catalogue: its files, and what the files say of real releases."""

from __future__ import annotations

import pytest

from tests.support.defects import software
from tests.support.paths import DOCS, ROOT
from webhook.core.defects.catalogue import DEFECTS
from webhook.core.defects.defect import DefectStatus
from webhook.core.remedies import REMEDIES

BY_ID = {defect.id: defect for defect in DEFECTS}


def status(name: str, runtime: str, kubelet: str = "v1.36.0") -> str:
    return BY_ID[name].status_on(*software(runtime, kubelet)).value


def test_files_have_the_names_of_their_defects_and_name_known_remedies_and_pages() -> None:
    files = sorted((ROOT / "webhook/core/defects").glob("*.yaml"))
    assert [defect.id for defect in DEFECTS] == [file.stem for file in files]
    for defect in DEFECTS:
        assert set(defect.remedies) <= REMEDIES.keys(), defect.id
        assert defect.page is None or (DOCS / defect.page).is_file(), defect.id


def test_every_page_of_a_defect_shows_the_text_of_its_symptom() -> None:
    """A person searches for the message, so the page has to contain it."""
    for defect in DEFECTS:
        if defect.page is None:
            continue
        page = " ".join((DOCS / defect.page).read_text(encoding="utf-8").split())
        assert any(symptom.message in page for symptom in defect.symptom), defect.id


@pytest.mark.parametrize(
    ("runtime", "expected"),
    [
        ("cri-o://1.33.12", "affected"),
        ("cri-o://1.33.5-2.rhaos4.20.git1234.el9", "affected"),
        ("cri-o://1.33.13", "not affected"),
        ("cri-o://1.33.13-2.rhaos4.20.git1234.el9", "not affected"),
        ("cri-o://1.34.8", "affected"),
        ("cri-o://1.34.9", "not affected"),
        ("cri-o://1.35.2", "affected"),
        ("cri-o://1.35.3", "not affected"),
        ("cri-o://1.36.0-dev", "affected"),
        ("cri-o://1.36.0", "not affected"),
        ("cri-o://1.38.0", "not affected, unverified"),
        ("cri-o://unknown", "affected"),
        ("containerd://2.1.5", "not affected"),
        ("docker://20.10.7", "not affected"),
        ("", "not affected"),
    ],
)
def test_cri_o_is_affected_by_issue_9840_before_the_fixed_releases(
    runtime: str, expected: str
) -> None:
    assert status("cri-o-9840", runtime) == expected


@pytest.mark.parametrize(
    ("runtime", "expected"),
    [
        ("cri-o://1.21.7", "affected"),
        ("cri-o://1.22.0", "not affected"),
        ("cri-o://1.36.0", "not affected"),
        ("cri-o://1.38.0", "not affected, unverified"),
        ("cri-o://", "affected"),
        ("containerd://2.3.0", "affected"),
        ("", "affected"),
    ],
)
def test_only_cri_o_from_1_22_on_is_certain_to_make_volatile_mounts(
    runtime: str, expected: str
) -> None:
    assert status("containerd-slow-umount", runtime) == expected


@pytest.mark.parametrize(
    ("runtime", "kubelet", "expected"),
    [
        ("cri-o://1.20.0", "v1.20.0", "affected"),
        ("cri-o://1.36.0", "v1.36.9", "affected"),
        ("cri-o://", "", "affected"),
        ("cri-o://1.37.0", "v1.37.0", "partly affected"),
        ("cri-o://1.39.0", "v1.39.0", "partly affected"),
        ("containerd://2.1.0", "v1.36.0", "not affected"),
        ("", "", "not affected"),
    ],
)
def test_every_cri_o_relabels_volumes_and_selinux_mount_spares_a_part(
    runtime: str, kubelet: str, expected: str
) -> None:
    assert status("crio-selinux-relabel", runtime, kubelet) == expected


@pytest.mark.parametrize("runtime", ["cri-o://1.36.0", "containerd://2.1.0", ""])
def test_defects_of_the_kubelet_do_not_depend_on_the_runtime(runtime: str) -> None:
    assert status("kubelet-serving-certificate", runtime) == DefectStatus.AFFECTED
    assert status("late-start-dependencies", runtime) == DefectStatus.AFFECTED
    assert status("fsgroup-ownership-walk", runtime) == DefectStatus.AFFECTED
    assert status("selinux-mount", runtime, "v1.36.9") == DefectStatus.NOT_AFFECTED
    assert status("selinux-mount", runtime, "v1.37.0") == DefectStatus.AFFECTED
