"""A release with two replicas under creations of pods, on which a scenario makes its fault."""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Literal, TypeAlias

from tests.faults.api_proxy import ApiProxy
from tests.faults.pod import Pod
from tests.faults.result import Result
from tests.faults.scenario import Loss, Scenario, Unavailable
from tests.support.every_remedy import EVERY_REMEDY, create_runtime_class, every_remedy_pod
from tests.support.helm import NAMESPACE
from tests.support.helm_release import (
    OWN,
    POLICIES,
    QUIET,
    RELEASE,
    ROUTING,
    Replica,
    installed,
    policy,
)
from tests.support.kube.cluster import Answer, Json, KubeCluster
from tests.support.pod_load import creating_pods
from tests.support.waiting import await_that

FailurePolicy: TypeAlias = Literal["Ignore", "Fail"]

POLICY = "faults"
PODS_NAMESPACE = "faults"
PER_SECOND = 25
TIMEOUT_SECONDS = 2
"""The chart's own `webhook.timeoutSeconds`."""
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{RELEASE}"
SECRET = f"{OWN}/secrets/{RELEASE}-tls"
BEFORE_SECONDS = AFTER_SECONDS = 3.0
NORMAL_WITHIN_SECONDS = 120.0
# A creation calls podsettle twice if another plugin changes the pod, and each call may take the
# timeout. A second is for the API server to learn of the endpoints.
_REACH_SECONDS = 2 * TIMEOUT_SECONDS + 1
_TOLD_BY = re.compile(
    r"podsettle_(check_ready|check_noted|outcomes_total|requests_refused_total|manifest_problems"
    r"|image_lookups_total)(\{.*\})? "
)
_PROBLEM = re.compile(r"^\S+ (WARNING|ERROR|CRITICAL) (.*)$", re.MULTILINE)


class Rig:
    """What a scenario prepares, breaks and repairs."""

    def __init__(self, cluster: KubeCluster, directory: Path, stack: ExitStack) -> None:
        self.cluster, self.directory, self.stack = cluster, directory, stack
        self.api = stack.enter_context(ApiProxy.to(cluster))
        """The way from podsettle to the API server."""
        # The replicas end before the proxy does.
        self.release = stack.enter_context(installed(cluster, directory))
        self.replicas: list[Pod] = []
        self.helm_flags: list[str] = []
        self.arguments: list[str] = []
        """Further arguments of each replica."""
        self.prefixes: list[list[str]] = [[], []]
        """What stands in front of the command of each replica."""
        self.variables: dict[str, str] = {}
        self.policy: Json = {"remedies": EVERY_REMEDY}
        self.pods: list[Json] = [every_remedy_pod("pod", PODS_NAMESPACE)]
        """The pods that are created, in turn."""
        self.done = ""

    def request(self, method: str, path: str, body: object = None) -> Answer:
        """Send a request of the administrator, which must succeed."""
        answer = self.cluster.request(method, path, body)
        assert answer.status in (200, 201), f"{method} {path}: {answer.status} {answer.body}"
        return answer

    def leader(self) -> Pod:
        """Return the replica that holds the Lease, awaited."""
        found: list[Pod] = []

        def is_known() -> bool:
            found.extend(each for each in self.replicas if "is held" in self._log(each))
            return bool(found)

        await_that(is_known, "a replica holds the Lease")
        return found[-1]

    def in_parallel(
        self, action: Callable[[int], object], count: int, seconds: float = 0, threads: int = 8
    ) -> None:
        """Call a function with the numbers below `count`, spread over some seconds."""
        start = time.monotonic()

        def at_its_time(number: int) -> None:
            time.sleep(max(0.0, start + seconds * number / count - time.monotonic()))
            action(number)

        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(at_its_time, range(count)))
        self.done = f"{count:,} in {time.monotonic() - start:.0f} s"

    def create_policy(self) -> None:
        """Create the policy, once the API server knows its kind."""
        body = policy(POLICY, namespaceSelector={}, **self.policy)
        await_that(
            lambda: self.cluster.request("POST", POLICIES, body).status == 201, "a policy exists"
        )

    def install(self, failure_policy: FailurePolicy) -> None:
        """Install the release, and start its replicas."""
        settings = f"--set=webhook.timeoutSeconds={TIMEOUT_SECONDS}"
        settings += f",webhook.failurePolicy={failure_policy}"
        self.release.install(QUIET, settings, *self.helm_flags)
        create_runtime_class(self.cluster)
        self.create_policy()
        self.cluster.namespace(PODS_NAMESPACE)
        for prefix in self.prefixes:
            pod = Pod(self.release, lambda prefix=prefix: self._launch(prefix))  # type: ignore[misc]
            self.replicas.append(pod)
            self.stack.callback(pod.stop)
            pod.start()
        await_that(lambda: all(pod.is_endpoint for pod in self.replicas), "the replicas are ready")
        await_that(self._is_called, "the API server calls podsettle")

    def _is_called(self) -> bool:
        # With Fail, a dry run is refused until the certificate is registered.
        answer = self.cluster.create_pod(self.pods[0], dry_run=True)
        return "podsettle.dev/applied" in str(answer.body)

    def _launch(self, prefix: list[str]) -> Replica:
        api_server = self.api.kubeconfig(self.directory)
        return self.release.launch(
            *self.arguments, prefix=prefix, variables=self.variables, api_server=api_server
        )

    @staticmethod
    def _log(pod: Pod) -> str:
        return "".join(log.read_text(errors="replace") for log in pod.logs)

    def first_problem(self, read: dict[Pod, int]) -> str:
        """Return the first warning or error of the logs, but not of what was read before."""
        found = [
            match
            for pod in self.replicas
            for match in _PROBLEM.finditer(self._log(pod)[read[pod] :])
        ]
        first = min(found, key=lambda match: match[0], default=None)
        return first[2] if first else ""

    def log_lengths(self) -> dict[Pod, int]:
        return {pod: len(self._log(pod)) for pod in self.replicas}

    def conditions(self) -> dict[str, str]:
        """Return the conditions of the policy, or none if it does not exist."""
        body = self.cluster.request("GET", f"{POLICIES}/{POLICY}").body
        conditions = body.get("status", {}).get("conditions", ())
        return {each["type"]: each["status"] for each in conditions}

    def metrics(self) -> dict[str, float]:
        """Return the series that report problems, of all replicas that answer."""
        found: dict[str, float] = {}
        for pod in self.replicas:
            answer = pod.replica.ask("/metrics", token=self.cluster.token, seconds=6)
            for line in answer.text.splitlines() if answer and answer.status_code == 200 else ():
                if _TOLD_BY.match(line) and 'reason="Applied"' not in line:
                    series, _, value = line.rpartition(" ")
                    better = min if "check_ready" in series else max
                    found[series] = better(found.get(series, float(value)), float(value))
        return found

    def problems(self) -> list[str] | None:
        """Return the notes of all replicas, or None if one of them is no endpoint."""
        if not all(pod.is_endpoint and not pod.replica.has_ended for pod in self.replicas):
            return None
        lines = [pod.problems() for pod in self.replicas]
        return None if None in lines else [line for each in lines for line in each or ()]

    def affected(self, loss: Loss, begin: float, normal: float) -> tuple[float, float] | None:
        """Return when a fault may affect creations.

        `normal` is when the replicas reported no problem any more.
        """
        if loss is Loss.NONE:
            return None
        withdrawn = max(pod.withdrawn_at for pod in self.replicas)
        last = normal if loss is Loss.WHILE_IT_LASTS else max(withdrawn, begin)
        return begin, last + _REACH_SECONDS


