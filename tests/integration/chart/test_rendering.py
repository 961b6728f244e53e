"""The objects that the chart renders."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from shutil import copytree

import pytest
import yaml

from tests.support.helm import (
    IMAGES,
    NAMESPACE,
    VALUES,
    Json,
    arguments_of,
    container_of,
    named,
    objects,
    only,
    rendered,
    run,
    set_flags,
    template,
)
from tests.support.paths import CHART, ROOT
from tools.kube_versions import MODULES
from webhook.cli import main
from webhook.cli.serve import serve

OLDEST, *_ = MODULES
TEMPLATES = sorted(path for path in (CHART / "templates").rglob("*") if path.is_file())


def test_chart_refuses_releases_of_kubernetes_that_are_older_than_the_tested_ones() -> None:
    arguments = ("podsettle", CHART, "--values", IMAGES, "--kube-version")
    assert run("helm", "template", *arguments, f"{OLDEST}.0").returncode == 0
    before = f"1.{int(OLDEST.partition('.')[2]) - 1}.14"
    refused = run("helm", "template", *arguments, before)
    assert refused.returncode != 0
    assert "incompatible with Kubernetes" in refused.stderr


def test_chart_has_the_version_and_description_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == project["version"]
    assert chart["description"] == project["description"]


def test_templates_use_no_random_values_and_no_lookups() -> None:
    forbidden = re.compile(
        r"\b(rand\w*|genCA\w*|genSelfSigned\w*|genSigned\w*|genPrivateKey|uuidv4|now|lookup|bcrypt"
        r"|htpasswd|encryptAES|getHostByName)\b"
    )
    for path in TEMPLATES:
        for action in re.findall(r"\{\{(.*?)\}\}", path.read_text(), re.DOTALL):
            assert not forbidden.search(action), f"{path.name}: {action}"


@pytest.mark.parametrize("values", VALUES)
def test_helm_lint_reports_no_problem(values: str) -> None:
    flags = ("--strict", "--values", IMAGES, "--values", VALUES[values])
    done = run("helm", "lint", CHART, *flags)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[WARNING]" not in done.stdout


@pytest.mark.parametrize("values", VALUES)
def test_every_object_has_the_standard_labels(values: str) -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    wanted = {
        "helm.sh/chart": f"podsettle-{chart['version']}",
        "app.kubernetes.io/name": "podsettle",
        "app.kubernetes.io/instance": "podsettle",
        "app.kubernetes.io/version": chart["appVersion"],
        "app.kubernetes.io/managed-by": "Helm",
    }
    for each in objects(values):
        assert each["metadata"]["labels"].items() >= wanted.items(), each


def test_common_labels_are_on_every_object_and_in_no_selector() -> None:
    """A Deployment's selector is immutable, and a Service's must match running pods."""
    common = {"app.kubernetes.io/part-of": "ci", "team": "none", "release": "other"}
    # An object's own labels take precedence.
    own = {
        "ServiceMonitor": {"release": "prometheus"},
        "PrometheusRule": {"release": "prometheus"},
        "Pod": {"team": "platform"},
    }
    for each in objects("everything"):
        wanted = common | own.get(each["kind"], {})
        assert each["metadata"]["labels"].items() >= wanted.items(), each
    pod = named("Deployment", "settle", "everything")["spec"]["template"]["metadata"]["labels"]
    assert pod.items() >= (common | {"team": "platform"}).items()

    def selectors(values: Json) -> list[Json]:
        return list(_selectors(rendered(values, "--values", VALUES["everything"])))

    assert len(selectors({})) == 6
    assert selectors({}) == selectors({"commonLabels": {"another": "one"}})
    assert not any(common.items() & each.items() for each in selectors({}))


def _selectors(found: object) -> Iterator[Json]:
    """Yield all selectors of podsettle's pods and of its Service, at any depth."""
    if isinstance(found, list):
        for each in found:
            yield from _selectors(each)
    elif isinstance(found, dict):
        if found.get("app.kubernetes.io/name") and "helm.sh/chart" not in found:
            yield found
        for each in found.values():
            yield from _selectors(each)


# A tool may change the namespace of the rendered objects.
OWN_NAMESPACE = {
    "name": "PODSETTLE_NAMESPACE",
    "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}},
}


