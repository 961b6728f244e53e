"""CRI-O's lost exit codes (cri-o issue 9840), provoked on real nodes and counted.

All pods have `restartPolicy: Never`, and all commands exit with 0, so each other exit code is a
failure. Pods of all conditions run side by side, so that controls see the same load as wrapped
containers. README.md says what is provoked and how it is counted.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import click

from lab import provocation
from lab.cluster import (
    NAMESPACE,
    RUNTIME_CLASSES,
    built_crio,
    make_pod,
    policy,
    running_podsettle,
)
from lab.provocation import Provocation, Provoked
from lab.report import (
    Json,
    LabError,
    Outcome,
    Table,
    experiment,
    rate,
    upper_bound,
    values,
)
from tests.support.node.containerd import Containerd
from tests.support.node.crio import Crio
from tests.support.node.node import RealNode
from tests.support.node.pods import commands, pod_path, states, wrapper_of
from tools.build import CONTAINERD, announce
from tools.crio import AFFECTED, BUILD, FIXED
from webhook.core.constants import HELPER, OWN_CONTAINERS

NONE, AUTO = "none", "Auto"
DELIVERIES = ("Shell", "Binary", "ImageVolume", AUTO)
INIT, REGULAR = "init", "regular"
DEFAULT_MS = 500
"""The default of a policy's `minLifetime`."""
LOST_EXIT_CODE = 255
_WORK = "work-"
# One sandbox serves many containers, so that most of the time goes into containers. An unwrapped
# pod fails with its first lost exit code, so that further init containers do not start.
_INIT_CONTAINERS, _UNWRAPPED_INIT_CONTAINERS, _REGULAR_CONTAINERS = 20, 10, 5
_PODS_AT_ONCE = 15
# A pod of 20 init containers takes half a minute on an idle node.
_STUCK_SECONDS = 300.0
# At most, for each runtime.
_RUN_SECONDS = 1800.0
# 0 of 1,000 containers have an upper bound of 0.2991 %. Regular containers are fewer, because five
# of them take a pod of their own.
_LIMITS = {INIT: (0.003, 1_000), REGULAR: (0.05, 100)}
_MIN_CONTROLS = 100


class Condition(NamedTuple):
    """What containers have in common that are counted together."""

    provocation: Provocation
    delivery: str
    """Of podsettle's wrapper, or `none`."""
    lifetime_ms: int
    """A wrapped container's `minLifetime`. For other containers: how long the command sleeps."""
    kind: str

    @property
    def is_wrapped(self) -> bool:
        """Whether podsettle wraps the containers."""
        return self.delivery != NONE

    @property
    def main(self) -> Condition:
        """The condition of the main container, which is never wrapped, in a pod of this one."""
        return Condition(self.provocation, NONE, 0, REGULAR)

    @property
    def expected(self) -> int:
        """How many containers of a pod are counted for the condition, if none of them fails."""
        if self.kind == REGULAR:
            return _REGULAR_CONTAINERS
        return _INIT_CONTAINERS if self.is_wrapped else _UNWRAPPED_INIT_CONTAINERS

    @property
    def policy(self) -> str:
        """The name of the policy that wraps the containers, or nothing."""
        return "-".join(map(str, self[1:])).lower() if self.is_wrapped else ""


_S, _F = Provocation.LATE_EXIT, Provocation.STATE_FAILS
CONTROL = Condition(_S, NONE, 0, INIT)
_F_CONTROL, _NATURAL = Condition(_F, NONE, 0, INIT), Condition(Provocation.NATURAL, NONE, 0, INIT)
# How many containers have to end under each condition. A full run takes about 20 minutes on two
# idle cores. Most of that time goes into the four conditions that bound the default's rate.
WANTED: Mapping[Condition, int] = {
    **{Condition(_S, delivery, DEFAULT_MS, INIT): 1_000 for delivery in DELIVERIES},
    CONTROL: 120,
    _F_CONTROL: 120,
    _NATURAL: 120,
    CONTROL.main: 150,
    **{Condition(_S, delivery, DEFAULT_MS, REGULAR): 150 for delivery in DELIVERIES},
    Condition(_F, AUTO, DEFAULT_MS, INIT): 120,
    **{Condition(_S, each, ms, INIT): 30 for each in (NONE, "Shell") for ms in (10, 50, 100, 250)},
}
# For the CRI-O with the fix, and for containerd.
WANTED_OF_OTHERS: Mapping[Condition, int] = {CONTROL: 300, _F_CONTROL: 100, CONTROL.main: 100}

