"""What commands read from the Deployment of an installation. tests/e2e/inspect finds a real one."""

from __future__ import annotations

from copy import deepcopy
from typing import Any, cast

import pytest

from tests.support.helm import arguments_of, named, objects
from webhook.cluster.client import ApiServer
from webhook.cluster.errors import ApiError, Unreachable
from webhook.cluster.reader import ClusterReader
from webhook.cluster.rights import Right
from webhook.core.defects.versions import Version
from webhook.inspect.doctor.checks.api_server import required_rights
from webhook.inspect.installation import (
    Absent,
    Installation,
    find_installation,
    installation_of,
    own_webhooks,
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
    own = {"--own-namespace": "podsettle-system", "--service": "podsettle"}
    own |= {"--lease": "podsettle", "--tls-secret": "podsettle-tls"}
    assert {f"--{key}": value for key, value in found.arguments.items()} == given | own
    assert found.namespace == found.own_namespace == "podsettle-system"
    assert found.name == found.configuration == "podsettle"
    assert found.settings.linger_image == given["--linger-image"]
    assert found.is_self_managed
    assert not installed("files").is_self_managed
    assert found.service_account == "system:serviceaccount:podsettle-system:podsettle"


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
        "service": "podsettle",
        "tls-secret": "podsettle-tls",
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
    assert changed(args=arguments).settings.linger_image == image


def test_version_of_the_helper_is_read_from_the_arguments() -> None:
    assert installed().settings.linger_version is None
    found = installation_of(named("Deployment", "settle", "everything"))
    assert found.settings.linger_version == Version(0, 2)
    assert changed(args=["serve", "--linger-version", "newest"]).settings.linger_version is None


@pytest.mark.parametrize(
    "url", ["https://e/\x1b[31m", f"https://x/{'x' * 300}", "javascript:x", "https://a b"]
)
def test_address_of_the_documentation_that_the_server_would_refuse_is_none(url: str) -> None:
    assert changed(args=["serve", f"--docs-url={url}"]).settings.docs_url is None


def test_own_namespace_of_another_namespace_protects_nothing() -> None:
    assert changed(args=["serve", "--own-namespace=shop"]).settings.own_namespace is None
    assert installed().settings.own_namespace == "podsettle-system"


def test_configuration_of_podsettle_is_known_by_its_webhooks_and_names_the_namespace() -> None:
    (own,) = (each for each in objects() if each["kind"] == "MutatingWebhookConfiguration")
    other = {"metadata": {"name": "podsettle"}, "webhooks": [{"name": "x.other.dev"}]}
    empty: dict[str, Any] = {"metadata": {"name": "podsettle"}}
    assert [len(own_webhooks(each)) for each in (other, own, empty)] == [0, 1, 0]
    assert service_namespace(own) == "podsettle-system"
    assert service_namespace(other) == ""
    by_url = {"webhooks": [{"name": "a.podsettle.dev", "clientConfig": {"url": "https://x"}}]}
    assert service_namespace(by_url) == ""


OWN = named("Deployment", "podsettle")
(CALLING,) = (each for each in objects() if each["kind"] == "MutatingWebhookConfiguration")
CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
EVERYWHERE = "/apis/apps/v1/deployments"
IN_OWN = "/apis/apps/v1/namespaces/podsettle-system/deployments"


def in_namespace(namespace: str, **labels: str) -> dict[str, Any]:
    """A Deployment that a tenant of a namespace has created."""
    spec = deepcopy(OWN["spec"])
    spec["template"]["metadata"]["labels"] |= labels
    metadata = {**OWN["metadata"], "namespace": namespace}
    metadata["labels"] = {**metadata["labels"], **labels}
    return {**OWN, "spec": spec, "metadata": metadata}


NAME = "app.kubernetes.io/name"
WITH_ALIAS = in_namespace("podsettle-system", **{NAME: "settler"})


class Server:
    """An API server with lists. The answer to any other request is 403."""

    url = "https://api.example"

    def __init__(self, lists: dict[str, list[Any]]) -> None:
        self._lists = lists

    async def request(self, _method: str, path: str, **_options: Any) -> object:
        path, _, query = path.partition("?")
        found = self._lists.get(path)
        if found is None:
            raise ApiError(403, "forbidden")
        if "name%3Dpodsettle" in query:
            found = [each for each in found if each["metadata"]["labels"][NAME] == "podsettle"]
        return {"kind": "List", "items": found}


@pytest.mark.parametrize(
    ("lists", "found"),
    [
        # A tenant's Deployment does not count beside the one that the API server calls.
        ({CONFIGURATIONS: [CALLING], IN_OWN: [OWN], EVERYWHERE: [OWN, in_namespace("shop")]}, OWN),
        ({CONFIGURATIONS: [CALLING], IN_OWN: [OWN]}, OWN),
        ({CONFIGURATIONS: [CALLING], IN_OWN: [WITH_ALIAS], EVERYWHERE: []}, WITH_ALIAS),
        # Without a configuration, all count.
        ({CONFIGURATIONS: [], EVERYWHERE: [OWN]}, OWN),
        ({EVERYWHERE: [OWN]}, OWN),
        (
            {CONFIGURATIONS: [], EVERYWHERE: [OWN, in_namespace("shop")]},
            "there are several Deployments of podsettle: podsettle-system/podsettle, "
            "shop/podsettle",
        ),
        (
            {CONFIGURATIONS: [CALLING], IN_OWN: [], EVERYWHERE: []},
            "there is no Deployment of podsettle",
        ),
        (
            {EVERYWHERE: [in_namespace("shop", **{"app.kubernetes.io/component": "other"})]},
            "there is no Deployment of podsettle",
        ),
        # What may not be read is not absent.
        (
            {},
            "podsettle's Deployment could not be looked for: list deployments in all namespaces, "
            "list mutatingwebhookconfigurations",
        ),
        (
            {CONFIGURATIONS: []},
            "no MutatingWebhookConfiguration is podsettle's: list deployments in all namespaces",
        ),
        (
            {CONFIGURATIONS: [CALLING]},
            "podsettle's Deployment could not be read: list deployments in namespace "
            "podsettle-system",
        ),
    ],
)
async def test_installation_is_the_one_that_the_api_server_calls(
    lists: dict[str, list[Any]], found: object
) -> None:
    result = await find_installation(ClusterReader(cast(ApiServer, Server(lists))))
    if isinstance(result, Installation):
        assert result.deployment == found
    else:
        rights = ", ".join(map(str, result.rights))
        assert result.why + (f": {rights}" if rights else "") == found


async def test_namespace_that_the_user_names_is_the_only_one_that_counts() -> None:
    reader = ClusterReader(cast(ApiServer, Server({IN_OWN: [OWN]})))
    assert isinstance(await find_installation(reader, "podsettle-system"), Installation)
    denied = await find_installation(reader, "shop")
    assert isinstance(denied, Absent)
    assert [str(right) for right in denied.rights] == ["list deployments in namespace shop"]


MALFORMED_WEBHOOKS: list[Any] = [[None], [{}], [{"name": 5}], [5], 5]
MALFORMED: list[dict[str, list[Any]]] = [
    *(
        {CONFIGURATIONS: [{"metadata": {"name": "a"}, "webhooks": webhooks}]}
        for webhooks in MALFORMED_WEBHOOKS
    ),
    *(
        {CONFIGURATIONS: [{**CALLING, "webhooks": [{**CALLING["webhooks"][0], **client}]}]}
        for client in ({"clientConfig": 5}, {"clientConfig": {"service": {"name": "a"}}})
    ),
    *(
        {CONFIGURATIONS: [CALLING], IN_OWN: [{**OWN, "spec": spec}]}
        for spec in (None, {}, {"template": None}, {"template": {"metadata": None}})
    ),
    {CONFIGURATIONS: [CALLING], IN_OWN: [{"metadata": {"name": "podsettle"}}]},
]


@pytest.mark.parametrize("lists", MALFORMED)
async def test_malformed_object_is_not_that_of_an_api_server(lists: dict[str, list[Any]]) -> None:
    with pytest.raises(
        Unreachable, match=r"in the response is malformed \(.*\), so it is not of an API"
    ):
        await find_installation(ClusterReader(cast(ApiServer, Server(lists))))


# Its rights


def rights_of_the_chart(values: str, name: str) -> set[Right]:
    """The rights of the roles with the name of the release, and of the role for Events."""
    return {
        Right(verb, rule["apiGroups"][0], kind, namespace, object_name, subresource)
        for role in objects(values)
        if role["kind"] in ("ClusterRole", "Role")
        and role["metadata"]["name"] in (name, f"{name}-events")
        for namespace in [role["metadata"].get("namespace")]
        for rule in role["rules"]
        for resource in rule["resources"]
        for kind, _, subresource in [resource.partition("/")]
        for object_name in rule.get("resourceNames", [None])
        for verb in rule["verbs"]
    }


@pytest.mark.parametrize("values", ["default", "files", "openshift", "everything"])
def test_required_rights_are_the_rules_of_the_chart(values: str) -> None:
    (deployment,) = (each for each in objects(values) if each["kind"] == "Deployment")
    found = installation_of(deployment)
    rights = required_rights(found)
    assert set(rights) == rights_of_the_chart(values, found.name)
    assert len(rights) == len(set(rights))
