"""What becomes of it as the cluster and its pods grow."""

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
    """Reviews per second over policies, namespaces, sizes, containers, and for nothing at all."""
    part = ReportTable(NAME, "Growth: policies, namespaces, pods")
    _over_clusters(run, part)
    _over_pods(run, part)
    part.notes += [
        "Of the policies beside the one that matches, half select other namespaces by label, half "
        "other pods by label in every namespace.",
        "The pods of a row are of one template, so the decision on the first is remembered for the "
        "others; but not of the 250 KB pods, for reviews above 64 KiB are decided on each time.",
        "The servers of the rows about policies and namespaces are started anew for each round.",
        "Large pods have up to 20 containers with their mounts; the rest is environment.",
    ]
    return part


def policies_row(count: int) -> str:
    """How the row of so many policies is called."""
    return f"{count:,} {'policy' if count == 1 else 'policies'}"


def size_row(kilobytes: int, name: str = "podsettle") -> str:
    """How the row of a pod's size is called."""
    return f"{kilobytes} KB pod, {name}"


def is_about_pods(row: str) -> bool:
    """Whether a row is about what the pod is like, and not about the cluster around it."""
    return not row.endswith(("policy", "policies", "namespaces"))


def _over_clusters(run: Run, part: ReportTable) -> None:
    bodies = reviews.variants(reviews.tekton())
    files = run.write_reviews("tekton", bodies)
    sizes = {policies_row(count): (count, _FEW_NAMESPACES) for count in run.profile.policies}
    # With a policy for each of the first of them, so that namespaces differ in what covers them.
    more = {f"{count:,} namespaces": (10, count) for count in run.profile.namespaces}
    for what, wanted in (("policies", sizes), ("namespaces", more)):
        run.log_progress(f"growth: {what}")
        places = {
            name: cluster_manifests.write_manifests(run.directory / f"{what}-{number}", *size)
            for number, (name, size) in enumerate(wanted.items())
        }
        found: list[Rows] = []
        for _ in range(run.profile.rounds):
            # Anew for each round: how a process's memory happens to lie makes a tenth of its speed.
            with ExitStack() as stack:
                servers = {name: _serve(run, stack, place) for name, place in places.items()}
                for server in servers.values():
                    check_answers(server, bodies, is_patched)
                contenders = {name: (server, files) for name, server in servers.items()}
                found.append(run.measure_throughput(contenders, rounds=1))
            places = dict(reversed(places.items()))
        part.rows |= concatenate_rounds(found)


def _over_pods(run: Run, part: ReportTable) -> None:
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
        nothing = {
            "no policy for the pod": reviews.unlabelled(),
            "no policy for the namespace": reviews.in_namespace("kube-system"),
        }
        for name, review in nothing.items():
            bodies = reviews.variants(review)
            check_answers(
                ours, bodies, lambda answer: is_allowed(answer) and not is_patched(answer)
            )
            contenders[name] = (ours, run.write_reviews(name.replace(" ", "-"), bodies))
        run.log_progress("growth: init containers, and reviews that match nothing")
        part.rows |= run.measure_throughput(contenders)


def _serve(run: Run, stack: ExitStack, manifests: Path) -> Server:
    log = manifests.with_suffix(".log")
    return stack.enter_context(
        serve_podsettle(run.certs, log, manifests=manifests, core=run.cores.server)
    )
