"""values.yaml and its schema: wrong values are rejected with their path."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import yaml

from tests.support.helm import IMAGES, VALUES, run, set_flags, template
from tests.support.paths import CHART

Json: TypeAlias = dict[str, Any]

DEFAULTS: Json = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA: Json = json.loads((CHART / "values.schema.json").read_text())
FREE = {
    "image.digest": "sha256:" + "0" * 64,
    "webhook.caBundle": "-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n",
}

SCRATCH: Json = {"extraVolumes": [{"name": "a", "emptyDir": {}}]}
MOUNT_PATH = "/extraVolumeMounts/0/mountPath"

WRONG: dict[str, list[object]] = {
    "replicas": [0],
    "image.repository": ["a b"],
    "image.tag": ["a:b", f"1@{'0' * 64}"],
    "image.digest": ["sha256:1"],
    "image.pullPolicy": ["always"],
    "imagePullSecrets": [[5]],
    "global.imageRegistry": ["https://r.example"],
    "global.imagePullSecrets": [[{}], ["A"]],
    "lingerImage": ["an image"],
    "lingerVersion": ["newest"],
    "imageConfig.pullSecretNamespaces": [["ci-*"], ["ci", "ci"]],
    "autoscaling.minReplicas": [0],
    "webhook.failurePolicy": ["fail"],
    "webhook.timeoutSeconds": [31, 0],
    "webhook.excludedNamespaces": [["kube-*"]],
    "webhook.caBundle": ["LS0tLS1CRUdJTg=="],
    "webhook.clientCAConfigMap": ["A"],
    "certificates.source": ["selfmanaged"],
    "certificates.selfManaged.leafLife": ["30d"],
    "certificates.selfManaged.caLife": ["0h"],
    "certificates.certManager.issuerRef": [{"kind": "ClusterIssuer"}],
    "drain.limit": ["1m"],
    "drain.quiet": ["soon"],
    "log.format": ["JSON"],
    "log.level": ["trace"],
    "docsUrl": [
        "docs/a.md",
        "https://a.example#b",
        "https://a.example/" + "x" * 239,
        "https://a.example/" + "ü" * 230,
        "https://a.example/$(HOME)",
        'https://a.example/"',
        "https://a.example/a\\",
    ],
    "settlePolicies": [
        [{"name": "a"}],
        [{"name": "a", "spec": {}}],
        [{"name": "A", "spec": {"remedies": {}}}],
        [{"name": "a" * 64, "spec": {"remedies": {}}}],
    ],
    "runtimeClasses": [[{"name": "a"}]],
    "resources.limits.memory": ["lots"],
    "priorityClassName": ["Top"],
    "spread": ["no"],
    "nodeSelector.a": [True],
    "tolerations": [[{"operator": "exists"}]],
    "topologySpreadConstraints": [[{"labelSelector": "app=a"}]],
    "podLabels": [
        {"helm.sh/chart": "a"},
        {"app.kubernetes.io/component": "a"},
        {"version": "1.0+x"},
        {"a b": "c"},
    ],
    "podAnnotations": [{"a": 1}],
    "commonLabels": [
        {"app.kubernetes.io/name": "a"},
        # This label would make all of the chart's ClusterRoles part of `admin`.
        {"rbac.authorization.k8s.io/aggregate-to-admin": "true"},
        {"a": "a b"},
        {"a b": "c"},
    ],
    "serviceAccount.annotations": [{"a": 1}],
    "extraCA.configMap": ["A"],
    "extraCA.key": ["b/c"],
    "proxy.httpsProxy": ["proxy.example:3128", "socks5://p.example"],
    "extraEnv": [
        [{"name": "A"}],
        [{"name": "A", "value": 1}],
        [{"name": "1A", "value": ""}],
        [{"name": "A", "valueFrom": {}}],
    ],
    # The restricted Pod Security Standard does not allow this volume type.
    "extraVolumes": [[{"name": "a", "hostPath": {}}], [{"name": "a"}]],
    "extraVolumeMounts": [[{"name": "a", "mountPath": "tmp"}]],
    "serviceMonitor.interval": ["1m 30s", ""],
    "serviceMonitor.labels": [{"a": "b c"}],
    "serviceMonitor.tokenSecret.key": [""],
    "networkPolicy.clients": [["10.0.0.0/8"]],
    "networkPolicy.webClients": [["10.0.0.0/8"]],
    "networkPolicy.apiServerPorts": [[0], ["https"]],
    "networkPolicy.registryPorts": [[0]],
    "port": [80],
    "webPort": [443],
    "prometheusRule.runbook": ["docs/a.md", "https://a.example#b"],
    "grafanaDashboard.labels": [{"a": 1}],
    "fullnameOverride": ["Podsettle", "a" * 64],
    "nameOverride": ["a.b"],
    "namespaceOverride": ["A"],
}
"""Values of the right type that the schema refuses, each for one reason."""

RULES: list[tuple[Json, str, str]] = [
    ({"replica": 2}, "", "'replica' not allowed"),
    (
        {"image.repository": ""},
        "/image/repository",
        "--set image.repository=registry.example.com/team/podsettle",
    ),
    ({"image.repository": "r.example:5000/a:1"}, "/image/repository", "put the tag into image.tag"),
    ({"lingerImage": ""}, "/lingerImage", "--set lingerImage=registry.example.com/team/linger"),
    (
        {"imageConfig.pullSecretNamespaces": ["ci"]},
        "/imageConfig/pullSecretNamespaces",
        "it has no effect while pullSecrets is false",
    ),
    ({"webhook.caBundle": FREE["webhook.caBundle"]}, "/webhook/caBundle", "only source files"),
    (
        {"webhook.failurePolicy": "Fail", "webhook.excludedNamespaces": ["kube-public"]},
        "/webhook/excludedNamespaces",
        "with failurePolicy Fail, excludedNamespaces must contain kube-system",
    ),
    (
        {"webhook.failurePolicy": "Fail", "webhook.excludedNamespaces": []},
        "/webhook/excludedNamespaces",
        "must contain kube-system",
    ),
    ({"certificates.source": "files"}, "/certificates/files/secretName", "name of the Secret"),
    (
        {"certificates.source": "files", "certificates.files.secretName": "mine"},
        "/webhook/caBundle",
        "--set-file webhook.caBundle=ca.crt",
    ),
    (
        {"certificates.source": "openshift", "webhook.caBundle": FREE["webhook.caBundle"]},
        "/webhook/caBundle",
        "openshift registers its own",
    ),
    ({"image.repository": "REGISTRY/podsettle"}, "/image/repository", "replace REGISTRY"),
    ({"lingerImage": "REGISTRY/linger:0.1.0"}, "/lingerImage", "replace REGISTRY"),
    (
        {"certificates.selfManaged.leafLife": "2191h"},
        "/certificates/selfManaged/caLife",
        "less than four times",
    ),
    (
        {"certificates.certManager.renewBefore": "2160h"},
        "/certificates/certManager/renewBefore",
        "not less than duration",
    ),
    (
        {"certificates.source": "certManager", "certificates.certManager.caDuration": "4319h"},
        "/certificates/certManager/caDuration",
        "set at least 4320h",
    ),
    ({"autoscaling.minReplicas": 11}, "/autoscaling/minReplicas", "more than maxReplicas"),
    ({"extraCA": {"configMap": "a", "secret": "b"}}, "/extraCA", "not both"),
    ({"proxy.httpsProxy": "http://me:hidden@p.example"}, "/proxy/httpsProxy", "in extraEnv"),
    ({"extraEnv": [{"name": "PODSETTLE_PORT", "value": "1"}]}, "/extraEnv/0/name", "an option of"),
    (
        {"extraEnv": [{"name": "A", "value": ""}, {"name": "A", "value": ""}]},
        "/extraEnv/1/name",
        "already set by /extraEnv/0",
    ),
    (
        {"extraCA.secret": "a", "extraEnv": [{"name": "SSL_CERT_FILE", "value": "/a"}]},
        "/extraEnv/0/name",
        "already set by extraCA",
    ),
    (
        {"proxy.httpsProxy": "http://p:1", "extraEnv": [{"name": "https_proxy", "value": "a"}]},
        "/extraEnv/0/name",
        "already set by proxy.httpsProxy",
    ),
    (
        {"proxy.noProxy": "a", "extraEnv": [{"name": "NO_PROXY", "value": "a"}]},
        "/extraEnv/0/name",
        "already set by proxy.noProxy",
    ),
    ({"extraVolumes": [{"name": "tls", "emptyDir": {}}]}, "/extraVolumes/0/name", "another name"),
    (
        {"extraVolumes": [{"name": "a", "emptyDir": {}}, {"name": "a", "emptyDir": {}}]},
        "/extraVolumes/1/name",
        "there is already a volume a,",
    ),
    (
        {"extraVolumeMounts": [{"name": "client-ca", "mountPath": "/a"}]},
        "/extraVolumeMounts/0/name",
        "client-ca is not the name of a volume in extraVolumes",
    ),
    *(
        ({**SCRATCH, "extraVolumeMounts": [{"name": "a", "mountPath": path}]}, MOUNT_PATH, message)
        for path, message in (
            ("/", "would hide"),
            ("/etc", "would hide podsettle's files in /etc/podsettle/"),
            ("/etc/podsettle", "would hide"),
            ("/etc/podsettle/tls/", "would hide"),
            ("/tmp/../opt//podsettle/lib", "would hide podsettle's files in /opt/podsettle/"),
        )
    ),
    (
        {
            **SCRATCH,
            "extraVolumeMounts": [
                {"name": "a", "mountPath": "/tmp"},
                {"name": "a", "mountPath": "/tmp/"},
            ],
        },
        "/extraVolumeMounts/1/mountPath",
        "there is already a mount at /tmp/",
    ),
    (
        {"image.tag": f"1@{FREE['image.digest']}", "image.digest": FREE["image.digest"]},
        "/image/tag",
        "set only one of them",
    ),
    ({"webPort": 8443}, "/webPort", "8443 is the value of port, too"),
    ({"port": 9443}, "/webPort", "9443 is the value of port, too"),
    ({"networkPolicy.registryPorts": [443]}, "/networkPolicy/registryPorts", "set both or none"),
    # podsettle would not start with these.
    *(
        ({"hostNetwork": True, name: 10250}, f"/{name}", "is the port of the node's kubelet")
        for name in ("port", "webPort")
    ),
    ({"drain.limit": "9s"}, "/drain/quiet", "10s is longer than limit, which is 9s"),
    *(
        ({"lingerImage": image}, "/lingerImage", "is not the name of an image")
        for image in ("r.example/linger:", "r.example//linger", "r.example/Linger", "a@sha256:00")
    ),
    ({"image.repository": "r.example/"}, "/image/repository", "is not the name of an image"),
    (
        {"runtimeClasses": [{"name": "a", "handler": each} for each in "bc"]},
        "/runtimeClasses/1/name",
        "there is already one of the name a; choose another name",
    ),
    (
        {"settlePolicies": [{"name": "a", "spec": {"remedies": {}}}] * 2},
        "/settlePolicies/1/name",
        "there is already one of the name a",
    ),
]


def refused(values: Json) -> str:
    """Return what Helm says of values that it refuses."""
    done = run("helm", "template", "podsettle", CHART, "--values", IMAGES, *set_flags(values))
    assert done.returncode != 0, f"it is accepted: {values}"
    return done.stderr


def accepted(values: Json) -> Json:
    """Return those of several values for which the schema reports no error at their path."""
    pointers = {"/" + path.replace(".", "/"): path for path in values}
    found = re.findall(r"at '([^']*)'", refused(values))
    named = {
        path for each in found for p, path in pointers.items() if f"{each}/".startswith(f"{p}/")
    }
    return {path: value for path, value in values.items() if path not in named}


def test_value_that_the_schema_does_not_allow_is_rejected_with_its_path() -> None:
    """The schema reports all errors at once, so each run has one wrong value of every path."""
    for number in range(max(map(len, WRONG.values()))):
        values = {path: wrong[number] for path, wrong in WRONG.items() if number < len(wrong)}
        assert accepted(values) == {}


def test_value_of_another_type_is_rejected_with_its_path() -> None:
    by_depth: dict[int, Json] = {}
    for path in _value_paths(DEFAULTS):
        default: object = reduce(getitem, path.split("."), DEFAULTS)
        wrong = 1.5 if isinstance(default, str) else "a"
        by_depth.setdefault(path.count("."), {})[path] = wrong
    assert [accepted(values) for values in by_depth.values()] == [{}, {}, {}]


@pytest.mark.parametrize(("values", "path", "message"), RULES, ids=lambda part: str(part)[:60])
def test_wrong_value_is_rejected_with_its_path(values: Json, path: str, message: str) -> None:
    said = refused(values)
    assert f"at '{path}'" in said
    assert message in said


@pytest.mark.parametrize(
    "values",
    [
        {"image.digest": FREE["image.digest"]},
        {"webhook.failurePolicy": "Fail"},
        {"webhook.failurePolicy": "Fail", "webhook.excludedNamespaces": ["ci", "kube-system"]},
        {"webhook.excludedNamespaces": []},
        {
            "certificates.source": "files",
            "certificates.files.secretName": "mine",
            "webhook.caBundle": FREE["webhook.caBundle"],
        },
        {"certificates.selfManaged.leafLife": "2190h"},
        {"imageConfig.pullSecrets": True},
        {**SCRATCH, "extraVolumeMounts": [{"name": "a", "mountPath": "/etc/podsettled"}]},
        {"docsUrl": "https://a.example/" + "x" * 238},
        {"extraEnv": [{"name": "HTTPS_PROXY", "value": "http://me:secret@p:1"}]},
        {"extraEnv": [{"name": name, "value": "a"} for name in ("NO_PROXY", "no_proxy")]},
        {"extraEnv": [{"name": "SSL_CERT_FILE", "value": "/a"}], "proxy.noProxy": "a"},
        {"commonLabels": {"app.kubernetes.io/part-of": "ci", "example.com/team": ""}},
        {"resources": {"limits": {"memory": "1Gi", "cpu": 2}, "requests": {"cpu": "0.5"}}},
        {"global": {"anything": 1, "imageRegistry": None}},
        {"global.imageRegistry": "localhost:5000/mirror/"},
        {"serviceMonitor.enabled": True, "serviceMonitor.interval": "1m"},
        {"serviceMonitor.enabled": True, "serviceMonitor.interval": "1m30s"},
        {"podLabels": {"example.com/team": "", "version": "1.0"}},
        *(
            {labels: {"app.kubernetes.io/part-of": "ci"}}
            for labels in ("podLabels", "serviceMonitor.labels", "prometheusRule.labels")
        ),
        # Empty texts as the API server takes them: any effect, and the operator Equal.
        {"tolerations": [{"key": "a", "operator": "", "value": "b", "effect": ""}]},
        {"settlePolicies": [{"name": "team.ci", "spec": {"remedies": {}}}]},
        # As OpenSSL writes it.
        {
            "certificates": {"source": "files", "files": {"secretName": "mine"}},
            "webhook.caBundle": f"subject=CN = ca\n{FREE['webhook.caBundle']}",
        },
    ],
    ids=str,
)
def test_valid_value_is_accepted(values: Json) -> None:
    template(*set_flags(values))


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_missing_value_with_a_default_is_rejected(tmp_path: Path, depth: int) -> None:
    """Such as `null`, or a release of an older chart with `--reuse-values`."""
    paths = {
        path
        for path, default in _defaults()
        if default not in ("", False, [], {}) and path.count(".") == depth - 1
    }
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(_nested(dict.fromkeys(paths))))
    done = run("helm", "template", "podsettle", CHART, "--values", IMAGES, "--values", file)
    missing = set()
    for parent, names in re.findall(r"at '(.*)': missing propert(?:y|ies) (.+)", done.stderr):
        missing |= {
            f"{parent}/{name}"[1:].replace("/", ".") for name in re.findall(r"'(\w+)'", names)
        }
    assert paths - missing <= {"replicas"}  # A scaler can set it.


@pytest.mark.parametrize("values", ["default", "openshift"])
def test_missing_value_without_a_default_is_the_same_as_an_empty_one(
    tmp_path: Path, values: str
) -> None:
    paths = {path for path, default in _defaults() if default in ("", False, [], {})}
    shown = yaml.safe_load(VALUES[values].read_text()) or {}
    paths -= {*_value_paths(shown), "image.repository", "lingerImage"}
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(_nested(dict.fromkeys(paths))))
    flags = ("--values", VALUES[values])
    assert template("--values", file, *flags) == template(*flags)


IN_AN_EARLIER_FILE: Json = {
    **{
        f"{path}.other": "a"
        for path in (
            "nodeSelector",
            "commonLabels",
            "podLabels",
            "podAnnotations",
            "serviceAccount.annotations",
            "serviceMonitor.labels",
            "prometheusRule.labels",
            "grafanaDashboard.labels",
        )
    },
    "resources.limits.ephemeral-storage": "1Gi",
    "affinity.podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": []},
}


def test_null_removes_what_an_earlier_file_of_values_set(tmp_path: Path) -> None:
    """Helm keeps such a null, and the API server would take it for an empty text."""
    flags: list[str | Path] = ["--values", VALUES["everything"]]
    expected = template(*flags)
    for number, values in enumerate((IN_AN_EARLIER_FILE, dict.fromkeys(IN_AN_EARLIER_FILE))):
        file = tmp_path / f"{number}.yaml"
        file.write_text(yaml.safe_dump(_nested(values)))
        flags += ["--values", file]
    assert template(*flags) == expected


def _defaults() -> Iterator[tuple[str, object]]:
    """The values that are none of Helm's, and no mappings whose keys the user chooses."""
    for path in _value_paths(DEFAULTS):
        default: Any = reduce(getitem, path.split("."), DEFAULTS)
        helms = path == "enabled" or path.partition(".")[0] == "global"
        if not helms and (path not in _FREE_MAPPINGS or not default):
            yield path, default