# What is counted of a condition. Containers of podsettle are counted only if they fail. A pod is
# abnormal if it does not end, or fails or lacks an exit code without a failed container.
PODS, ENDED, LOST, OTHER, OURS, ABNORMAL = (
    "pods", "ended", "exit code 255", "another but 0", "of podsettle's", "abnormal pods"
)  # fmt: skip
Counts = defaultdict[Condition, Counter[str]]


def failed_and_total(count: Counter[str]) -> tuple[int, int]:
    """Return how many containers failed, those of podsettle included, and of how many."""
    return count[LOST] + count[OTHER] + count[OURS], count[ENDED] + count[OURS]


def count_exits(counts: Counts, pod: Json, condition: Condition) -> None:
    """Count the containers of a pod that have ended. The pod may still run."""
    seen = set()
    for name, code in _exit_codes(pod).items():
        found = condition.main if name == "main" else condition
        seen.add(found)
        if name in OWN_CONTAINERS:
            counts[found][OURS] += code != 0
        else:
            counts[found][ENDED] += 1
            counts[found][LOST] += code == LOST_EXIT_CODE
            counts[found][OTHER] += code not in (0, LOST_EXIT_CODE)
    for found in seen:
        counts[found][PODS] += 1


def is_incomplete(pod: Json, condition: Condition) -> bool:
    """Whether a pod that has ended failed or lacks an exit, and no exit code explains it.

    After an exit code other than 0, the kubelet starts no further containers.
    """
    codes = _exit_codes(pod)
    lacks = len(codes.keys() - OWN_CONTAINERS) < condition.expected + (condition.kind == INIT)
    return not any(codes.values()) and (lacks or pod["status"]["phase"] == "Failed")


def _exit_codes(pod: Json) -> dict[str, int]:
    """Return the exit codes of the containers that have run and ended, by their names."""
    ended = {name: state.get("terminated", {}) for name, state in states(pod).items()}
    # Without an id, the kubelet made the state up for a container that never ran.
    return {name: each["exitCode"] for name, each in ended.items() if each.get("containerID")}


def race_pod(condition: Condition, image: str) -> Json:
    """Return a pod with containers of a condition."""
    work = [
        {"name": f"{_WORK}{number}", "image": image, "command": _command(condition, number)}
        for number in range(condition.expected)
    ]
    main = {"name": "main", "image": image, "command": ["true"]}
    parts = ([main], work) if condition.kind == INIT else (work, [])
    pod = make_pod("race", *parts, policy=condition.policy)
    if condition.provocation is not Provocation.NATURAL:
        pod["spec"]["runtimeClassName"] = provocation.class_name(condition.provocation)
    return pod


def _command(condition: Condition, number: int) -> list[str]:
    """Return a command. It decides which delivery `Auto` chooses."""
    if not condition.is_wrapped and condition.lifetime_ms:
        return ["sleep", f"{condition.lifetime_ms / 1000:g}"]
    has_shell = condition.delivery == "Shell"
    if has_shell or (condition.delivery in (AUTO, NONE) and number % 2):
        return ["sh", "-c", "true"]
    return ["true"]


def race_policy(condition: Condition) -> Json:
    """Return the SettlePolicy for containers of a condition: the defaults, but for these fields."""
    remedy: Json = {"delivery": condition.delivery, "minLifetime": f"{condition.lifetime_ms}ms"}
    if condition.kind == REGULAR:
        remedy["containers"] = ["*"]
    return policy(condition.policy, {"postInitSleep": remedy})


