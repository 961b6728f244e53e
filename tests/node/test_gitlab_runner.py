"""Tests of podsettle with GitLab Runner, from a clone: `make node GITLAB_RUNNER_SOURCE=DIR`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from tests.support.helm_release import POLICIES, policy
from tests.support.kube.cluster import Json
from tests.support.kube.server import Server
from tests.support.node.deliveries import Settled
from tests.support.node.gitlab_build import ENTRYPOINT, HELPER, RELEASE, SOURCE, find_gitlab_runner
from tests.support.node.node import RealNode
from tests.support.node.node_pool import NEWEST
from tests.support.node.pods import commands, exit_codes, pod_path, wrapper_of
from tests.support.node.registry_server import SECOND_ADDRESS as REGISTRY
from tests.support.node.registry_server import serve
from tests.support.node.runtime import Runtime
from tests.support.waiting import await_that

RUNNER = find_gitlab_runner()
pytestmark = pytest.mark.skipif(
    RUNNER is None, reason=f"not built: {SOURCE}=DIR python -m tests.support.node.gitlab_build"
)
PLAIN, SETTLED = "gitlab-plain", "gitlab-settled"
INIT, LABEL = "init-permissions", "job.runner.gitlab.com/pod"
LEGACY, HONOR = "FF_USE_LEGACY_KUBERNETES_EXECUTION_STRATEGY", "FF_KUBERNETES_HONOR_ENTRYPOINT"
SLEEP = ["echo begin", "sleep 1h"]
POLICY: Json = {
    "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": SETTLED}},
    "podSelector": {"matchExpressions": [{"key": LABEL, "operator": "Exists"}]},
    "remedies": {"postInitSleep": {"when": "Always", "containers": ["*"]}, "kubeletGate": {}},
}
# How each job ends, and what it does.
CASES: dict[str, tuple[str, Json]] = {
    "lines": ("success", {"script": ["echo 1 >&2", "for i in 2 3; do\n  echo $i\ndone\numask"]}),
    "failure": ("failed script_failure 3", {"script": ["exit 3", "echo never"]}),
    "after": ("success", {"script": ["true"], "after": ["echo $CI_JOB_STATUS", "exit 7"]}),
    "after 1": ("failed script_failure 1", {"script": ["false"], "after": ["echo after"]}),
    "masked": ("success", {"script": ["echo a${SECRET}b"], "variables": {"SECRET": "hush hush"}}),
    "service": ("success", {"script": ["nc web 80 </dev/null"], "service": "echo up | nc -lp 80"}),
    "user": ("success", {"script": ["id -un; echo x >f; cat f"], "image": "user"}),
    ENTRYPOINT: ("failed script_failure 5", {"script": ["exit 5"], "variables": {HONOR: "true"}}),
    "timeout": ("failed job_execution_timeout", {"script": SLEEP, "timeout": 60}),
    "cancel": ("failed job_canceled", {"script": SLEEP}),
}


def payload(node: RealNode, case: Json, variables: Json) -> Json:
    """Return what a GitLab server says of a job."""
    steps = [{"name": "script", "script": case["script"], "when": "on_success"}]
    after = {"script": case.get("after"), "when": "always", "allow_failure": True}
    image = node.images.named(case.get("image", "busybox"))
    service = {"name": image, "alias": "web", "entrypoint": ["sh", "-c", case.get("service")]}
    variables = {"GIT_STRATEGY": "none", **variables, **case.get("variables", {})}
    return {
        "steps": [*steps, {"name": "after_script", **after}] if "after" in case else steps,
        "variables": [
            {"key": key, "value": value, "public": True, "masked": key == "SECRET"}
            for key, value in variables.items()
        ],
        "image": {"name": f"{REGISTRY}/{ENTRYPOINT}:{RELEASE}" if HONOR in variables else image},
        "services": [service] if "service" in case else [],
        "runner_info": {"timeout": case.get("timeout", 3600)},
        "features": {"failure_reasons": ["job_canceled"]},
        "git_info": {"repo_url": "http://127.0.0.1/group/project.git"},
        "token": "token",
    }


@dataclass
class Job:
    """A job, what the runner has sent about it, and the last seen state of its pods."""

    namespace: str
    payload: Json
    status: str = "running"
    trace: bytearray = field(default_factory=bytearray)
    updates: list[Json] = field(default_factory=list)
    pods: dict[str, Json] = field(default_factory=dict)


class Coordinator(ThreadingHTTPServer):
    """What the runner needs of a GitLab server. A runner's token is the name of its namespace."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.jobs: dict[int, Job] = {}
        self.waiting: dict[str, list[Job]] = {PLAIN: [], SETTLED: []}

    def add(self, namespace: str, payload: Json) -> Job:
        identity = 900_000 + len(self.jobs)
        payload |= {"id": identity, "job_info": {"project_id": identity}}
        self.jobs[identity] = job = Job(namespace, payload)
        self.waiting[namespace].append(job)
        return job


