"""Names and quantities as people choose them: the API server takes the objects, or helm refuses."""

from __future__ import annotations

import re
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.helm import IMAGES, run, set_flags
from tests.support.kube.cluster import KubeCluster
from tests.support.paths import CHART
from tests.support.policy_objects import apply_crd
from tools.kube_versions import chosen

pytestmark = pytest.mark.slow

# Texts that YAML reads as another type, and names at the limits.
WORDS = ["2048", "1e3", "0x1f", "0b1", "1-2", "true", "null", "no", "y", "on", "inf", "012", "a-1"]
LABELS = st.one_of(
    st.sampled_from(WORDS), st.from_regex(r"[a-z0-9]([-a-z0-9]{0,40}[a-z0-9])?", fullmatch=True)
)
# Helm takes the names of DNS subdomains of at most 53 characters.
RELEASES = st.one_of(
    LABELS,
    st.sampled_from(["prod.podsettle", "a.b", "1.5", "a" * 53, f"podsettle-{'9' * 43}"]),
)
APPLY = ("apply", "--server-side", "--dry-run=server", "-f", "-")
CPUS = st.sampled_from(["100m", "0.5", ".5", "1.", "1e-1", "1E-1", "+1", 1, 0.25])
MEMORY = st.sampled_from(["128Mi", "1Ki", "2k", "1e6", 1_000_000])
POLICY = {"name": "1e3", "spec": {"remedies": {"postInitSleep": {}}}}


@pytest.fixture(scope="module")
def crd(cluster: KubeCluster) -> KubeCluster:
    apply_crd(cluster)
    return cluster


def refusal_is_a_sentence(stderr: str) -> bool:
    return re.search(r"at '/\w+[^']*': .+; (choose|set)", stderr) is not None


def test_api_server_takes_what_the_chart_renders(crd: KubeCluster) -> None:
    counts = {"taken": 0, "refused": 0}

    @settings(max_examples=40, suppress_health_check=list(HealthCheck))
    @given(
        release=RELEASES,
        namespace=LABELS,
        overrides=st.fixed_dictionaries(
            {},
            optional={
                "nameOverride": LABELS,
                "namespaceOverride": LABELS,
                "fullnameOverride": st.sampled_from(["true", "null", "on", "y", "settle"]),
                "resources.requests.cpu": CPUS,
                "resources.requests.memory": MEMORY,
                "imagePullSecrets": st.lists(
                    LABELS | LABELS.map(lambda name: {"name": name}), max_size=2
                ),
                "priorityClassName": st.just("1e3"),
                "extraCA.secret": st.just("0x1f"),
                "settlePolicies": st.just([POLICY]),
                "runtimeClasses": st.just([{"name": "12", "handler": "34"}]),
                "commonLabels": st.just({"team": "12"}),
                "port": st.just(10250),
            },
        ),
    )
    def render(release: str, namespace: str, overrides: dict[str, Any]) -> None:
        flags = ("-n", namespace, f"--kube-version={chosen()}", *set_flags(overrides))
        done = run("helm", "template", release, CHART, "--values", IMAGES, *flags)
        if done.returncode != 0:
            assert refusal_is_a_sentence(done.stderr), done.stderr
            counts["refused"] += 1
            return
        counts["taken"] += 1
        where = overrides.get("namespaceOverride") or namespace
        crd.namespace(where)
        for each in filter(None, yaml.safe_load_all(done.stdout)):
            assert each["metadata"].get("namespace", where) == where
        applied = crd.kubectl(*APPLY, input=done.stdout)
        assert applied.returncode == 0, applied.stderr

    render()
    assert counts["taken"] > 20, counts


def api_server_takes(cluster: KubeCluster, rendered: str) -> None:
    applied = cluster.kubectl(*APPLY, input=rendered)
    assert applied.returncode == 0, applied.stderr


def parent_chart(directory: Path, values: dict[str, Any], **dependency: str) -> Path:
    """Write a chart with podsettle as a dependency, and get the dependency."""
    fields = {"name": "podsettle", "version": ">=0.0.0-0", "repository": f"file://{CHART}"}
    dependencies = [{**fields, **dependency}]
    chart = {"apiVersion": "v2", "name": "shop", "version": "1.0.0", "dependencies": dependencies}
    (directory / "Chart.yaml").write_text(yaml.safe_dump(chart))
    (directory / "values.yaml").write_text(yaml.safe_dump(values))
    built = run("helm", "dependency", "build", directory)
    assert built.returncode == 0, built.stderr
    return directory


@pytest.mark.parametrize("alias", ["podSettle", "pod_settle", "POD-Settle"])
def test_alias_in_a_parent_chart_may_have_capitals_and_underscores(
    crd: KubeCluster, tmp_path: Path, alias: str
) -> None:
    parent = parent_chart(tmp_path, {alias: yaml.safe_load(IMAGES.read_text())}, alias=alias)
    done = run("helm", "template", "shop", parent, f"--kube-version={chosen()}", "-n", "default")
    assert done.returncode == 0, done.stderr
    api_server_takes(crd, done.stdout)


@pytest.mark.parametrize(("enabled", "kinds"), [("true", True), ("false", False), ("null", True)])
def test_parent_chart_can_switch_podsettle_off(tmp_path: Path, enabled: str, kinds: bool) -> None:
    images = {"image": {"repository": "podsettle"}, "lingerImage": "linger"}
    registry = {"imageRegistry": "registry.example", "imagePullSecrets": ["one"], "domain": "x"}
    values = {"podsettle": images, "global": registry}
    parent = parent_chart(tmp_path, values, condition="podsettle.enabled")
    done = run("helm", "template", "shop", parent, f"--set=podsettle.enabled={enabled}")
    assert done.returncode == 0, done.stderr
    made = [each for each in yaml.safe_load_all(done.stdout) if each]
    assert bool(made) is kinds
    for pod in (each["spec"]["template"]["spec"] for each in made if each["kind"] == "Deployment"):
        assert pod["imagePullSecrets"] == [{"name": "one"}]
        assert pod["containers"][0]["image"].startswith("registry.example/podsettle:")


def test_versions_may_have_build_metadata(crd: KubeCluster, tmp_path: Path) -> None:
    """Flux adds the digest of an OCI artifact to the chart's version."""
    chart = copytree(CHART, tmp_path / "podsettle")
    metadata = yaml.safe_load((chart / "Chart.yaml").read_text())
    versions = {"version": f"0.2.0-{'rc' * 40}.1+4fda46fd8c4e", "appVersion": "0.2.0+g12"}
    (chart / "Chart.yaml").write_text(yaml.safe_dump(metadata | versions))
    done = run("helm", "template", "shop", chart, "--values", IMAGES, "-n", "default")
    assert done.returncode == 0, done.stderr
    api_server_takes(crd, done.stdout)
    assert 'image: "registry.example/podsettle:0.2.0_g12"' in done.stdout


def test_digits_are_refused_where_a_service_cannot_have_them() -> None:
    done = run("helm", "template", "2048", CHART, "--kube-version=1.35", "--values", IMAGES)
    assert "before Kubernetes 1.36 a Service's name begins with a letter" in done.stderr
