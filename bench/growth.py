"""What becomes of it as the cluster and its pods grow."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from bench import clusters, reviews
from bench.measurement import Rows, joined
from bench.report_table import Part
from bench.run import Run
from bench.servers import Subject, check, serve_echo, serve_podsettle
from bench.throughput import answer_of, is_allowed, is_patched

NAME = "growth"
_FEW_NAMESPACES = 10


def measure(run: Run) -> Part:
    """Reviews per second over policies, namespaces, sizes, containers, and for nothing at all."""
    part = Part(NAME, "Growth: policies, namespaces, pods")
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


def _over_clusters(run: Run, part: Part) -> None:
    bodies = reviews.variants(reviews.tekton())
    files = run.files("tekton", bodies)
    sizes = {policies_row(count): (count, _FEW_NAMESPACES) for count in run.effort.policies}
    # With a policy for each of the first of them, so that namespaces differ in what covers them.
    more = {f"{count:,} namespaces": (10, count) for count in run.effort.namespaces}
    for what, wanted in (("policies", sizes), ("namespaces", more)):
        run.say(f"growth: {what}")
        places = {
            name: clusters.manifests(run.directory / f"{what}-{number}", *size)
            for number, (name, size) in enumerate(wanted.items())
        }
        found: list[Rows] = []
        for _ in range(run.effort.rounds):
            # Anew for each round: how a process's memory happens to lie makes a tenth of its speed.
            with ExitStack() as stack:
                subjects = {name: _serve(run, stack, place) for name, place in places.items()}
                for subject in subjects.values():
                    check(subject, bodies, is_patched)
                contenders = {name: (subject, files) for name, subject in subjects.items()}
                found.append(run.press_all(contenders, rounds=1))
            places = dict(reversed(places.items()))
        part.rows |= joined(found)


def _over_pods(run: Run, part: Part) -> None:
    with ExitStack() as stack:
        ours = _serve(run, stack, clusters.manifests(run.directory / "pods", 1, _FEW_NAMESPACES))
        for kilobytes in run.effort.kilobytes:
            run.say(f"growth: pods of {kilobytes} KB")
            bodies = reviews.variants(reviews.of_size(kilobytes))
            check(ours, bodies, is_patched)
            files = run.files(f"{kilobytes}kb", bodies)
            log = run.directory / f"echo-{kilobytes}.log"
            with serve_echo(run.certs, answer_of(ours, bodies[0]), log, run.cores.server) as echo:
                part.rows |= run.press_all(
                    {
                        size_row(kilobytes): (ours, files),
                        size_row(kilobytes, "echo"): (echo, files),
                    }
                )
        contenders: dict[str, tuple[Subject, list[Path]]] = {}
        for count in run.effort.init_containers:
            bodies = reviews.variants(reviews.with_init_containers(count))
            check(ours, bodies, is_patched)
            name = f"{count} init container{'s' if count > 1 else ''}"
            contenders[name] = (ours, run.files(f"inits-{count}", bodies))
        nothing = {
            "no policy for the pod": reviews.unlabelled(),
            "no policy for the namespace": reviews.in_namespace("kube-system"),
        }
        for name, review in nothing.items():
            bodies = reviews.variants(review)
            check(ours, bodies, lambda answer: is_allowed(answer) and not is_patched(answer))
            contenders[name] = (ours, run.files(name.replace(" ", "-"), bodies))
        run.say("growth: init containers, and reviews that match nothing")
        part.rows |= run.press_all(contenders)


def _serve(run: Run, stack: ExitStack, manifests: Path) -> Subject:
    log = manifests.with_suffix(".log")
    return stack.enter_context(
        serve_podsettle(run.certs, log, manifests=manifests, core=run.cores.server)
    )
