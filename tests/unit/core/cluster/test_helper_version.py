from __future__ import annotations

import pytest

from webhook import __version__
from webhook.core.cluster.helper_version import HelperFeature, helper_version
from webhook.core.defects.versions import Version, parse_version

OWN = parse_version(__version__)
DIGEST = f"@sha256:{'0' * 64}"


def test_version_is_a_tag_of_three_numbers_that_is_not_later_than_podsettle() -> None:
    cases: list[tuple[str | None, Version | None]] = [
        ("r.example/linger:0.1.0", Version(0, 1)),
        ("r.example:5000/team/linger:v0.2.0", Version(0, 2)),
        ("linger:0.2.0-amd64", Version(0, 2)),
        ("linger:0.2.0-rc1", Version(0, 2, final=False)),
        (f"linger:0.1.0{DIGEST}", Version(0, 1)),
        (f"linger:{__version__}", OWN),
        # These say nothing.
        (f"linger{DIGEST}", None),
        ("linger", None),
        ("linger:latest", None),
        ("linger:0.2", None),
        ("linger:1", None),
        ("linger:2026.11.25", None),
        ("linger:999.0.0", None),
        ("not an image:0.2.0", None),
        (None, None),
    ]
    assert [(image, helper_version(image, None)) for image, _ in cases] == cases


def test_stated_version_takes_precedence_over_the_tag() -> None:
    assert helper_version("linger:0.2.0", Version(0, 1)) == Version(0, 1)
    assert helper_version(f"linger{DIGEST}", Version(9, 0)) == Version(9, 0)


@pytest.mark.parametrize("feature", HelperFeature)
def test_helper_of_this_version_has_every_feature(feature: HelperFeature) -> None:
    assert not feature.missing("linger", OWN)


@pytest.mark.parametrize(
    ("version", "advice"),
    [
        (Version(0, 1, 9), "linger has version 0.1.9: build the helper"),
        (Version(0, 2, final=False), "build the helper"),
        (None, "linger does not say its version: set the chart value `lingerVersion`"),
    ],
    ids=str,
)
def test_message_of_a_missing_feature_says_what_to_do(version: Version | None, advice: str) -> None:
    message = HelperFeature.OPEN_FILES.missing("linger", version)
    assert "`--open-files` needs a helper of version 0.2.0 or later" in message
    assert advice in message