def check_delivery(pod: Json, condition: Condition) -> None:
    """Raise LabError unless each counted container of a created pod has the right wrapper.

    A delivery that podsettle chose instead of another one would be counted under the wrong name.
    """
    volumes = [each for each in pod["spec"].get("volumes", ()) if each["name"] == HELPER]
    helper = "ImageVolume" if any("image" in each for each in volumes) else "Binary"
    for name, command in commands(pod).items():
        found = {"": NONE, "helper": helper}.get(wrapper_of(command), "Shell")
        # Every second container of Auto has a shell, which stays in the wrapped command.
        auto = "Shell" if "sh" in command else "ImageVolume"
        wanted = auto if condition.delivery == AUTO else condition.delivery
        if name.startswith(_WORK) and found != wanted:
            raise LabError(f"container {name} has the delivery {found} and not {wanted}: {pod}")


@dataclass
class Driver:
    """Creates, watches and deletes pods until enough containers have ended."""

    node: RealNode
    wanted: Mapping[Condition, int]
    counts: Counts = field(default_factory=lambda: defaultdict(Counter))
    created: dict[str, tuple[Condition, float]] = field(default_factory=dict)
    """The pods that were created and have not ended, with the time of their creation."""

    def run(self) -> None:
        """Create pods until the counts are complete, or the time is over."""
        start = time.monotonic()
        while not self.is_complete and time.monotonic() - start < _RUN_SECONDS:
            self._collect()
            if (seconds_so_far := int(time.monotonic() - start)) % 20 == 0:
                ended = sum(each[ENDED] for each in self.counts.values())
                announce(f"{seconds_so_far} s: {ended} containers have ended")
            while len(self.created) < _PODS_AT_ONCE and (condition := self.next_condition()):
                pod = self.node.create_pod(race_pod(condition, self.node.images.busybox))
                check_delivery(pod, condition)
                self.created[pod["metadata"]["name"]] = (condition, time.monotonic())
            time.sleep(1)
        # A pod that fails ends early. Without the pods that still run, the end of a run would count
        # too many failures.
        self._collect(last=True)

    @property
    def is_complete(self) -> bool:
        """Whether enough containers ended under each condition."""
        return all(self.counts[each][ENDED] >= wanted for each, wanted in self.wanted.items())

    def next_condition(self) -> Condition | None:
        """Return the condition that lags behind most, or None if the pods in flight suffice."""
        in_flight = Counter(condition for condition, _ in self.created.values())

        def share(condition: Condition) -> float:
            # Such a pod fails with its first container.
            fails = condition.provocation is _S and not condition.is_wrapped
            expected = in_flight[condition] * (1 if fails else condition.expected)
            return (self.counts[condition][ENDED] + expected) / self.wanted[condition]

        last = min(self.wanted, key=share)
        return last if share(last) < 1 else None

    def _collect(self, *, last: bool = False) -> None:
        """Count the containers of pods that have ended, and delete these pods."""
        status, listed, _ = self.node.cluster.request(
            "GET", f"{pod_path(NAMESPACE)}?resourceVersion=0"
        )
        if status != 200:
            raise LabError(f"the API server answered {status} to a list of pods: {listed}")
        for pod in listed["items"]:
            name = pod["metadata"]["name"]
            condition, since = self.created.get(name, (None, 0.0))
            has_ended = pod["status"].get("phase") in ("Succeeded", "Failed")
            is_stuck = not has_ended and time.monotonic() - since > _STUCK_SECONDS
            if condition is None or not (has_ended or is_stuck or last):
                continue
            count_exits(self.counts, pod, condition)
            if is_stuck:
                announce(f"pod {name} did not end: {states(pod)}")
            is_abnormal = is_stuck or (has_ended and is_incomplete(pod, condition))
            self.counts[condition][ABNORMAL] += is_abnormal
            del self.created[name]
            self.node.cluster.request("DELETE", pod_path(NAMESPACE, name))


@dataclass
class Calls:
    """The calls of a provoked handler: the evidence that the runtime started containers by it."""

    starts_ms: list[float] = field(default_factory=list)
    """How long each `start` took. On containerd, `S` holds it for at least 400 ms."""
    queries: int = 0
    """Calls of `state`."""
    exposures_ms: list[float] = field(default_factory=list)
    """From the return of each container's `start` until its first state was answered.

    A container whose first process lives for longer than that cannot lose its exit code.
    """
    stopped: int = 0
    """Containers that had ended when this state was answered."""