def test_additional_environment_volumes_and_annotations_are_rendered() -> None:
    """Additional means: in addition to the chart's own."""
    values = yaml.safe_load(VALUES["everything"].read_text())
    pod = named("Deployment", "settle", "everything")["spec"]["template"]
    container = container_of(pod)
    chosen = {
        "SSL_CERT_FILE": "/etc/podsettle/extra-ca/bundle.pem",
        "HTTPS_PROXY": "http://proxy.example:3128",
        "NO_PROXY": "10.0.0.0/8, .example.com",
    }
    own = [{"name": name, "value": value} for name, value in chosen.items()]
    assert container["env"] == [OWN_NAMESPACE, *own, *values["extraEnv"]]
    mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    assert mounts["extra-ca"] == "/etc/podsettle/extra-ca"
    assert all(each in container["volumeMounts"] for each in values["extraVolumeMounts"])
    assert all(each in pod["spec"]["volumes"] for each in values["extraVolumes"])
    assert {"name": "extra-ca", "configMap": {"name": "company-ca"}} in pod["spec"]["volumes"]
    assert {each["name"] for each in pod["spec"]["volumes"]} == mounts.keys()
    account = named("ServiceAccount", "settle", "everything")
    assert account["metadata"]["annotations"] == values["serviceAccount"]["annotations"]


def test_default_values_render_no_further_environment_and_no_volumes() -> None:
    pod = named("Deployment", "podsettle")["spec"]["template"]["spec"]
    assert "volumes" not in pod
    assert pod["containers"][0]["env"] == [OWN_NAMESPACE]
    assert "volumeMounts" not in pod["containers"][0]
    assert "annotations" not in named("ServiceAccount", "podsettle")["metadata"]


def test_extra_ca_can_come_from_a_secret() -> None:
    pod = only("Deployment", rendered({"extraCA.secret": "company-ca"}))["spec"]["template"]
    assert pod["spec"]["volumes"] == [{"name": "extra-ca", "secret": {"secretName": "company-ca"}}]
    assert container_of(pod)["env"] == [
        OWN_NAMESPACE,
        {"name": "SSL_CERT_FILE", "value": "/etc/podsettle/extra-ca/ca.crt"},
    ]


@pytest.mark.parametrize("values", VALUES)
def test_every_namespaced_object_is_in_the_release_namespace(values: str) -> None:
    cluster_wide = {
        "ClusterRole",
        "ClusterRoleBinding",
        "MutatingWebhookConfiguration",
        "RuntimeClass",
        "SettlePolicy",
    }
    for each in objects(values):
        if each["kind"] == "RoleBinding" and each["metadata"]["name"].endswith("-pull-secrets"):
            # These are in the namespaces whose Secrets podsettle reads.
            continue
        wanted = None if each["kind"] in cluster_wide else NAMESPACE
        assert each["metadata"].get("namespace") == wanted, each


def test_values_everything_render_every_template() -> None:
    """The exceptions are Secrets for another certificate source or another way to scrape."""
    text = template("--values", VALUES["everything"])
    sources = set(re.findall(r"^# Source: podsettle/(.+)$", text, re.MULTILINE))
    every = {str(path.relative_to(CHART)) for path in TEMPLATES if path.suffix == ".yaml"}
    assert every - sources == {"templates/metrics-reader.yaml", "templates/secret.yaml"}
    assert [each["kind"] for each in objects() if each["kind"] == "Secret"]
    assert [each["kind"] for each in objects("openshift") if each["kind"] == "Secret"]


