"""The pure parts of the kill switch. tests/e2e/inspect/test_kill_switch.py uses it."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from tests.support.process import podsettle
from webhook.inspect.doctor.deleted_configuration import Switch
from webhook.inspect.doctor.kill_switch import instructions
from webhook.inspect.doctor.rivals import rivals
from webhook.inspect.installation import Installation

CONFIGURATION: dict[str, Any] = {
    "metadata": {
        "name": "podsettle",
        "uid": "u",
        "resourceVersion": "7",
        "generation": 3,
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "labels": {"app.kubernetes.io/managed-by": "Helm"},
        "annotations": {"meta.helm.sh/release-name": "podsettle"},
        "managedFields": [
            {"manager": "helm"},
            {"manager": "podsettle"},
            {"manager": "kubectl-edit"},
        ],
    },
    "webhooks": [
        {"name": "cluster.podsettle.dev", "clientConfig": {}},
        {"name": "opt-in.podsettle.dev", "clientConfig": {"caBundle": "Y2E="}},
    ],
}


def test_record_has_the_opt_in_webhook_and_no_field_of_the_server() -> None:
    record = yaml.safe_load(Switch(CONFIGURATION, None).record)
    assert record == {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {
            "name": "podsettle",
            "labels": {"app.kubernetes.io/managed-by": "Helm"},
            "annotations": {"meta.helm.sh/release-name": "podsettle"},
        },
        "webhooks": [CONFIGURATION["webhooks"][1]],
    }


def test_record_keeps_foreign_webhooks_and_the_user_is_warned() -> None:
    foreign = {"name": "other.example.com", "clientConfig": {}}
    webhooks = [*CONFIGURATION["webhooks"], foreign]
    switch = Switch({**CONFIGURATION, "webhooks": webhooks}, None)
    names = [each["name"] for each in yaml.safe_load(switch.record)["webhooks"]]
    assert names == ["opt-in.podsettle.dev", "other.example.com"]
    (warning,) = (line for line in instructions(switch) if line.startswith("# WARNING"))
    assert warning.endswith("switches off too: other.example.com")


def test_record_without_the_opt_in_webhook_keeps_all_webhooks_and_the_user_is_warned() -> None:
    webhooks = [CONFIGURATION["webhooks"][0]]
    switch = Switch({**CONFIGURATION, "webhooks": webhooks}, None)
    assert yaml.safe_load(switch.record)["webhooks"] == webhooks
    (warning,) = (line for line in instructions(switch) if line.startswith("# WARNING"))
    assert "no webhook opt-in.podsettle.dev" in warning


def test_suspended_needs_yes() -> None:
    done = podsettle("doctor", "--kill-switch", "--suspended")
    assert done.returncode == 2
    assert "--suspended has no effect without --yes" in done.stderr


def test_way_back_without_a_known_installation_needs_no_helm() -> None:
    text = "\n".join(instructions(Switch(CONFIGURATION, None)))
    assert "helm" not in text.replace("meta.helm.sh", "").replace("managed-by: Helm", "")
    assert text.index("kubectl delete") < text.index("#   kubectl create -f podsettle-webhook.yaml")


def test_command_that_lists_native_policies_is_a_comment() -> None:
    command = "kubectl get mutatingadmissionpolicies -l app.kubernetes.io/managed-by="
    (line,) = (each for each in instructions(Switch(CONFIGURATION, None)) if command in each)
    assert line == f"#   {command}podsettle-export"


@pytest.mark.parametrize("failure_policy", ["Ignore", "Fail"])
def test_user_is_warned_before_a_way_back_that_refuses_pods_without_a_replica(
    failure_policy: str,
) -> None:
    own = {"name": "opt-in.podsettle.dev", "failurePolicy": failure_policy}
    foreign = {"name": "other.example.com", "failurePolicy": "Fail"}
    configuration = {**CONFIGURATION, "webhooks": [own, foreign]}
    installation = Installation("system", "settle", {}, {"metadata": {}})
    text = "\n".join(instructions(Switch(configuration, installation)))
    back = text.partition("# The way back:\n")[2]
    warning = back.partition("#   kubectl create -f ")[0]
    assert ("restores failurePolicy Fail" in warning) is (failure_policy == "Fail")
    check = "#   kubectl -n system get deployment settle\n"
    assert (check in warning) is (failure_policy == "Fail")


@pytest.mark.parametrize(
    ("metadata", "tool", "suspension"),
    [
        (
            {"annotations": {"argocd.argoproj.io/tracking-id": "settle:a/B:ns/podsettle"}},
            "Argo CD",
            "kubectl -n argocd patch application settle ",
        ),
        (
            {"labels": {"kustomize.toolkit.fluxcd.io/name": "infra"}},
            "Flux",
            "flux suspend kustomization infra -n flux-system",
        ),
        (
            {
                "labels": {
                    "helm.toolkit.fluxcd.io/name": "settle",
                    "helm.toolkit.fluxcd.io/namespace": "apps",
                }
            },
            "Flux",
            "flux suspend helmrelease settle -n apps",
        ),
        (
            {"ownerReferences": [{"kind": "Settler", "name": "one"}]},
            "the operator of Settler one",
            "suspend it, or delete Settler one",
        ),
        (
            {"managedFields": [{"manager": "gitops-agent"}]},
            "the field manager gitops-agent",
            "gitops-agent has written this object",
        ),
    ],
)
def test_tool_that_could_create_the_configuration_again_is_named(
    metadata: dict[str, Any], tool: str, suspension: str
) -> None:
    configuration = {**CONFIGURATION, "metadata": {"name": "podsettle", **metadata}}
    (found,) = rivals(configuration)
    assert found.tool == tool
    assert found.suspension.startswith(suspension)
    lines = list(instructions(Switch(configuration, None)))
    assert lines[1] == f"# First: {tool} could create the configuration again."


@pytest.mark.parametrize(
    "metadata",
    [
        {"annotations": {"argocd.argoproj.io/tracking-id": "x; touch /tmp/y #\n touch z:a/B:c/d"}},
        {"ownerReferences": [{"kind": "Settler", "name": "one\ntouch /tmp/y"}]},
    ],
)
def test_text_that_is_no_name_becomes_no_command(metadata: dict[str, Any]) -> None:
    configuration = {**CONFIGURATION, "metadata": {"name": "podsettle", **metadata}}
    text = "\n".join(instructions(Switch(configuration, None)))
    # The shell does not expand the record, which is in a here-document.
    before, _, rest = text.partition("<<'EOF'\n")
    lines = [*before.splitlines(), *rest.partition("\nEOF\n")[2].splitlines()]
    assert any("touch" in line for line in lines)
    assert all(line.startswith("#") for line in lines if "touch" in line)


def test_helm_kubectl_podsettle_and_injectors_do_not_create_the_configuration_again() -> None:
    assert list(rivals(CONFIGURATION)) == []
    managers = [{"manager": name} for name in ("cert-manager-cainjector", "service-ca-operator")]
    assert list(rivals({"metadata": {"name": "x", "managedFields": managers}})) == []
