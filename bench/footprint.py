"""The footprint of a running podsettle: memory, time to start, size of the image."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import Distribution, distribution
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import yaml
from packaging.requirements import Requirement

from bench import cluster_manifests, reviews
from bench.closed_loop import run_wrk
from bench.errors import BenchError
from bench.measurement import Measurement
from bench.report_table import ReportTable
from bench.run import CONNECTIONS, Run
from bench.servers import Server, check_answers, serve_podsettle
from bench.throughput import is_patched
from tests.support.kube.cluster import KubeCluster
from webhook.linger.build import OUT, host_arch

NAME = "footprint"
READY = "exec to ready, manifests"
READY_ON_API_SERVER = "exec to ready, API server, 1 policy"
LOADED = "under load, all processes"
_PREVIEWS = 5
"""Attempts to see a worker process, which may end before a busy machine looks at it."""
WITH_WORKER = "with a preview worker, all processes"
_ROOT = Path(__file__).parents[1]
_CRD = _ROOT / "charts" / "podsettle" / "crds" / "podsettle.dev_settlepolicies.yaml"
_IMPORTS = """
import sys, time
start = time.perf_counter()
import webhook.cli.serve, webhook.server.app, webhook.server.run
print(time.perf_counter() - start, len(sys.modules))
"""
_POLICIES_PATH = "/apis/podsettle.dev/v1alpha1/settlepolicies"
_NAMESPACES_PATH = "/api/v1/namespaces"
# Threads that create objects on the API server.
_WRITER_THREADS = 4


def measure(run: Run) -> ReportTable:
    """Measure resident memory, imports, time to ready, and the sizes of image and helper."""
    part = ReportTable(NAME, "Footprint")
    _measure_starts(run, part)
    namespaces, policies = run.profile.large
    large = f"{namespaces:,} namespaces, {policies:,} policies"
    run.log_progress(f"footprint: {large}, as manifests")
    directory = cluster_manifests.write_manifests(run.directory / "large", policies, namespaces)
    _measure_large(run, part, f"{large}, manifests", manifests=directory)
    with KubeCluster.start() as cluster:
        _prepare_cluster(cluster)
        run.log_progress("footprint: start, on an API server")
        starts = [
            _measure_start(run, f"start-kube-{number}", kubeconfig=cluster.kubeconfig)
            for number in range(run.profile.starts)
        ]
        part.rows[READY_ON_API_SERVER] = {
            "time": Measurement(tuple(start.seconds for start in starts), "s")
        }
        run.log_progress(f"footprint: {large}, on an API server")
        _fill_cluster(cluster, policies, namespaces)
        _measure_large(run, part, memory_row(run.profile.large), kubeconfig=cluster.kubeconfig)
    _add_sizes(part)
    part.notes += [
        f"Memory is VmRSS, summed over podsettle's processes. '{LOADED}' is measured after some "
        "seconds of full load on eight connections. 'Peak' is VmHWM of the server.",
        f"'{WITH_WORKER}': the maximum during a preview of one pod, after the load. The sum counts "
        "pages twice that both processes share, such as those of Python.",
        "podsettle is ready when /readyz answers with status 200 on a new TLS connection. The "
        "benchmark requests it every few milliseconds, from before the process is started.",
        "The image contains podsettle and its dependencies in addition to the Python base image. "
        "The size is that of their files, without byte code, which adds a sixth.",
    ]
    return part


def memory_row(large: tuple[int, int]) -> str:
    """Return the name of the row with the memory of podsettle beside an API server."""
    return f"{large[0]:,} namespaces, {large[1]:,} policies, API server"


class _Start(NamedTuple):
    """The seconds from exec to ready, and the memory of the server that has just become ready."""

    seconds: float
    idle_mib: float


def _measure_starts(run: Run, part: ReportTable) -> None:
    """Add rows for the time to ready, the imports, and the memory without load."""
    run.log_progress("footprint: start")
    manifests = cluster_manifests.copy_examples(run.directory / "start")
    starts, import_seconds, module_counts = [], [], []
    for number in range(run.profile.starts):
        starts.append(_measure_start(run, f"start-{number}", manifests=manifests))
        output = subprocess.run(
            [sys.executable, "-c", _IMPORTS], capture_output=True, text=True, check=True
        ).stdout.split()
        import_seconds.append(float(output[0]))
        module_counts.append(float(output[1]))
    part.rows[READY] = {"time": Measurement(tuple(start.seconds for start in starts), "s")}
    part.rows["imports"] = {
        "time": Measurement(tuple(import_seconds), "s"),
        "count": Measurement(tuple(module_counts), "modules"),
    }
    idle = Measurement(tuple(start.idle_mib for start in starts), "MiB")
    part.rows["policies of examples/"] = {"idle": idle}


def _measure_start(
    run: Run, name: str, *, manifests: Path | None = None, kubeconfig: Path | None = None
) -> _Start:
    """Start podsettle once and stop it, on any core."""
    log = run.directory / f"{name}.log"
    start = time.perf_counter()
    with serve_podsettle(run.certs, log, manifests=manifests, kubeconfig=kubeconfig) as server:
        return _Start(time.perf_counter() - start, server.process.memory_mib())


def _measure_large(
    run: Run,
    part: ReportTable,
    name: str,
    *,
    manifests: Path | None = None,
    kubeconfig: Path | None = None,
) -> None:
    """Add rows for the time to ready and the memory of podsettle in a large cluster."""
    log = run.directory / f"large-{len(part.rows)}.log"
    start = time.perf_counter()
    with serve_podsettle(
        run.certs, log, manifests=manifests, kubeconfig=kubeconfig, core=run.cores.server
    ) as server:
        ready = time.perf_counter() - start
        _measure_memory(run, part, name, server)
    _add_cell(part, f"exec to ready, {name}", "time", ready, "s")


def _measure_memory(run: Run, part: ReportTable, name: str, server: Server) -> None:
    process = server.process
    bodies = reviews.variants(reviews.tekton())
    idle = process.memory_mib()
    check_answers(server, bodies, is_patched)
    seconds = run.profile.load_seconds * run.profile.rounds
    files = run.write_reviews("tekton", bodies)
    run_wrk(server, files, connections=CONNECTIONS, seconds=seconds, core=run.cores.load)
    loaded, peak = process.tree_memory_mib(), process.memory_mib("VmHWM")
    with_worker = _memory_during_preview(server, bodies[0])
    part.rows[name] = {
        "idle": Measurement((idle,), "MiB"),
        LOADED: Measurement((loaded,), "MiB"),
        "peak": Measurement((peak,), "MiB"),
        WITH_WORKER: Measurement((with_worker,), "MiB"),
    }


def _memory_during_preview(server: Server, review: bytes) -> float:
    """Return the maximum memory of the server and of the worker that makes one preview."""
    pod = json.dumps(json.loads(review)["request"]["object"])
    for _ in range(_PREVIEWS):
        with ThreadPoolExecutor(1) as executor:
            answer = executor.submit(_preview, server, pod)
            maximum, process_count = 0.0, 0
            while not answer.done():
                try:
                    process_count = max(process_count, len(server.process.tree()))
                    maximum = max(maximum, server.process.tree_memory_mib())
                except OSError:
                    continue  # The worker has just ended.
            answer.result()
        if process_count > 1:
            return maximum
    raise BenchError(f"no worker process was seen during {_PREVIEWS} previews")


def _preview(server: Server, pod: str) -> None:
    """Request a preview. Raise BenchError if there is none."""
    status, body = server.preview(pod)
    if status != 200:
        raise BenchError(f"/preview answers with status {status}: {body[:500]!r}")


def _prepare_cluster(cluster: KubeCluster) -> None:
    """Create the CRD, a node that needs the policies' remedy, one policy and its namespace."""
    crd = yaml.safe_load(_CRD.read_text(encoding="utf-8"))
    cluster.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd)
    deadline = time.monotonic() + 30
    while cluster.request("GET", _POLICIES_PATH).status != 200:
        if time.monotonic() > deadline:
            raise BenchError("the API server does not serve the CRD")
        time.sleep(0.1)
    node = {"metadata": {"name": "worker-1", "labels": {"kubernetes.io/os": "linux"}}}
    cluster.create("/api/v1/nodes", node)
    status = {"status": {"nodeInfo": {"containerRuntimeVersion": "cri-o://1.33.12"}}}
    cluster.request("PATCH", "/api/v1/nodes/worker-1/status", status)
    for policy in cluster_manifests.policies(1):
        cluster.create(_POLICIES_PATH, policy)
    for namespace in cluster_manifests.namespaces(1):
        cluster.create(_NAMESPACES_PATH, namespace)


