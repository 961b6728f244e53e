"""The reviews that are sent: a Tekton pod as the API server asks about it, in many variants.

No two bodies are alike, so that nobody can say that one body is replayed: names, uids, labels and
scripts differ from one to the next, as they do from TaskRun to TaskRun. All are of about one size.
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
DISTINCT_TEMPLATES = 1_500
"""More than podsettle remembers."""
_EXAMPLE = Path(__file__).parents[1] / "examples" / "reviews" / "tekton-taskrun.json"
_UID = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")
_SUFFIX = re.compile(r"(?<=-)(?:8k2mz|9l9zj|mz4c7|mssqb|qq9n2)\b")
_SCRIPT = re.compile(r"IyEv[A-Za-z0-9+/]{40,}={0,2}")
"""`#!/…` in base64, as Tekton passes scripts to its init container."""
_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
"""Of which Kubernetes makes the ends of names."""
_MOST_STEPS = 20
"""A TaskRun with more is nothing that one meets; the rest of a large pod is environment."""


def tekton() -> Json:
    """The pod of a TaskRun: two init containers, three containers, 8 KB."""
    found: Json = json.loads(_EXAMPLE.read_text(encoding="utf-8"))
    return found


def small() -> Json:
    """A pod of 2 KB that the same policy covers: one init container, one container."""
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
    """A pod of about so many kilobytes."""
    if kilobytes < 8:
        return small()
    review = tekton()
    if kilobytes == 8:
        return review
    containers = review["request"]["object"]["spec"]["containers"]
    step = json.dumps(containers[0])
    while len(encode(review)) + len(step) < kilobytes * 1000 and len(containers) < _MOST_STEPS:
        containers.append({**json.loads(step), "name": f"step-more-{len(containers)}"})
    return _pad(review, kilobytes * 1000)


def with_init_containers(count: int) -> Json:
    """The Tekton pod with so many init containers."""
    review = tekton()
    spec = review["request"]["object"]["spec"]
    some = spec["initContainers"]
    spec["initContainers"] = [
        {**some[n % len(some)], "name": f"{some[n % len(some)]['name']}-{n}"} for n in range(count)
    ]
    return review


def unlabelled() -> Json:
    """The Tekton pod without the label that the policy selects by."""
    review = tekton()
    del review["request"]["object"]["metadata"]["labels"]["tekton.dev/taskRun"]
    return review


def in_namespace(name: str) -> Json:
    """The Tekton pod in another namespace."""
    review = tekton()
    review["request"]["namespace"] = review["request"]["object"]["metadata"]["namespace"] = name
    return review


def encode(review: Json) -> bytes:
    """JSON without spaces, as the API server sends it."""
    return json.dumps(review, separators=(",", ":"), ensure_ascii=False).encode()


def variants(review: Json, count: int = VARIANTS) -> list[bytes]:
    """The same review of different pods; the same ones in every run."""
    text = encode(review).decode()
    return [_variant(text, random.Random(number)).encode() for number in range(count)]


def distinct_templates(count: int = DISTINCT_TEMPLATES) -> list[bytes]:
    """The Tekton pod, so many times, of a template of its own each time."""
    review = tekton()
    command: list[str] = review["request"]["object"]["spec"]["initContainers"][0]["command"]
    made = []
    for number in range(count):
        text = encode(review).decode()
        made.append(_variant(text, random.Random(number)).encode())
        command[-1] = f"step-{number:05}"
    return made


def write_files(bodies: list[bytes], directory: Path) -> list[Path]:
    """A file for each body."""
    directory.mkdir(parents=True, exist_ok=True)
    paths = [directory / f"{number:03}.json" for number in range(len(bodies))]
    for path, body in zip(paths, bodies, strict=True):
        path.write_bytes(body)
    return paths


def _variant(text: str, chance: random.Random) -> str:
    # What is one name or uid in the review is one in the variant.
    known: dict[str, str] = {}

    def by(make: Callable[[str], str]) -> Callable[[re.Match[str]], str]:
        def replaced(found: re.Match[str]) -> str:
            if found[0] not in known:
                known[found[0]] = make(found[0])
            return known[found[0]]

        return replaced

    def uid(_old: str) -> str:
        digits = f"{chance.getrandbits(128):032x}"
        return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))

    def suffix(old: str) -> str:
        return "".join(chance.choices(_LETTERS, k=len(old)))

    def script(old: str) -> str:
        size = len(base64.b64decode(old)) + chance.randint(-8, 8)
        rest = "".join(chance.choices("abcdefghij $/\n", k=size - 10))
        return base64.b64encode(f"#!/bin/sh\n{rest}".encode()).decode()

    return _SCRIPT.sub(by(script), _SUFFIX.sub(by(suffix), _UID.sub(by(uid), text)))


def _pad(review: Json, size: int) -> Json:
    """With environment variables, spread over the containers, up to a size."""
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
