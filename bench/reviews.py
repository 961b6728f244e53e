"""The reviews of the benchmark: a Tekton pod in many variants, in the API server's format.

Names, uids, labels and scripts differ between the variants, as they differ between TaskRuns. A
benchmark with a single body would be less realistic. All variants have about the same size.
"""

from __future__ import annotations

import base64
import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

Json: TypeAlias = dict[str, Any]

VARIANTS = 64
# This is more than the decision cache can contain.
DISTINCT_TEMPLATES = 1_500
_EXAMPLE = Path(__file__).parents[1] / "examples" / "reviews" / "tekton-taskrun.json"
_UID = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")
_SUFFIX = re.compile(r"(?<=-)(?:8k2mz|9l9zj|mz4c7|mssqb|qq9n2)\b")
# `#!/…` in base64: Tekton passes scripts to its init container in this encoding.
_SCRIPT = re.compile(r"IyEv[A-Za-z0-9+/]{40,}={0,2}")
# The characters of generated suffixes in Kubernetes.
_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
# Real TaskRuns do not have more steps. Environment variables fill a larger pod.
_MAX_STEPS = 20


def tekton() -> Json:
    """Return a review of a TaskRun's pod: two init containers, three containers, 8 KB."""
    review: Json = json.loads(_EXAMPLE.read_text(encoding="utf-8"))
    return review


def small() -> Json:
    """Return a review of 2 KB: one init container and one container, covered by the same policy."""
    review = tekton()
    pod = review["request"]["object"]
    spec = pod["spec"]
    pod["metadata"]["labels"] = {"tekton.dev/taskRun": "build-run-8k2mz-unit"}
    pod["metadata"].pop("ownerReferences")
    spec["volumes"] = []
    spec["initContainers"] = spec["initContainers"][:1]
    spec["containers"] = spec["containers"][:1]
    for container in (*spec["initContainers"], *spec["containers"]):
        container |= {"volumeMounts": [], "image": "registry.example/app:1"}
    del spec["containers"][0]["args"], spec["tolerations"]
    return _pad(review, 2_000)


def of_size(kilobytes: int) -> Json:
    """Return a review of about the given size."""
    if kilobytes < 8:
        return small()
    review = tekton()
    if kilobytes == 8:
        return review
    containers = review["request"]["object"]["spec"]["containers"]
    step = json.dumps(containers[0])
    while len(encode(review)) + len(step) < kilobytes * 1000 and len(containers) < _MAX_STEPS:
        containers.append({**json.loads(step), "name": f"step-more-{len(containers)}"})
    return _pad(review, kilobytes * 1000)


def with_init_containers(count: int) -> Json:
    """Return a review of the Tekton pod with another number of init containers."""
    review = tekton()
    spec = review["request"]["object"]["spec"]
    originals = spec["initContainers"]
    spec["initContainers"] = [
        {**originals[n % len(originals)], "name": f"{originals[n % len(originals)]['name']}-{n}"}
        for n in range(count)
    ]
    return review


def unlabelled() -> Json:
    """Return a review of the Tekton pod without the label in the policy's selector."""
    review = tekton()
    del review["request"]["object"]["metadata"]["labels"]["tekton.dev/taskRun"]
    return review


def in_namespace(name: str) -> Json:
    """Return a review of the Tekton pod in another namespace."""
    review = tekton()
    review["request"]["namespace"] = review["request"]["object"]["metadata"]["namespace"] = name
    return review


def encode(review: Json) -> bytes:
    """Return the review as JSON without spaces, the API server's format."""
    return json.dumps(review, separators=(",", ":"), ensure_ascii=False).encode()


def variants(review: Json, count: int = VARIANTS) -> list[bytes]:
    """Return reviews of `count` pods of one template. They are the same in every run."""
    text = encode(review).decode()
    return [_variant(text, random.Random(number)).encode() for number in range(count)]


def distinct_templates(count: int = DISTINCT_TEMPLATES) -> list[bytes]:
    """Return reviews of `count` Tekton pods, each of a different template."""
    review = tekton()
    command: list[str] = review["request"]["object"]["spec"]["initContainers"][0]["command"]
    bodies = []
    for number in range(count):
        text = encode(review).decode()
        bodies.append(_variant(text, random.Random(number)).encode())
        command[-1] = f"step-{number:05}"
    return bodies


def write_files(bodies: list[bytes], directory: Path) -> list[Path]:
    """Write each body to a file in `directory`, and return the paths."""
    directory.mkdir(parents=True, exist_ok=True)
    paths = [directory / f"{number:03}.json" for number in range(len(bodies))]
    for path, body in zip(paths, bodies, strict=True):
        path.write_bytes(body)
    return paths


def _variant(text: str, generator: random.Random) -> str:
    """Return a review in which names, uids and scripts are replaced by random ones."""
    # A name or uid that occurs several times is replaced by the same text each time.
    replacements: dict[str, str] = {}

    def replace_by(make: Callable[[str], str]) -> Callable[[re.Match[str]], str]:
        def replacement(match: re.Match[str]) -> str:
            if match[0] not in replacements:
                replacements[match[0]] = make(match[0])
            return replacements[match[0]]

        return replacement

    def uid(_old: str) -> str:
        digits = f"{generator.getrandbits(128):032x}"
        return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))

    def suffix(old: str) -> str:
        return "".join(generator.choices(_LETTERS, k=len(old)))

    def script(old: str) -> str:
        size = len(base64.b64decode(old)) + generator.randint(-8, 8)
        rest = "".join(generator.choices("abcdefghij $/\n", k=size - 10))
        return base64.b64encode(f"#!/bin/sh\n{rest}".encode()).decode()

    text = _UID.sub(replace_by(uid), text)
    text = _SUFFIX.sub(replace_by(suffix), text)
    return _SCRIPT.sub(replace_by(script), text)


def _pad(review: Json, size: int) -> Json:
    """Add environment variables to all containers until the review has the given size."""
    containers = review["request"]["object"]["spec"]["containers"]
    number = 0
    length = len(encode(review))
    while length < size:
        value = f"https://artifacts.example/{number:05}/{'x' * 40}"
        variable = {"name": f"BUILD_INPUT_{number:05}", "value": value}
        containers[number % len(containers)].setdefault("env", []).append(variable)
        length += len(json.dumps(variable, separators=(",", ":"))) + 1
        number += 1
    return review
