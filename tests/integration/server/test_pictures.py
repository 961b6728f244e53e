"""The pictures of the pages. `--update-golden` writes them, and the text that each of them has."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest

from tests.support.chromium import Chromium
from tests.support.paths import ROOT
from tests.support.preview_page import wait_for_answer, wait_for_policies
from tests.support.process import RunningServer, podsettle
from webhook.server.page import document

PICTURES = ROOT / "tests" / "golden" / "pictures"
_TIME_AND_RELEASE = re.compile(r"20\d\d-\d\d-\d\d \d\d:\d\d:\d\dZ, .*")
Taken = Callable[[str, str], None]


@pytest.fixture
def taken(
    chromium: Chromium, golden: Callable[[Path, str], None], request: pytest.FixtureRequest
) -> Taken:
    """Compare what the browser shows, and its styles, with those of the picture that was taken."""

    def compare(picture: str, styles: str) -> None:
        shown = chromium.run("return document.body.innerText")
        shown = _TIME_AND_RELEASE.sub("TIME, RELEASE", shown, count=1)
        lines = [*shown.splitlines(), f"styles: {sha256(styles.encode()).hexdigest()}"]
        golden(PICTURES / f"{picture}.txt", "".join(f"{each.rstrip()}\n" for each in lines))
        if request.config.getoption("--update-golden"):
            image = chromium.devtools("Page.captureScreenshot")["data"]
            (ROOT / "docs" / f"{picture}.png").write_bytes(base64.b64decode(image))

    return compare


def test_scan_report(
    chromium: Chromium, taken: Taken, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    report = tmp_path / "scan.html"
    report.write_text(podsettle("scan", "--manifests", "examples/scan", "-o", "html").stdout)
    chromium.emulate(width=1280, height=1110)
    chromium.open(report.as_uri())
    taken("scan", chromium.text("style"))


def test_preview_page(chromium: Chromium, taken: Taken, page_server: RunningServer) -> None:
    chromium.emulate(width=1500, height=1040)
    chromium.open(f"{page_server.web_url}/")
    wait_for_policies(chromium)
    wait_for_answer(chromium)
    taken("preview-page", Path(document.__file__).with_name("page.css").read_text())
