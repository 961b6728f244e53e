"""What commands read from the Deployment of an installation. tests/e2e/inspect finds a real one."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.helm import arguments_of, named, objects
from webhook.core.defects.versions import Version
from webhook.inspect.installation import (
    Installation,
    installation_of,
    own_configurations,
    service_namespace,
)


def installed(values: str = "default") -> Installation:
    """The installation of a rendered chart."""
    return installation_of(named("Deployment", "podsettle", values))


def changed(**container: Any) -> Installation:
    """An installation whose container is started in another way."""
    deployment = named("Deployment", "podsettle")
    spec = deployment["spec"]["template"]["spec"]
    template = {**deployment["spec"]["template"], "spec": {**spec, "containers": [container]}}
    return installation_of({**deployment, "spec": {**deployment["spec"], "template": template}})


def test_arguments_of_the_chart_are_the_options_of_the_installation() -> None:
    deployment = named("Deployment", "podsettle")
    given = arguments_of(deployment["spec"]["template"])
    found = installed()
    own = {"--own-namespace": "podsettle-system"}
    assert {f"--{key}": value for key, value in found.arguments.items()} == given | own
    assert found.namespace == found.own_namespace == "podsettle-system"
    assert found.name == found.service == found.lease == found.configuration == "podsettle"
    assert found.linger_image == given["--linger-image"]
    assert found.is_self_managed
    assert found.tls_secret == "podsettle-tls"
    assert found.service_account == "podsettle"
    assert found.helm_release is None, "helm template adds no release"


@pytest.mark.parametrize(("name", "release"), [("settle", "settle"), ("x;reboot", None)])
def test_helm_release_is_a_name_that_needs_no_quotes(name: str, release: str | None) -> None:
    deployment = named("Deployment", "podsettle")
    annotations = {"meta.helm.sh/release-name": name}
    metadata = {**deployment["metadata"], "annotations": annotations}
    assert installation_of({**deployment, "metadata": metadata}).helm_release == release


def test_secret_of_mounted_certificates_is_the_one_of_the_volume() -> None:
    found = installed("files")
    assert not found.is_self_managed
    assert found.tls_secret == "podsettle-certificate"


def test_argument_takes_precedence_over_the_environment() -> None:
    environment = [
        {"name": "PODSETTLE_NAMESPACE", "value": "settle"},
        {"name": "PODSETTLE_LINGER_IMAGE", "value": "environment"},
        {"name": "PODSETTLE_LEASE", "value": "other"},
        {"name": "HTTPS_PROXY", "value": "http://proxy"},
        {"name": "PODSETTLE_PORT", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
    ]
    found = changed(args=["serve", "--linger-image", "argument"], env=environment)
    assert found.arguments == {
        "own-namespace": "settle",
        "linger-image": "argument",
        "lease": "other",
    }
    assert found.own_namespace == "settle"


@pytest.mark.parametrize(
    ("arguments", "image"),
    [
        (["serve", "--linger-image=a"], "a"),
        (["serve", "--linger-image", "a", "--port", "1"], "a"),
        (["serve", "--linger-image", "--port=1"], None),
        (["serve", "--linger-image="], None),
        (["serve"], None),
    ],
)
def test_linger_image_is_read_in_each_form_of_the_argument(
    arguments: list[str], image: str | None
) -> None:
    assert changed(args=arguments).linger_image == image


def test_version_of_the_helper_is_read_from_the_arguments() -> None:
    assert installed().linger_version is None
    found = installation_of(named("Deployment", "settle", "everything"))
    assert found.linger_version == Version(0, 2)
    assert changed(args=["serve", "--linger-version", "newest"]).linger_version is None


@pytest.mark.parametrize(
    "url", ["https://e/\x1b[31m", f"https://x/{'x' * 300}", "javascript:x", "https://a b"]
)
def test_address_of_the_documentation_that_the_server_would_refuse_is_none(url: str) -> None:
    assert changed(args=["serve", f"--docs-url={url}"]).docs_url is None


def test_own_namespace_of_another_namespace_protects_nothing() -> None:
    assert changed(args=["serve", "--own-namespace=shop"]).protected_namespace is None
    assert installed().protected_namespace == "podsettle-system"


def test_configuration_of_podsettle_is_known_by_its_webhooks_and_names_the_namespace() -> None:
    (own,) = (each for each in objects() if each["kind"] == "MutatingWebhookConfiguration")
    other = {"metadata": {"name": "podsettle"}, "webhooks": [{"name": "x.other.dev"}]}
    empty: dict[str, Any] = {"metadata": {"name": "podsettle"}}
    assert list(own_configurations([other, own, empty])) == [own]
    assert service_namespace(own) == "podsettle-system"
    by_url = {"webhooks": [{"name": "a.podsettle.dev", "clientConfig": {"url": "https://x"}}]}
    assert service_namespace(by_url) == ""
