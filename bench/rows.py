"""The rows of the benchmark: what is measured on which servers.

A round starts new servers, because the memory layout of a process changes its speed by 10 %. They
share a core. Each row is then measured on one server after the other, so that their figures are of
the same minute: the speed of a shared machine changes. The next round has the opposite order.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any, TypeAlias

from bench import clusters, results, reviews
from bench.commands import BenchError
from bench.echo import NO_UID
from bench.load import run_open_loop, run_wrk
from bench.results import AGNHOST, ECHO, OTHER, PODSETTLE, Values
from bench.servers import THIS_CODE, Code, Server, serve_agnhost, serve_echo, serve_podsettle

_OURS = (PODSETTLE, OTHER)
_ALL = (*_OURS, ECHO, AGNHOST)
_WARM_UP_SECONDS = 1.0
# Reviews per second beside previews. A core can answer many times as many, so none has to wait.
_RATE_BESIDE_PREVIEWS = 200.0
# Previews are sent from the core of the load generator, at a lower priority than reviews.
_NICENESS = 10


@dataclass(frozen=True, slots=True)
class Effort:
    """The number and the duration of measurements, and the size of a large cluster."""

    rounds: int = 12
    seconds: float = 2.0
    creations: int = 100
    policies: int = 1_000
    namespaces: int = 10_000


# It only checks that everything runs. Its figures mean nothing.
SHORT = Effort(rounds=1, seconds=1.0, creations=5, policies=10, namespaces=100)


@dataclass
class Run:
    """The context of a run: a directory, certificates, the effort, and the measured commits."""

    directory: Path
    certs: Path
    effort: Effort
    codes: Mapping[str, Code]
    rate: float = 0.0
    """Half of the lowest peak rate of the measured commits, in reviews per second."""
    _warm: set[int] = field(default_factory=set)
    _start: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        # On most machines, the first core handles more interrupts.
        cores = sorted(os.sched_getaffinity(0))[-2:]
        if len(cores) < 2:
            raise BenchError("the benchmark needs two cores: for the servers and for the load")
        self.load_core, self.server_core = cores

    def log_progress(self, text: str) -> None:
        """Print a progress message with the time since the start of the run."""
        print(f"{time.monotonic() - self._start:5.0f} s  {text}", file=sys.stderr, flush=True)

    def files(self, load: str) -> list[Path]:
        """Return the files with the reviews of a load, for the load generators."""
        directory = self.directory / load
        if not directory.exists():
            directory.mkdir()
            for number, body in enumerate(_LOADS[load][1]()):
                (directory / f"{number:04}.json").write_bytes(body)
        return sorted(directory.iterdir())

    def podsettles(
        self, *, manifests: Path | None = None, kubeconfig: Path | None = None
    ) -> Contenders:
        """Return servers of the measured commits, on manifests or on an API server."""
        serve = partial(serve_podsettle, manifests=manifests, kubeconfig=kubeconfig)
        return {
            name: partial(serve, code, self.certs, self.server_core)
            for name, code in self.codes.items()
        }

    def wrk(self, server: Server, load: str) -> dict[str, float]:
        """Load a server with wrk, the first time after a warm-up."""
        run = partial(run_wrk, server, self.files(load), core=self.load_core)
        if server.pid not in self._warm:
            self._warm.add(server.pid)
            run(_WARM_UP_SECONDS)
        return run(self.effort.seconds)

    def open_loop(self, server: Server, rate: float, seconds: float) -> dict[str, float]:
        """Send reviews of one template at a constant rate."""
        return run_open_loop(server, self.files("template"), rate, seconds, self.load_core)


Contenders: TypeAlias = dict[str, Callable[[], AbstractContextManager[Server]]]
# The servers of a row, and how its figures are measured on one of them.
Row: TypeAlias = tuple[Sequence[str], Callable[[Run, Server], dict[str, float]]]

# The figure and the reviews of each load.
_LOADS: Mapping[str, tuple[str, Callable[[], list[bytes]]]] = {
    "template": (results.TEMPLATE, lambda: reviews.variants(reviews.tekton())),
    "unlike": (results.UNLIKE, reviews.distinct_templates),
    "large": (results.LARGE, lambda: reviews.variants(reviews.of_size(250))),
    "inits": (
        results.INIT_CONTAINERS,
        lambda: reviews.variants(reviews.with_init_containers(40)),
    ),
}


def in_rounds(
    run: Run,
    title: str,
    contenders: Mapping[str, Callable[[], AbstractContextManager[Server]]],
    rows: Sequence[Row],
) -> Values:
    """Measure the rows on new servers in each round, on those that a row names and that run."""
    values: Values = {}
    order = list(contenders)
    for number in range(run.effort.rounds):
        run.log_progress(f"{title}: round {number + 1} of {run.effort.rounds}")
        with ExitStack() as stack:
            servers = {name: stack.enter_context(contenders[name]()) for name in order}
            for names, measure in rows:
                for name in (name for name in order if name in names):
                    for figure, value in measure(run, servers[name]).items():
                        values.setdefault(figure, {}).setdefault(name, []).append(value)
        order.reverse()
    return values


def _start(_run: Run, server: Server, cluster: str = "") -> dict[str, float]:
    return {
        f"{results.READY}{cluster}": server.seconds_to_ready,
        f"{results.IDLE}{cluster}": server.memory_mib(),
    }


def _load(load: str, run: Run, server: Server) -> dict[str, float]:
    figures = run.wrk(server, load)
    per_cpu_second = figures["reviews per CPU-second"]
    share = {results.CORE_SHARE: figures["reviews/s"] / per_cpu_second}
    return {_LOADS[load][0]: per_cpu_second, **(share if load == "template" else {})}


def _half_load(run: Run, server: Server) -> dict[str, float]:
    figures = run.open_loop(server, run.rate, run.effort.seconds)
    return {results.P99: figures["p99"], results.DELAY: figures["delay"]}


def _memory_under_load(run: Run, server: Server, cluster: str = "") -> dict[str, float]:
    run.wrk(server, "template")
    return {f"{results.LOADED}{cluster}": server.memory_mib()}


SERVER_ROWS: Mapping[str, Row] = {
    "start": (_OURS, _start),
    "template": (_ALL, partial(_load, "template")),
    "unlike": (_ALL, partial(_load, "unlike")),
    "large": (_ALL, partial(_load, "large")),
    "inits": ((*_OURS, AGNHOST), partial(_load, "inits")),
    "half-load": ((*_OURS, ECHO), _half_load),
    "memory": (_OURS, _memory_under_load),
}


def measure_servers(run: Run, names: Sequence[str]) -> Values:
    """Measure podsettle beside the echo and agnhost, on the examples, which have every remedy."""
    # An older commit does not know the remedies of newer examples.
    examples = run.codes.get(OTHER, THIS_CODE).tree / "examples"
    contenders = run.podsettles(manifests=examples)
    answer = run.directory / "answer.json"
    for name, serve in contenders.items():
        run.log_progress(f"answers of {name}")
        with serve() as server:
            for load in ("template", *(each for each in _LOADS if each in names)):
                responses = server.answer([path.read_bytes() for path in run.files(load)])
                if not all(response.get("patch") for response in responses):
                    raise BenchError(f"{name} does not patch each pod of the row {load}")
                if not answer.exists():
                    answer.write_bytes(without_uid(responses[0]))
            if "half-load" in names:
                peak = run.wrk(server, "template")["reviews/s"]
                run.rate = min(run.rate or peak, peak / 2)
    contenders[ECHO] = partial(serve_echo, run.certs, answer, run.server_core)
    contenders[AGNHOST] = partial(serve_agnhost, run.certs, run.server_core)
    rows = [row for name, row in SERVER_ROWS.items() if name in names]
    needed = {name for servers, _ in rows for name in servers}
    used = {name: serve for name, serve in contenders.items() if name in needed}
    return in_rounds(run, ", ".join(names), used, rows)


def without_uid(response: dict[str, Any]) -> bytes:
    """Return the answer with a response, for the echo."""
    head = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
    return reviews.encode({**head, "response": {**response, "uid": NO_UID}})


def measure_growth(run: Run, _names: Sequence[str]) -> Values:
    """Measure reviews of one template in clusters with many policies and namespaces."""
    sizes = {
        results.ONE_POLICY: (1, 10),
        results.MANY_POLICIES: (run.effort.policies, 10),
        results.MANY_NAMESPACES: (10, run.effort.namespaces),
    }
    contenders: Contenders = {}
    for name, (policies, namespaces) in sizes.items():
        directory = _write_cluster(run, name, policies, namespaces)
        contenders[name] = run.podsettles(manifests=directory)[PODSETTLE]

    def measure(run: Run, server: Server) -> dict[str, float]:
        return {results.GROWTH: run.wrk(server, "template")["reviews per CPU-second"]}

    return in_rounds(run, "growth", contenders, [(tuple(sizes), measure)])


def measure_api_server(run: Run, _names: Sequence[str]) -> Values:
    """Measure the start and the memory beside an API server with a large cluster."""
    run.log_progress("API server: creating policies and namespaces")
    cluster = results.IN_LARGE_CLUSTER
    with clusters.api_server(run.effort.policies, run.effort.namespaces) as kubeconfig:
        contenders = run.podsettles(kubeconfig=kubeconfig)
        rows = [partial(each, cluster=cluster) for each in (_start, _memory_under_load)]
        return in_rounds(run, "API server", contenders, [(_OURS, row) for row in rows])


def measure_previews(run: Run, _names: Sequence[str]) -> Values:
    """Measure reviews while one client requests previews, in a large cluster."""
    directory = _write_cluster(run, "large cluster", run.effort.policies, run.effort.namespaces)
    ordinary, *hostile = reviews.previewed_texts()
    sent = {"nothing": [], "ordinary pods": [ordinary], "hostile texts": hostile}
    rows = [partial(_beside_previews, name, texts) for name, texts in sent.items()]
    contenders = run.podsettles(manifests=directory)
    return in_rounds(run, "previews", contenders, [(_OURS, row) for row in rows])


def _beside_previews(
    name: str, texts: Sequence[bytes], run: Run, server: Server
) -> dict[str, float]:
    with _requested_previews(run, server, texts) as answered:
        start = time.monotonic()
        figures = run.open_loop(server, _RATE_BESIDE_PREVIEWS, run.effort.seconds * 3)
        # Without those that a busy server refuses.
        made = sum(status in (200, 422) for status in answered) / (time.monotonic() - start)
    return {
        f"{results.P99_BESIDE}{name}": figures["p99"],
        f"{results.LONGEST_BESIDE}{name}": figures["longest"],
        **({f"{results.PREVIEWS}{name}": made} if texts else {}),
    }


@contextmanager
def _requested_previews(run: Run, server: Server, texts: Sequence[bytes]) -> Iterator[list[int]]:
    """Request previews of texts in turn while the block runs. Yield the list of the statuses."""
    answered: list[int] = []
    finished = threading.Event()

    def request() -> None:
        # On Linux, both settings affect only this thread.
        os.sched_setaffinity(0, {run.load_core})
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
        for text in cycle(texts):
            answered.append(server.preview(text))
            if finished.is_set():
                return

    with ThreadPoolExecutor(1) as threads:
        requests = threads.submit(request)
        try:
            yield answered
        finally:
            finished.set()
    if error := requests.exception():
        raise BenchError(f"a preview was not answered: {error!r}") from error


def _write_cluster(run: Run, name: str, policies: int, namespaces: int) -> Path:
    documents = [*clusters.policies(policies), *clusters.namespaces(namespaces)]
    return clusters.write_manifests(run.directory / name, documents)