def run(scenario: Scenario, failure_policy: FailurePolicy) -> Result:
    """Make a fault on a cluster of its own."""
    result = Result(scenario.name, scenario.about, failure_policy)
    try:
        with _rig() as rig:
            _measure(rig, scenario, failure_policy, result)
    except Unavailable as error:
        result.skipped = str(error)
    return result


@contextmanager
def _rig() -> Iterator[Rig]:
    with ExitStack() as stack:
        cluster = stack.enter_context(KubeCluster.start(ROUTING))
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        yield Rig(cluster, directory, stack)


def _measure(rig: Rig, scenario: Scenario, failure_policy: FailurePolicy, result: Result) -> None:
    steps = scenario.steps(rig)
    next(steps)
    rig.install(failure_policy)
    with creating_pods(rig.cluster, *rig.pods, per_second=PER_SECOND, threads=40) as load:
        time.sleep(BEFORE_SECONDS)
        read, conditions, metrics = rig.log_lengths(), rig.conditions(), rig.metrics()
        for pod in rig.replicas:
            pod.notes.clear()
        begin = time.monotonic()
        next(steps)
        time.sleep(max(0.0, begin + scenario.seconds - time.monotonic()))
        if scenario.seconds:
            told = rig.metrics()
        end = time.monotonic()
        next(steps, None)
        while rig.problems() != [] and time.monotonic() < end + NORMAL_WITHIN_SECONDS:
            time.sleep(0.1)
        normal = time.monotonic()
        if not scenario.seconds:
            told = rig.metrics()
        time.sleep(AFTER_SECONDS)
        problems = rig.problems()
    creations = load.take_creations()
    result.count(creations, (begin, end), rig.affected(scenario.loss, begin, normal))
    last = max((each.ended for each in creations if not each.settled), default=0.0)
    if problems == [] and last < creations[-1].ended - AFTER_SECONDS / 2:
        result.normal_seconds = round(max(0.0, max(normal, last) - end), 1)
    result.slowest_seconds = round(load.slowest, 2)
    result.restarts = sum(pod.restarts for pod in rig.replicas)
    result.done = rig.done
    result.readiness = sorted({line for pod in rig.replicas for line in pod.notes.values()})
    result.log = rig.first_problem(read)
    changed = rig.conditions().items() - conditions.items()
    result.status = sorted(f"{name}={status}" for name, status in changed)
    result.metrics = sorted(name for name in told if told[name] != metrics.get(name, 0.0))
