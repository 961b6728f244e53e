"""The footprint of a running podsettle: memory, time to start, size of the image."""

from __future__ import annotations

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from importlib.metadata import Distribution, distribution
from pathlib import Path

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
READY = "start to ready, manifests"
_ROOT = Path(__file__).parents[1]
_CRD = _ROOT / "charts" / "podsettle" / "crds" / "podsettle.dev_settlepolicies.yaml"
_IMPORTS = """
import sys, time
start = time.perf_counter()
import webhook.cli.serve, webhook.server.app, webhook.server.run
print(time.perf_counter() - start, len(sys.modules))
"""
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
    log = run.directory / "large.log"
    start = time.perf_counter()
    with serve_podsettle(run.certs, log, manifests=directory, core=run.cores.server) as server:
        ready = time.perf_counter() - start
        _measure_memory(run, part, f"{large}, manifests", server)
        _add_cell(part, f"start to ready, {large}, manifests", "time", ready, "s")
    run.log_progress(f"footprint: {large}, on an API server")
    with ExitStack() as stack:
        cluster = stack.enter_context(KubeCluster.start())
        _fill_cluster(run, cluster, policies, namespaces)
        log = run.directory / "large-kube.log"
        kubeconfig = cluster.kubeconfig
        start = time.perf_counter()
        server = stack.enter_context(
            serve_podsettle(run.certs, log, kubeconfig=kubeconfig, core=run.cores.server)
        )
        ready = time.perf_counter() - start
        _measure_memory(run, part, memory_row(run.profile.large), server)
        _add_cell(part, f"start to ready, {large}, API server", "time", ready, "s")
    _add_sizes(part)
    part.notes += [
        "Memory is VmRSS. 'Under load' is measured after some seconds of full load on eight "
        "connections. 'Peak' is VmHWM.",
        "podsettle is ready when /readyz answers with status 200 on a new TLS connection. The "
        "benchmark requests it every few milliseconds.",
        "The image contains podsettle and its dependencies in addition to the Python base image. "
        "The size is that of their files, without byte code.",
    ]
    return part


def memory_row(large: tuple[int, int]) -> str:
    """Return the name of the row with the memory of podsettle beside an API server."""
    return f"{large[0]:,} namespaces, {large[1]:,} policies, API server"


def _measure_starts(run: Run, part: ReportTable) -> None:
    """Add rows for the time to ready, the imports, and the memory without load."""
    run.log_progress("footprint: start")
    manifests = cluster_manifests.copy_examples(run.directory / "start")
    start_seconds, import_seconds, module_counts, idle_mib = [], [], [], []
    for number in range(run.profile.starts):
        log = run.directory / f"start-{number}.log"
        start = time.perf_counter()
        with serve_podsettle(run.certs, log, manifests=manifests) as server:
            start_seconds.append(time.perf_counter() - start)
            idle_mib.append(server.process.memory_mib())
        output = subprocess.run(
            [sys.executable, "-c", _IMPORTS], capture_output=True, text=True, check=True
        ).stdout.split()
        import_seconds.append(float(output[0]))
        module_counts.append(float(output[1]))
    part.rows[READY] = {"time": Measurement(tuple(start_seconds), "s")}
    part.rows["imports"] = {
        "time": Measurement(tuple(import_seconds), "s"),
        "count": Measurement(tuple(module_counts), "modules"),
    }
    part.rows["policies of examples/"] = {"idle": Measurement(tuple(idle_mib), "MiB")}


def _measure_memory(run: Run, part: ReportTable, name: str, server: Server) -> None:
    bodies = reviews.variants(reviews.tekton())
    idle = server.process.memory_mib()
    check_answers(server, bodies, is_patched)
    seconds = run.profile.load_seconds * run.profile.rounds
    files = run.write_reviews("tekton", bodies)
    run_wrk(server, files, connections=CONNECTIONS, seconds=seconds, core=run.cores.load)
    part.rows[name] = {
        "idle": Measurement((idle,), "MiB"),
        "under load": Measurement((server.process.memory_mib(),), "MiB"),
        "peak": Measurement((server.process.memory_mib("VmHWM"),), "MiB"),
    }


def _fill_cluster(run: Run, cluster: KubeCluster, policies: int, namespaces: int) -> None:
    """Create the CRD, policies, namespaces, and a node that needs the policies' remedy."""
    crd = yaml.safe_load(_CRD.read_text(encoding="utf-8"))
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    cluster.create(path, crd)
    path = "/apis/podsettle.dev/v1alpha1/settlepolicies"
    deadline = time.monotonic() + 30
    while cluster.request("GET", path).status != 200:
        if time.monotonic() > deadline:
            raise BenchError("the API server does not serve the CRD")
        time.sleep(0.1)
    node = {"metadata": {"name": "worker-1", "labels": {"kubernetes.io/os": "linux"}}}
    cluster.create("/api/v1/nodes", node)
    status = {"status": {"nodeInfo": {"containerRuntimeVersion": "cri-o://1.33.12"}}}
    cluster.request("PATCH", "/api/v1/nodes/worker-1/status", status)
    with ThreadPoolExecutor(_WRITER_THREADS) as pool:
        list(
            pool.map(lambda body: cluster.create(path, body), cluster_manifests.policies(policies))
        )
        list(
            pool.map(
                lambda body: cluster.create("/api/v1/namespaces", body),
                cluster_manifests.namespaces(namespaces),
            )
        )
    run.log_progress("footprint: policies and namespaces are created")


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