class Handler(BaseHTTPRequestHandler):
    """The runner's API: it asks for a job, updates its state, and appends to its trace."""

    server: Coordinator

    def do_POST(self) -> None:
        sent, answer = self.rfile.read(int(self.headers["Content-Length"])), b""
        if self.path.endswith("/jobs/request"):
            if waiting := self.server.waiting[json.loads(sent)["token"]]:
                answer = json.dumps(waiting.pop(0).payload).encode()
            self.send_response(201 if answer else 204)
        else:
            job = self.server.jobs[int(self.path.split("/")[4])]
            if self.command == "PATCH":
                job.trace[int(self.headers["Content-Range"].split("-")[0]) :] = sent
            else:
                job.updates.append(json.loads(sent))
            self.send_response(202 if self.command == "PATCH" else 200)
            self.send_header("Job-Status", job.status)
            self.send_header("X-GitLab-Trace-Update-Interval", "1")
        self.send_header("Content-Length", str(len(answer)))
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(answer)

    do_PUT = do_PATCH = do_POST  # noqa: N815 (the names that the class calls)

    def log_message(self, format: str, *args: object) -> None: ...


@pytest.fixture(scope="module", params=[*NEWEST])
def node(shared_node: Callable[[Runtime], RealNode], request: pytest.FixtureRequest) -> RealNode:
    return shared_node(NEWEST[request.param]())


@pytest.fixture(scope="module")
def runner(settled: Settled) -> Iterator[tuple[RealNode, Coordinator]]:
    """The shared node with a runner for a namespace with the policy, and for one without."""
    assert RUNNER is not None
    node, cluster, logs = settled.node, settled.cluster, settled.node.kubelet.log.parent
    cluster.create(POLICIES, policy("gitlab", **POLICY))
    coordinator, settings = Coordinator(), "concurrent = 8\ncheck_interval = 1\n"
    Thread(target=coordinator.serve_forever, daemon=True).start()
    for name in (PLAIN, SETTLED):
        node.namespace(name)
        settings += f"""
            [[runners]]
            url = "http://127.0.0.1:{coordinator.server_port}"
            token = "{name}"
            executor = "kubernetes"
            [runners.kubernetes]
            host = "{cluster.url}"
            bearer_token = "{cluster.token}"
            ca_file = "{cluster.ca_file}"
            namespace = "{name}"
            helper_image = "{REGISTRY}/{HELPER}:{RELEASE}"
            poll_interval = 1
        """
    settled.await_policy(SETTLED, {LABEL: "probe"})
    (logs / "config.toml").write_text(settings)
    flags = ("run", "--config", str(logs / "config.toml"))
    program = Server(RUNNER / "gitlab-runner", flags, logs / "gitlab-runner.log", {"NO_PROXY": "*"})
    with serve(RUNNER / "registry", logs / "gitlab-registry.log", REGISTRY):
        program.start()
        yield node, coordinator
        program.kill()


def has_ended(node: RealNode, job: Job, case: str) -> bool:
    """Return whether a job has ended. Cancel it if that is the case and its script has begun."""
    if case == "cancel" and b"\nbegin" in job.trace:
        job.status = "canceling"
    label = f"project.runner.gitlab.com/id={job.payload['id']}"
    pods = f"{pod_path(job.namespace)}?labelSelector={label}"
    for pod in node.cluster.request("GET", pods).body["items"]:
        job.pods[pod["metadata"]["name"]] = pod
    return bool(job.updates) and job.updates[-1]["state"] != "running"


def outcome(job: Job) -> tuple[str, list[str], list[int | None]]:
    """Return how a job and its pods' init container end, and its trace without what differs."""
    last = job.updates[-1]
    end = [str(last[key]) for key in ("state", "failure_reason", "exit_code") if key in last]
    text = re.sub(r"\x1b\[[\d;]*[A-Za-z]", "", job.trace.decode())
    text = re.sub(rf"{job.namespace}|{job.payload['id']}|20\d\d-\d\d-\S+Z", "-", text)
    # The order between the streams is not defined.
    unlike = re.compile(r"Waiting for pod|\t|(Running|  ) ?on |section_|WARNING: Getting job pod")
    lines = sorted(line for line in re.split(r"[\r\n]+", text) if not unlike.match(line))
    return " ".join(end), lines, [exit_codes(pod).get(INIT) for pod in job.pods.values()]


@pytest.mark.parametrize("case", CASES)
def test_job_ends_as_without_podsettle(runner: tuple[RealNode, Coordinator], case: str) -> None:
    (node, coordinator), (end, does) = runner, CASES[case]
    jobs = [
        coordinator.add(namespace, payload(node, does, {LEGACY: legacy}))
        for legacy in ("false", "true")
        for namespace in (PLAIN, SETTLED)
    ]
    await_that(lambda: min([has_ended(node, job, case) for job in jobs]), "all jobs have ended")
    for plain, settled in (jobs[:2], jobs[2:]):
        assert outcome(settled) == outcome(plain)
        assert outcome(plain)[::2] == (end, [0 if plain is jobs[0] else None])
        wrappers = {k: wrapper_of(v) for k, v in commands(*settled.pods.values()).items()}
        assert wrappers.get(INIT, "Shell") == "Shell"
        assert {wrappers["build"], wrappers["helper"]} == {"" if case == ENTRYPOINT else "helper"}
