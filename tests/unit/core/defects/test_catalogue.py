"""Tests of the catalogue: its files, and what the files say of real releases."""

from __future__ import annotations

from tests.support.defects import software
from tests.support.paths import DOCS, ROOT
from webhook.core.defects.catalogue import DEFECTS
from webhook.core.remedies import REMEDIES

BY_ID = {defect.id: defect for defect in DEFECTS}


def test_files_have_the_names_of_their_defects_and_name_known_remedies_and_pages() -> None:
    files = sorted((ROOT / "webhook/core/defects").glob("*.yaml"))
    assert [defect.id for defect in DEFECTS] == [file.stem for file in files]
    for defect in DEFECTS:
        assert set(defect.remedies) <= REMEDIES.keys(), defect.id
        assert (DOCS / defect.page).is_file(), defect.id


def test_every_page_of_a_defect_shows_the_text_of_its_symptom() -> None:
    """A person searches for the message, so the page has to contain it."""
    for defect in DEFECTS:
        page = " ".join((DOCS / defect.page).read_text(encoding="utf-8").split())
        assert any(symptom.message in page for symptom in defect.symptom), defect.id


def test_real_releases_have_the_defects_that_the_files_say() -> None:
    cases: list[tuple[str, str, str, str]] = [
        ("cri-o-9840", "cri-o://1.33.12", "", "affected"),
        ("cri-o-9840", "cri-o://1.33.13", "", "not affected"),
        ("cri-o-9840", "cri-o://1.34.8", "", "affected"),
        ("cri-o-9840", "cri-o://1.34.9", "", "not affected"),
        ("cri-o-9840", "cri-o://1.35.2", "", "affected"),
        ("cri-o-9840", "cri-o://1.35.3", "", "not affected"),
        ("cri-o-9840", "cri-o://1.36.0-dev", "", "affected"),
        ("cri-o-9840", "cri-o://1.36.0", "", "not affected"),
        ("cri-o-9840", "cri-o://1.38.0", "", "not affected, unverified"),
        ("cri-o-9840", "containerd://2.1.5", "", "not affected"),
        ("containerd-slow-umount", "cri-o://1.21.7", "", "affected"),
        ("containerd-slow-umount", "cri-o://1.22.0", "", "not affected"),
        ("containerd-slow-umount", "cri-o://1.38.0", "", "not affected, unverified"),
        ("containerd-slow-umount", "cri-o://", "", "affected"),
        ("containerd-slow-umount", "containerd://2.3.0", "", "affected"),
        ("containerd-slow-umount", "", "", "affected"),
        ("crio-selinux-relabel", "cri-o://1.36.0", "v1.36.9", "affected"),
        ("crio-selinux-relabel", "cri-o://1.39.0", "v1.37.0", "partly affected"),
        ("crio-selinux-relabel", "containerd://2.1.0", "v1.36.0", "not affected"),
        ("kubelet-serving-certificate", "containerd://2.1.0", "v1.36.0", "affected"),
        ("late-start-dependencies", "cri-o://1.36.0", "v1.36.0", "affected"),
        ("fsgroup-ownership-walk", "", "v1.36.0", "affected"),
        ("selinux-mount", "", "v1.36.9", "not affected"),
        ("selinux-mount", "", "v1.37.0", "affected"),
    ]
    assert [
        (name, runtime, kubelet, BY_ID[name].status_on(*software(runtime, kubelet)).value)
        for name, runtime, kubelet, _ in cases
    ] == cases