@pytest.mark.parametrize("values", VALUES)
def test_references_between_objects_are_consistent(values: str) -> None:
    """A wrong name in a reference would show only in a cluster."""
    name = "settle" if values == "everything" else "podsettle"
    webhooks = named("MutatingWebhookConfiguration", name, values)["webhooks"]
    service = named("Service", name, values)
    for webhook in webhooks:
        reference = webhook["clientConfig"]["service"]
        assert reference["name"] == service["metadata"]["name"]
        assert reference["namespace"] == NAMESPACE
        assert reference["port"] == service["spec"]["ports"][0]["port"]
    pod = named("Deployment", name, values)["spec"]["template"]
    assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    for each in objects(values):
        if each["kind"] == "Pod":
            labels = each["metadata"]["labels"].items()
            assert not service["spec"]["selector"].items() <= labels
    arguments = arguments_of(pod)
    assert arguments["--service"] == name
    assert arguments["--webhook-configuration"] == name
    # The Deployment with the name of the Lease owns it.
    assert arguments["--lease"] == name
    # An older chart's replicas and configuration know the first port by its name and its number.
    assert [
        (each["name"], each["port"], each["targetPort"]) for each in service["spec"]["ports"]
    ] == [
        ("https", 443, "https"),
        ("web", 9443, "web"),
    ]
    assert [(each["name"], each["containerPort"]) for each in container_of(pod)["ports"]] == [
        ("https", int(arguments["--port"])),
        ("web", int(arguments["--web-port"])),
    ]
    for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
        assert container_of(pod)[probe]["httpGet"]["port"] == "https"
    everything = values == "everything"
    docs_url = "https://docs.example/explain" if everything else None
    assert arguments.get("--docs-url") == docs_url
    if arguments["--tls"] == "self-managed":
        assert named("Secret", arguments["--tls-secret"], values)["type"] == "Opaque"
    else:
        mounts = {each["name"]: each["mountPath"] for each in container_of(pod)["volumeMounts"]}
        assert mounts["tls"] == arguments["--certs-dir"]


@pytest.mark.parametrize("values", VALUES)
def test_podsettle_accepts_the_rendered_arguments(values: str) -> None:
    _, *flags = container_of(only("Deployment", objects(values))["spec"]["template"])["args"]
    serve.make_context("serve", flags, **main.context_settings)


@pytest.mark.parametrize(
    "url",
    [
        "https://docs.example/a:",
        "https://docs.example/(a):b",
        "http://[::1]:8080/~me/a-b_c.d?e=f&g='h'*!@;,%20+",
    ],
)
def test_docs_url_reaches_podsettle_as_it_is(url: str) -> None:
    pod = only("Deployment", rendered({"docsUrl": url}))["spec"]["template"]
    assert arguments_of(pod)["--docs-url"] == url
    _, *flags = container_of(pod)["args"]
    context = serve.make_context("serve", flags, **main.context_settings)
    assert context.params["docs_url"] == url


