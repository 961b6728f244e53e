"""The throughput of `/mutate` as the cluster and its pods grow."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from bench import cluster_manifests, reviews
from bench.measurement import Rows, concatenate_rounds
from bench.report_table import ReportTable
from bench.run import Run
from bench.servers import Server, check_answers, serve_echo, serve_podsettle
from bench.throughput import answer_to, is_allowed, is_patched

NAME = "growth"
_FEW_NAMESPACES = 10


def measure(run: Run) -> ReportTable:
    """Measure reviews per second for numbers of policies and namespaces, and for kinds of pods."""
    part = ReportTable(NAME, "Growth: policies, namespaces, pods")
    _measure_clusters(run, part)
    _measure_pods(run, part)
    part.notes += [
        "Only one policy matches. Of the others, half select other namespaces by label, and half "
        "select other pods by label in every namespace.",
        "The pods of a row are of one template, so podsettle caches the decision on the first one. "
        "It does not cache decisions whose key and answer exceed 32 KiB, such as those on pods "
        "with 40 init containers.",
        "For the rows about policies and namespaces, each round starts new servers.",
        "Large pods have up to 20 containers with their mounts. Environment variables fill the "
        "remaining bytes.",
    ]
    return part


def policies_row(count: int) -> str:
    """Return the name of the row for a number of policies."""
    return f"{count:,} {'policy' if count == 1 else 'policies'}"


def size_row(kilobytes: int, name: str = "podsettle") -> str:
    """Return the name of the row for a pod's size."""
    return f"{kilobytes} KB pod, {name}"


def is_about_pods(row: str) -> bool:
    """Return whether a row is about a kind of pod. The other rows are about the cluster."""
    return not row.endswith(("policy", "policies", "namespaces"))


def _measure_clusters(run: Run, part: ReportTable) -> None:
    bodies = reviews.variants(reviews.tekton())
    files = run.write_reviews("tekton", bodies)
    policy_rows = {policies_row(count): (count, _FEW_NAMESPACES) for count in run.profile.policies}
    # The clusters have ten policies, so that the policies of namespaces differ.
    namespace_rows = {f"{count:,} namespaces": (10, count) for count in run.profile.namespaces}
    for topic, sizes in (("policies", policy_rows), ("namespaces", namespace_rows)):
        run.log_progress(f"growth: {topic}")
        directories = {
            name: cluster_manifests.write_manifests(run.directory / f"{topic}-{number}", *size)
            for number, (name, size) in enumerate(sizes.items())
        }
        rounds: list[Rows] = []
        for _ in range(run.profile.rounds):
            # Each round starts new servers, because the memory layout of a process changes its
            # speed by 10 %.
            with ExitStack() as stack:
                servers = {
                    name: _serve(run, stack, directory) for name, directory in directories.items()
                }
                for server in servers.values():
                    check_answers(server, bodies, is_patched)
                contenders = {name: (server, files) for name, server in servers.items()}
                rounds.append(run.measure_throughput(contenders, rounds=1))
            directories = dict(reversed(directories.items()))
        part.rows |= concatenate_rounds(rounds)


def _measure_pods(run: Run, part: ReportTable) -> None:
    with ExitStack() as stack:
        ours = _serve(
            run,
            stack,
            cluster_manifests.write_manifests(run.directory / "pods", 1, _FEW_NAMESPACES),
        )
        for kilobytes in run.profile.kilobytes:
            run.log_progress(f"growth: pods of {kilobytes} KB")
            bodies = reviews.variants(reviews.of_size(kilobytes))
            check_answers(ours, bodies, is_patched)
            files = run.write_reviews(f"{kilobytes}kb", bodies)
            log = run.directory / f"echo-{kilobytes}.log"
            with serve_echo(run.certs, answer_to(ours, bodies[0]), log, run.cores.server) as echo:
                part.rows |= run.measure_throughput(
                    {
                        size_row(kilobytes): (ours, files),
                        size_row(kilobytes, "echo"): (echo, files),
                    }
                )
        contenders: dict[str, tuple[Server, list[Path]]] = {}
        for count in run.profile.init_containers:
            bodies = reviews.variants(reviews.with_init_containers(count))
            check_answers(ours, bodies, is_patched)
            name = f"{count} init container{'s' if count > 1 else ''}"
            contenders[name] = (ours, run.write_reviews(f"inits-{count}", bodies))
        uncovered = {
            "no policy for the pod": reviews.unlabelled(),
            "no policy for the namespace": reviews.in_namespace("kube-system"),
        }
        for name, review in uncovered.items():
            bodies = reviews.variants(review)
            check_answers(
                ours, bodies, lambda answer: is_allowed(answer) and not is_patched(answer)
            )
            contenders[name] = (ours, run.write_reviews(name.replace(" ", "-"), bodies))
        run.log_progress("growth: init containers, and pods without a policy")
        part.rows |= run.measure_throughput(contenders)


def _serve(run: Run, stack: ExitStack, manifests: Path) -> Server:
    """Start podsettle with these manifests. `stack` stops it."""
    log = manifests.with_suffix(".log")
    return stack.enter_context(
        serve_podsettle(run.certs, log, manifests=manifests, core=run.cores.server)
    )
