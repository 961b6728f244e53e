"""A release that `podsettle doctor` looks at, its controllers, and the reports of its runs."""

from __future__ import annotations

import base64
import json
import re
import signal
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from click.testing import CliRunner

from tests.support.helm import NAMESPACE
from tests.support.helm_release import (
    HOST,
    OWN,
    POLICIES,
    RELEASE,
    REQUIRED,
    Installation,
    Replica,
    policy,
)
from tests.support.kube.cluster import Json, KubeCluster
from tests.support.markdown import Page, blocks_of
from tests.support.paths import CHART, DOCS
from tests.support.process import podsettle
from tests.support.waiting import await_that
from webhook.cli import main
from webhook.tls.issuing import KeyPair, issue_ca, issue_leaf

SECRET = "podsettle-certificate"
DRAIN = "--set=drain.quiet=1s"
"""A short time without reviews at shutdown, which only slows the tests down."""


GUIDE = Page(DOCS / "operations.md")
_SHARED_SECTIONS = ("apply-the-chart-again", "pods-are-refused")


class Line(NamedTuple):
    """A line of a report."""

    check: str
    state: str
    result: str
    repair: str
    command: str


def repair_commands(repair: str) -> list[str]:
    """Return the commands of a section of the guide, and of those to which it sends its reader."""
    page, _, anchor = repair.partition("#")
    assert page == "docs/operations.md"
    section = GUIDE.section(anchor)
    linked = [each for each in _SHARED_SECTIONS if f"](#{each})" in section]
    texts = [section, *map(GUIDE.section, linked)]
    blocks = (block for text in texts for block in blocks_of(text) if block.language == "sh")
    return [block.text for block in blocks]


_DEPLOYMENT = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{RELEASE}"


class ReplicaController:
    """Keeps as many processes, each with its pod, as the Deployment of a release wants.

    The API server reaches the processes through these pods, as `podsettle doctor` does.
    `certificates` is the directory that the processes read their certificate from, if a Secret is
    mounted there.
    """

    def __init__(self, installation: Installation, certificates: Path | None = None) -> None:
        self._installation = installation
        self._certificates = certificates
        self._template: Json = {}
        self._crashed: list[str] = []
        """The names of the pods whose processes were killed."""

    def reconcile(self) -> None:
        """Do what the controllers would do until the Deployment is as it should be."""
        self.mount()
        deployment = self._installation.get(_DEPLOYMENT)
        template = deployment["spec"]["template"]
        if template != self._template:
            self._template = template
            for name in self._crashed:
                self._installation.delete_pod(name)
            self._crashed.clear()
            self._remove(*self._installation.replicas)
        wanted = deployment["spec"]["replicas"]
        self._remove(*self._installation.replicas[wanted:])
        while len(self._installation.replicas) < wanted:
            self._add()
        for replica in self._installation.replicas:
            await_that(replica.is_ready, "a replica is ready", seconds=60)

    def restart(self) -> None:
        """Replace every replica by a new one."""
        self._template = {}
        self.reconcile()

    def mount(self) -> None:
        """Write the files of the mounted Secret, as the kubelet does."""
        if self._certificates is None:
            return
        (secret,) = (
            volume["secret"]["secretName"]
            for volume in self._installation.get(_DEPLOYMENT)["spec"]["template"]["spec"]["volumes"]
            if "secret" in volume
        )
        self._certificates.mkdir(exist_ok=True)
        # The key comes first, because the certificate without its key is not loaded.
        data = self._installation.get(f"{OWN}/secrets/{secret}")["data"]
        for name in ("tls.key", "tls.crt"):
            (self._certificates / name).write_bytes(base64.b64decode(data[name]))

    def crash(self) -> None:
        """Kill every process. Its pod stays, and is not ready."""
        for replica in list(self._installation.replicas):
            self._installation.replicas.remove(replica)
            replica.end(signal.SIGKILL)
            self._installation.withdraw(replica)
            self._installation.write_status(replica, ready=False)
            self._crashed.append(replica.pod_name)

    def _add(self) -> None:
        mounted = [f"--certs-dir={self._certificates}"] if self._certificates else []
        replica = self._installation.start(*mounted)
        self._installation.create_pod(replica)

    def _remove(self, *replicas: Replica) -> None:
        self._installation.retire(*replicas)
        for replica in replicas:
            self._installation.delete_pod(replica.pod_name)