def _fill_cluster(cluster: KubeCluster, policies: int, namespaces: int) -> None:
    """Create further policies and namespaces, up to these numbers."""
    bodies = [
        *(
            (_POLICIES_PATH, policy)
            for policy in islice(cluster_manifests.policies(policies), 1, None)
        ),
        *(
            (_NAMESPACES_PATH, namespace)
            for namespace in islice(cluster_manifests.namespaces(namespaces), 1, None)
        ),
    ]
    with ThreadPoolExecutor(_WRITER_THREADS) as pool:
        list(pool.map(lambda path_and_body: cluster.create(*path_and_body), bodies))


def _add_sizes(part: ReportTable) -> None:
    sizes: dict[str, int] = {}
    _collect_sizes("podsettle", sizes)
    package = _ROOT / "webhook"
    own_bytes = sum(path.stat().st_size for path in package.rglob("*.py"))
    mebibytes = (sum(sizes.values()) + own_bytes) / 2**20
    _add_cell(part, "image, without its Python base image", "size", mebibytes, "MiB")
    helper = OUT / f"linger-{host_arch()}"
    if not helper.exists():
        raise BenchError(f"{helper} does not exist: run `make linger`")
    _add_cell(part, "helper", "size", helper.stat().st_size / 1024, "KiB")


def _collect_sizes(name: str, sizes: dict[str, int]) -> None:
    """Add the bytes of an installed distribution and of its dependencies to `sizes`."""
    package = distribution(name)
    if package.metadata["Name"] in sizes:
        return
    sizes[package.metadata["Name"]] = _installed_bytes(package)
    for text in package.requires or ():
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            _collect_sizes(requirement.name, sizes)


def _installed_bytes(package: Distribution) -> int:
    paths = (Path(str(file.locate())) for file in package.files or () if file.suffix != ".pyc")
    return sum(path.stat().st_size for path in paths if path.is_file())


def _add_cell(part: ReportTable, name: str, column: str, value: float, unit: str) -> None:
    part.rows[name] = {column: Measurement((value,), unit)}