def _nested(values: Mapping[str, object]) -> Json:
    made: Json = {}
    for path, value in values.items():
        *parents, name = path.split(".")
        reduce(lambda at, parent: at.setdefault(parent, {}), parents, made)[name] = value
    return made


def test_schema_and_values_have_the_same_paths() -> None:
    assert set(_schema_paths(SCHEMA)) == set(_value_paths(DEFAULTS))


def test_schema_rejects_unknown_keys_of_every_object() -> None:
    opened = list(_open_objects(SCHEMA, ""))
    # These objects belong to Kubernetes, to another chart or to the CRD.
    assert [each.rpartition("/")[2] for each in opened] == [
        "global",
        "spec",
        "items",
        "labelSelector",
        "nodeAffinity",
        "podAffinity",
        "podAntiAffinity",
        "namespaceSelector",
        "podSelector",
        "volumeSource",
    ]


def test_values_everything_set_every_value() -> None:
    """Otherwise the tests would not notice a value that no template uses."""
    shown = yaml.safe_load(VALUES["everything"].read_text())
    assert set(_value_paths(DEFAULTS)) <= set(_value_paths(shown)) | {"certificates.certManager"}


def _value_paths(values: Json, prefix: str = "") -> Iterator[str]:
    for key, value in values.items():
        path = f"{prefix}{key}"
        yield path
        if isinstance(value, dict) and path not in _FREE_MAPPINGS:
            yield from _value_paths(value, f"{path}.")


def _schema_paths(schema: Json, prefix: str = "") -> Iterator[str]:
    for key, value in schema.get("properties", {}).items():
        path = f"{prefix}{key}"
        yield path
        if path not in _FREE_MAPPINGS:
            yield from _schema_paths(value, f"{path}.")


# Mappings whose keys are not defined by the chart.
_FREE_MAPPINGS = {
    "affinity",
    "certificates.certManager.issuerRef",
    "resources",
    "nodeSelector",
    "commonLabels",
    "podLabels",
    "podAnnotations",
    "serviceAccount.annotations",
    "serviceMonitor.labels",
    "prometheusRule.labels",
    "grafanaDashboard.labels",
}


def _open_objects(schema: Any, path: str) -> Iterator[str]:
    if isinstance(schema, dict):
        if "object" in schema.get("type", ()) and schema.get("additionalProperties", True) is True:
            yield path
        for key, value in schema.items():
            yield from _open_objects(value, f"{path}/{key}")