def test_spread_constraint_without_a_label_selector_counts_the_replicas() -> None:
    """Otherwise it would count no pod, and spread nothing."""
    own = {"matchLabels": {"app": "other"}}
    constraint = {"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
    constraints = [
        constraint,
        {**constraint, "labelSelector": None},
        {**constraint, "labelSelector": own},
    ]
    deployment = only("Deployment", rendered({"topologySpreadConstraints": constraints}))
    replicas = deployment["spec"]["selector"]
    assert deployment["spec"]["template"]["spec"]["topologySpreadConstraints"] == [
        {**constraint, "labelSelector": replicas},
        {**constraint, "labelSelector": replicas},
        {**constraint, "labelSelector": own},
    ]


def test_service_links_are_disabled() -> None:
    """A service link sets PODSETTLE_PORT=tcp://…, which podsettle would read as an option."""
    pod = named("Deployment", "podsettle")["spec"]["template"]
    assert pod["spec"]["enableServiceLinks"] is False


@pytest.mark.parametrize("values", VALUES)
def test_termination_grace_period_exceeds_the_drain_limit(values: str) -> None:
    pod = only("Deployment", objects(values))["spec"]["template"]
    limit = int(arguments_of(pod)["--drain-limit"].removesuffix("s"))
    assert pod["spec"]["terminationGracePeriodSeconds"] > limit


@pytest.mark.parametrize("values", VALUES)
def test_webhook_excludes_the_release_namespace(values: str) -> None:
    configuration = only("MutatingWebhookConfiguration", objects(values))
    for webhook in configuration["webhooks"]:
        excluded = webhook["namespaceSelector"]["matchExpressions"][2]
        assert (excluded["key"], excluded["operator"]) == ("kubernetes.io/metadata.name", "NotIn")
        assert {NAMESPACE, "kube-system"} <= set(excluded["values"])


@pytest.mark.parametrize("values", VALUES)
def test_webhook_has_no_match_conditions(values: str) -> None:
    """For a single match condition, the API server converts every pod."""
    (webhook,) = only("MutatingWebhookConfiguration", objects(values))["webhooks"]
    assert "matchConditions" not in webhook
    assert webhook["reinvocationPolicy"] == "IfNeeded"


@pytest.mark.parametrize("namespace", ["podsettle-system", "admission", "kube-system"])
@pytest.mark.parametrize("others", [[], ["kube-system", "kube-public"]])
def test_release_namespace_is_the_last_one_that_is_excluded(
    others: list[str], namespace: str
) -> None:
    """A kustomization that changes the namespace replaces it by its index."""
    made = rendered({"webhook.excludedNamespaces": others, "namespaceOverride": namespace})
    configuration = only("MutatingWebhookConfiguration", made)
    excluded = configuration["webhooks"][0]["namespaceSelector"]["matchExpressions"][2]
    assert excluded["values"] == [*(each for each in others if each != namespace), namespace]


def test_helm_template_prints_no_test_pod_by_default() -> None:
    """`helm template` also prints hooks, so `kubectl apply` would create the test pod."""
    assert not [each for each in objects() if each["kind"] == "Pod"]
    hooks = [
        each
        for each in objects("everything")
        if "helm.sh/hook" in each["metadata"].get("annotations", {})
    ]
    assert [(each["kind"], each["metadata"]["name"]) for each in hooks] == [("Pod", "settle-test")]


def test_missing_image_fails_with_the_value_to_set() -> None:
    for command in (("template",), ("install", "--dry-run=client")):
        done = run("helm", *command, "podsettle", CHART)
        assert done.returncode != 0
        assert "at '/image/repository': it is empty; set the image of podsettle" in done.stderr
        assert "--set image.repository=registry.example.com/team/podsettle" in done.stderr


def test_policies_and_runtime_classes_are_rendered_with_every_field() -> None:
    values = yaml.safe_load(VALUES["everything"].read_text())
    for wanted in values["settlePolicies"]:
        made = named("SettlePolicy", wanted["name"], "everything")
        assert made["spec"] == wanted["spec"]
    for wanted in values["runtimeClasses"]:
        made = named("RuntimeClass", wanted["name"], "everything")
        for key in ("handler", "overhead", "scheduling"):
            assert made[key] == wanted[key]
        expected = {"helm.sh/resource-policy": "keep", **wanted["annotations"]}
        assert made["metadata"]["annotations"] == expected


def test_releases_with_different_names_share_no_object() -> None:
    def names(release: str) -> set[tuple[str, str]]:
        return {
            (each["kind"], each["metadata"]["name"])
            for each in yaml.safe_load_all(template(release=release))
            if each
        }

    assert not names("podsettle") & names("other")
    assert ("Service", "other-podsettle") in names("other")
    assert max(len(name) for kind, name in names("r" * 53) if kind == "Service") <= 63


def test_name_that_is_cut_does_not_end_in_dashes() -> None:
    made = rendered({"nameOverride": f"{'a' * 50}-----{'b' * 5}"})
    assert only("Service", made)["metadata"]["name"] == f"podsettle-{'a' * 50}"


def test_pod_of_helm_test_has_the_settings_of_the_replicas() -> None:
    """Otherwise a quota, a LimitRange, a taint or an injected sidecar could stop it."""
    replica = named("Deployment", "settle", "everything")["spec"]["template"]
    pod = named("Pod", "settle-test", "everything")
    for key in ("affinity", "nodeSelector", "priorityClassName", "securityContext", "tolerations"):
        assert pod["spec"][key] == replica["spec"][key]
    assert pod["spec"]["containers"][0]["resources"] == container_of(replica)["resources"]
    for key, component in (("labels", "app.kubernetes.io/component"), ("annotations", "")):
        of_replicas = replica["metadata"][key].items() - {(component, "webhook")}
        assert pod["metadata"][key].items() >= of_replicas


@pytest.mark.parametrize("values", VALUES)
def test_names_that_yaml_reads_as_numbers_stay_texts(tmp_path: Path, values: str) -> None:
    def objects_of(name: str) -> str:
        chart = copytree(CHART, tmp_path / name)
        metadata = yaml.safe_load((chart / "Chart.yaml").read_text())
        # As with an alias in a parent chart.
        (chart / "Chart.yaml").write_text(yaml.safe_dump(metadata | {"name": name}))
        flags = set_flags(
            {
                "imageConfig": {"pullSecrets": True, "pullSecretNamespaces": [name]},
                "serviceMonitor.tokenSecret.name": name,
            }
        )
        files = ("--values", IMAGES, "--values", VALUES[values])
        flags = [*flags, "--namespace", name, "--kube-version=1.36"]
        done = run("helm", "template", name, chart, *files, *flags)
        assert done.returncode == 0, done.stderr
        return json.dumps(list(yaml.safe_load_all(done.stdout)))

    assert objects_of("a17").replace("a17", "017") == objects_of("017")


@pytest.mark.parametrize("path", ["replicas", "autoscaling.maxReplicas"])
def test_number_that_helm_reads_as_a_float_is_rendered_as_an_integer(path: str) -> None:
    """From files, all numbers are floats, which Go prints as 1e+07."""
    made = rendered({path: 10_000_000, "autoscaling.enabled": path != "replicas"})
    specs = [each["spec"] for each in made if "spec" in each]
    key = path.rpartition(".")[2]
    assert [each[key] for each in specs if key in each] == [10_000_000]


def test_null_leaves_the_number_of_replicas_to_a_scaler() -> None:
    deployment = only("Deployment", rendered({"replicas": None}))
    assert "replicas" not in deployment["spec"]


@pytest.mark.parametrize("namespaces", [[], ["ci"]], ids=["all namespaces", "one namespace"])
def test_notes_warn_if_podsettle_may_read_every_secret(namespaces: list[str]) -> None:
    said = {"imageConfig.pullSecrets": True, "imageConfig.pullSecretNamespaces": namespaces}
    flags = ("--dry-run=client", *set_flags(said))
    done = run("helm", "install", "podsettle", CHART, "--values", IMAGES, *flags)
    assert done.returncode == 0, done.stderr
    assert ("may read every Secret" in done.stdout) is (not namespaces)


@pytest.mark.parametrize(
    ("values", "setting"),
    [
        ({"webhook.failurePolicy": "Fail", "replicas": 1}, "replicas"),
        ({"webhook.failurePolicy": "Ignore", "replicas": 1}, None),
        ({"webhook.failurePolicy": "Fail"}, None),
        (
            {
                "webhook.failurePolicy": "Fail",
                "autoscaling.enabled": True,
                "autoscaling.minReplicas": 1,
            },
            "autoscaling.minReplicas",
        ),
        ({"webhook.failurePolicy": "Fail", "autoscaling.enabled": True, "replicas": 1}, None),
    ],
)
def test_notes_warn_if_the_restart_of_the_only_replica_refuses_pods(
    values: Json, setting: str | None
) -> None:
    flags = ("--dry-run=client", *set_flags(values))
    done = run("helm", "install", "podsettle", CHART, "--values", IMAGES, *flags)
    assert done.returncode == 0, done.stderr
    assert ("fewer than two replicas" in done.stdout) is (setting is not None)
    assert f"Set `{setting}` to 2 or more" in done.stdout or setting is None


@pytest.mark.parametrize("values", VALUES)
def test_notes_list_the_next_steps(values: str) -> None:
    flags = ("--namespace", NAMESPACE, "--dry-run=client", "--values", IMAGES)
    done = run("helm", "install", "podsettle", CHART, *flags, "--values", VALUES[values])
    assert done.returncode == 0, done.stderr
    notes = done.stdout.partition("\nNOTES:\n")[2]
    everything = values == "everything"
    name = "settle" if everything else "podsettle"
    assert f"kubectl delete mutatingwebhookconfiguration {name}\n" in notes
    assert f"rollout status deployment/{name}\n" in notes
    assert "on port 9443 (`web`) of the Service" in notes
    assert ("kind: SettlePolicy" in notes) is not everything
    assert ("action: Audit" in notes) is not everything
    assert "podsettle.dev/policy=quick-init\n" in notes
    assert ("helm -n podsettle-system test podsettle" in notes) is everything
    assert ("`lingerImage` is `none`" in notes) is (values == "no-helper")
    assert ("failurePolicy is Fail" in notes) is everything
    assert "changes only pods that a SettlePolicy covers" in notes
    assert "\n\n\n" not in notes