def read_calls(lines: Iterable[str]) -> Calls:
    """Return the calls in the file that a provocation writes (src/failing_state.c)."""
    calls, started = Calls(), dict[str, int]()
    for fields in map(str.split, lines):
        # The last line may be half written.
        if len(fields) != 6:
            continue
        command, container, begin, end, _, status = fields
        if command == "start":
            calls.starts_ms.append((int(end) - int(begin)) / 1_000)
            started[container] = int(end)
        else:
            calls.queries += 1
            if container in started:
                calls.exposures_ms.append((int(end) - started.pop(container)) / 1_000)
                calls.stopped += status == "stopped"
    return calls


class Result(NamedTuple):
    """What was counted on one runtime."""

    runtime: str
    """As the node reports it, such as `cri-o://1.33.12`."""
    counts: Mapping[Condition, Counter[str]]
    calls: Mapping[Provocation, Calls]
    is_complete: bool


def unproven(results: Sequence[Result]) -> list[str]:
    """Return what a full run has to show and does not. The first runtime has the defect.

    Pods that did not end as they should may hide a failed container.
    """
    missing = []

    def judge(title: str, counts: Iterable[Counter[str]], least: int, limit: float) -> None:
        count = sum(counts, Counter())
        failed, total = failed_and_total(count)
        is_few = count[ENDED] < least or count[ABNORMAL]
        if is_few or (upper_bound(failed, total) >= limit if limit else failed):
            missing.append(f"{title}: {failed} of {total:,}, {count[ABNORMAL]} abnormal pods")

    (_, affected, *_), *others = results
    for kind, (limit, floor) in _LIMITS.items():
        for delivery in DELIVERIES:
            count = affected.get(Condition(_S, delivery, DEFAULT_MS, kind), Counter())
            judge(f"{delivery} ({kind})", [count], floor, limit)
    # Containers with short lifetimes are expected to lose their exit codes.
    kept = [
        Counter({name: count[name] for name in (ENDED, OTHER, OURS, ABNORMAL)})
        for each, count in affected.items()
        if each.is_wrapped
    ]
    judge("wrapped, other codes", kept, 1, 0)
    for control in (CONTROL, CONTROL.main):
        count = affected.get(control, Counter())
        if count[ABNORMAL] or count[ENDED] < _MIN_CONTROLS or 2 * count[LOST] <= count[ENDED]:
            missing.append(f"control ({control.kind}): {count[LOST]} of {count[ENDED]}")
    for runtime, counts, *_ in others:
        provoked = [count for each, count in counts.items() if each.provocation != "natural"]
        judge(runtime, provoked, _MIN_CONTROLS, 0)
    return missing


def tables(results: Sequence[Result]) -> list[Table]:
    """Return the counts of all conditions, and the calls of all handlers."""
    counted, called = Table("Containers by condition"), Table("Calls of the handlers")
    for result in results:
        for condition, count in result.counts.items():
            counted.rows.append(
                {"runtime": result.runtime}
                | {name: str(value) for name, value in condition._asdict().items()}
                | {name: values([count[name]]) for name in (PODS, LOST, OTHER, OURS, ABNORMAL)}
                | {"rate, one-sided 95 % bounds": rate(*failed_and_total(count))}
            )
        for name, calls in result.calls.items():
            exposed = calls.exposures_ms
            long = {
                bound: sum(ms > bound for ms in exposed) for bound in (50, 100, 250, DEFAULT_MS)
            }
            numbers = {"starts": len(calls.starts_ms), "state queries": calls.queries}
            numbers |= {"exposed": len(exposed), "ended by then": calls.stopped}
            numbers |= {f"above {bound} ms": number for bound, number in long.items()}
            called.rows.append(
                {"runtime": result.runtime, "provocation": name}
                | {title: values([number]) for title, number in numbers.items()}
                | {"start": values(calls.starts_ms, "ms")}
                | {"exposure": values(exposed, "ms") if exposed else ""}
            )
    return [counted, called]