class DoctorRelease:
    """A release with certificates from files, its controllers, and doctor."""

    def __init__(
        self, installation: Installation, directory: Path, *, is_mounted: bool = True
    ) -> None:
        self.installation = installation
        self.cluster: KubeCluster = installation.cluster
        self.directory = directory
        mounted = directory / "mounted" if is_mounted else None
        self.controller = ReplicaController(installation, mounted)
        past = datetime.now(UTC) - timedelta(days=2)
        self.ca = issue_ca("tests", timedelta(days=365), past)
        self.write(self.ca.certificate_pem, "ca.crt")
        self.new_certificate()

    def write(self, content: bytes, name: str) -> Path:
        path = self.directory / name
        path.write_bytes(content)
        return path

    def new_certificate(self, now: datetime | None = None, days: float = 100) -> KeyPair:
        """Write tls.crt and tls.key, and return them."""
        lifetime = timedelta(days=days)
        leaf = issue_leaf(self.ca, [HOST], lifetime, now or datetime.now(UTC))
        self.write(leaf.certificate_pem, "tls.crt")
        self.write(leaf.key_pem, "tls.key")
        return leaf

    def write_secret(self, name: str = SECRET) -> None:
        """Write tls.crt and tls.key into a Secret."""
        data = {
            key: base64.b64encode((self.directory / key).read_bytes()).decode()
            for key in ("tls.crt", "tls.key")
        }
        secret = {"metadata": {"name": name}, "type": "kubernetes.io/tls", "data": data}
        status, _, _ = self.cluster.request("POST", f"{OWN}/secrets", secret)
        if status == 409:
            self.cluster.request("PATCH", f"{OWN}/secrets/{name}", {"data": data})

    def install(self, *values: str, inject: Callable[[DoctorRelease], None] | None = None) -> None:
        """Install a release with two ready replicas, and a policy for a namespace `ci`.

        `inject` writes the caBundle, if another component than podsettle does.
        """
        self.cluster.namespace(NAMESPACE)
        self.write_secret()
        if inject:
            for issuer in ("cert-manager", "openshift"):
                self.write_secret(f"{RELEASE}-{issuer}-tls")
        self.installation.helm("install", RELEASE, CHART, DRAIN, *values)
        if inject:
            inject(self)
        self.controller.reconcile()
        self.cluster.request("POST", POLICIES, policy("opt-in"))
        self.cluster.namespace("ci", labels={"podsettle.dev/policy": "opt-in"})

    @property
    def values(self) -> tuple[str, ...]:
        """The values of the release."""
        return (
            REQUIRED,
            f"--set=certificates.source=files,certificates.files.secretName={SECRET}",
            f"--set-file=webhook.caBundle={self.directory / 'ca.crt'}",
        )

    def doctor(self, *flags: str) -> list[Line]:
        """Run doctor in this process, and return its lines. The exit code must fit to them.

        A process of its own would spend most of its time on imports.
        """
        options = ("--kubeconfig", str(self.cluster.kubeconfig), "-o", "json")
        done = CliRunner().invoke(main, ["doctor", *options, *flags])
        assert done.exit_code in (0, 1), done.output
        report = json.loads(done.stdout)
        lines = [_line(each) for each in report["checks"]]
        assert done.exit_code == int(any(line.state == "fault" for line in lines))
        return lines

    def run(self, *flags: str) -> subprocess.CompletedProcess[str]:
        """Run the command as a process, with the rights of the administrator."""
        return podsettle("doctor", "--kubeconfig", self.cluster.kubeconfig, *flags)

    def faults(self, *flags: str) -> list[Line]:
        return [line for line in self.doctor(*flags) if line.state == "fault"]

    def follow(self, command: str, editor: str = "false", **values: str) -> None:
        """Run a command of the guide, with values for what its user has to fill in."""
        files = {name: str(self.directory / name) for name in ("tls.crt", "tls.key", "ca.crt")}
        for word, value in {"IMAGE": "registry.example/linger:0.2.0", **files, **values}.items():
            command = re.sub(rf"(?<![\w.]){re.escape(word)}(?![\w.])", value, command)
        # `kubectl edit` starts this editor.
        self.installation.shell(f"export KUBE_EDITOR='{editor}'\n{command}")
        self.controller.reconcile()


def _line(check: Json) -> Line:
    return Line(*(check[field] for field in Line._fields))
