"""Tests of the images that the chart names, and of their pull secrets."""

from __future__ import annotations

import pytest
import yaml

from tests.support.helm import (
    Json,
    arguments_of,
    container_of,
    named,
    objects,
    only,
    rendered,
)
from tests.support.paths import CHART

DIGEST = f"sha256:{'0' * 64}"


@pytest.mark.parametrize(
    ("values", "image"),
    [
        ({"lingerImage": "r.example/linger"}, "r.example/linger:VERSION"),
        ({"lingerImage": "r.example:5000/linger"}, "r.example:5000/linger:VERSION"),
        ({"lingerImage": "[2001:db8::1]:5000/linger"}, "[2001:db8::1]:5000/linger:VERSION"),
        ({"lingerImage": "[2001:db8::1]/linger"}, "[2001:db8::1]/linger:VERSION"),
        ({"lingerImage": "linger"}, "linger:VERSION"),
        ({"lingerImage": "r.example/linger", "image.tag": "b7"}, "r.example/linger:b7"),
        ({"lingerImage": "r.example/linger:1", "image.tag": "b7"}, "r.example/linger:1"),
        ({"lingerImage": f"r.example/linger@{DIGEST}"}, f"r.example/linger@{DIGEST}"),
        ({"lingerImage": f"r.example/linger:1@{DIGEST}"}, f"r.example/linger:1@{DIGEST}"),
        ({"lingerImage": "none"}, None),
    ],
    ids=str,
)
def test_helper_image_gets_podsettles_tag_unless_it_has_one(
    values: Json, image: str | None
) -> None:
    """A helper of another version may not support the command line in the pods."""
    pod = only("Deployment", rendered(values))["spec"]["template"]
    version = yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]
    wanted = image and image.replace("VERSION", version)
    assert arguments_of(pod).get("--linger-image") == wanted
    if wanted and wanted.endswith(version):
        assert container_of(pod)["image"].rpartition(":")[2] == version


@pytest.mark.parametrize(
    ("registry", "image", "pulled"),
    [
        ("", "r.example/team/podsettle", "r.example/team/podsettle"),
        ("mirror.example", "r.example/team/podsettle", "mirror.example/team/podsettle"),
        ("mirror.example:5000/hub/", "r.example:5000/a", "mirror.example:5000/hub/a"),
        ("mirror.example", "localhost/a", "mirror.example/a"),
        ("mirror.example", "REG/a", "mirror.example/a"),
        ("[2001:db8::1]:5000", "[2001:db8::2]/a", "[2001:db8::1]:5000/a"),
        ("mirror.example", "team/podsettle", "mirror.example/team/podsettle"),
        ("mirror.example", "podsettle", "mirror.example/podsettle"),
    ],
)
def test_global_registry_replaces_the_registry_of_every_image(
    registry: str, image: str, pulled: str
) -> None:
    for tag in ("", ":1.2", f"@{DIGEST}", f":1.2@{DIGEST}"):
        values = {
            "global.imageRegistry": registry,
            "image": {"repository": image, "tag": "v1"},
            "lingerImage": f"{image}{tag}",
            "helmTest.enabled": True,
        }
        made = rendered(values)
        pod, test_pod = only("Deployment", made)["spec"]["template"], only("Pod", made)
        assert container_of(pod)["image"] == container_of(test_pod)["image"] == f"{pulled}:v1"
        assert arguments_of(pod)["--linger-image"] == f"{pulled}{tag or ':v1'}"


def test_tag_may_have_a_digest_which_the_helper_image_does_not_get() -> None:
    tag = f"v1@{DIGEST}"
    values = {"image": {"repository": "r.example/a", "tag": tag}, "lingerImage": "r.example/linger"}
    pod = only("Deployment", rendered(values))["spec"]["template"]
    assert container_of(pod)["image"] == f"r.example/a:{tag}"
    assert arguments_of(pod)["--linger-image"] == "r.example/linger:v1"


def test_image_pull_secrets_combine_the_chart_and_the_global_values() -> None:
    deployment = only("Deployment", objects("everything"))
    wanted = [{"name": "registry"}, {"name": "mirror"}, {"name": "other"}]
    assert deployment["spec"]["template"]["spec"]["imagePullSecrets"] == wanted
    assert named("Pod", "settle-test", "everything")["spec"]["imagePullSecrets"] == wanted