@click.command("race")
@click.option(
    *("--crio", "revisions"),
    multiple=True,
    default=(AFFECTED, FIXED),
    help="A revision of CRI-O. The first one gets all conditions, and the others the controls.",
)
@click.option(
    *("--containerd", "lines"),
    multiple=True,
    type=click.Choice(list(CONTAINERD)),
    default=("2.4",),
    help="A release line of containerd.",
)
@click.option("--share", default=1.0, help="Of a full run's containers. They are judged from 1 on.")
@experiment
def race(revisions: tuple[str, ...], lines: tuple[str, ...], share: float) -> Outcome:
    """Provoke CRI-O's lost exit codes, and count them."""
    # `runc version 1.1.5`.
    facts = {
        name: subprocess.getoutput(f"{name} --version").split()[2] for name in ("runc", "conmon")
    }
    facts["pods at the same time"] = str(_PODS_AT_ONCE)
    facts["cgroups"] = "v2" if Path("/sys/fs/cgroup/cgroup.controllers").exists() else "v1"
    subjects = [*((name, True) for name in revisions), *((line, False) for line in lines)]
    results: list[Result] = []
    for name, is_crio in subjects:
        wanted = {
            condition: max(10, round(count * share)) if share != 1 else count
            for condition, count in (WANTED_OF_OTHERS if results else WANTED).items()
        }
        announce(f"{name}: starting a node")
        with provoked_node(name, is_crio=is_crio) as (node, provoked):
            results.append(_run_on(node, provoked, Driver(node, wanted)))
        if is_crio:
            facts[f"commit of CRI-O {name}"] = BUILD.commits.get(name, name)
    missing = [f"{each.runtime}: the time was over" for each in results if not each.is_complete]
    # A part of the containers is too few for the bounds.
    if share >= 1:
        missing += unproven(results)
    return Outcome(tables(results), facts, missing)


@contextmanager
def provoked_node(name: str, *, is_crio: bool) -> Iterator[tuple[RealNode, list[Provoked]]]:
    """Start a node with a revision of CRI-O or a release line of containerd.

    Its runtime has a handler for each provocation, and its cluster the RuntimeClasses.
    """
    runc, conmon = (Path(str(shutil.which(name))) for name in ("runc", "conmon"))
    runtime: Crio | Containerd
    with tempfile.TemporaryDirectory(prefix="podsettle-race-") as scratch:
        if is_crio:
            provoked = provocation.build(runc, Path(scratch))
            text = provocation.crio_drop_in(provoked, conmon)
            runtime = built_crio(name)
            runtime.add_drop_in("90-race.conf", text)
        else:
            provoked = provocation.build(runc, Path(scratch), for_containerd=True)
            text = provocation.containerd_drop_in(provoked, int(name.partition(".")[0]))
            runtime = Containerd(name)
            runtime.add_drop_in("90-race.toml", text)
        with RealNode.start(runtime) as node:
            for each in provoked:
                node.cluster.create(RUNTIME_CLASSES, provocation.runtime_class(each.provocation))
            yield node, provoked


def _run_on(node: RealNode, provoked: Sequence[Provoked], driver: Driver) -> Result:
    wrapped = {each.policy: each for each in driver.wanted if each.is_wrapped}
    with ExitStack() as stack:
        node.namespace(NAMESPACE)
        if wrapped:
            policies = map(race_policy, wrapped.values())
            stack.enter_context(running_podsettle(node, policies))
        driver.run()
    runtime = f"{node.runtime.name}://{node.runtime.version}"
    calls = {}
    for each in provoked:
        lines = each.calls.read_text().splitlines() if each.calls.exists() else []
        calls[each.provocation] = read_calls(lines)
        if not calls[each.provocation].starts_ms:
            raise LabError(f"{runtime}: no container was started by handler {each.provocation}")
    counts = {each: driver.counts[each] for each in (*driver.wanted, *driver.counts)}
    return Result(runtime, counts, calls, driver.is_complete)
