"""The reviews of the benchmark: a Tekton pod in many variants, in the API server's format.

Names, uids, labels and scripts differ between the variants, as they differ between TaskRuns. A
benchmark with a single body would be less realistic. All variants have about the same size.
"""

from __future__ import annotations

import base64
import json
import random
import re
import uuid
from collections.abc import Callable
from itertools import cycle, islice
from pathlib import Path
from typing import Any, TypeAlias

Json: TypeAlias = dict[str, Any]

VARIANTS = 64
# This is more than the decision cache of any commit can contain.
DISTINCT_TEMPLATES = 1_500
EXAMPLES = Path(__file__).parents[1] / "examples"
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
    path = EXAMPLES / "reviews" / "tekton-taskrun.json"
    review: Json = json.loads(path.read_text(encoding="utf-8"))
    return review


def of_size(kilobytes: int) -> Json:
    """Return a review of about the given size, with more steps and environment variables."""
    review = tekton()
    containers = review["request"]["object"]["spec"]["containers"]
    step = json.dumps(containers[0])
    length = len(encode(review))
    while length + len(step) < kilobytes * 1000 and len(containers) < _MAX_STEPS:
        containers.append({**json.loads(step), "name": f"step-more-{len(containers)}"})
        length += len(step)
    number = 0
    while length < kilobytes * 1000:
        value = f"https://artifacts.example/{number:05}/{'x' * 40}"
        variable = {"name": f"BUILD_INPUT_{number:05}", "value": value}
        containers[number % len(containers)].setdefault("env", []).append(variable)
        length += len(json.dumps(variable, separators=(",", ":"))) + 1
        number += 1
    return review


def with_init_containers(count: int) -> Json:
    """Return a review of the Tekton pod with another number of init containers."""
    review = tekton()
    spec = review["request"]["object"]["spec"]
    originals = spec["initContainers"]
    spec["initContainers"] = [
        {**original, "name": f"{original['name']}-{number}"}
        for number, original in enumerate(islice(cycle(originals), count))
    ]
    return review


def encode(review: Json) -> bytes:
    """Return the review as JSON without spaces, the API server's format."""
    return json.dumps(review, separators=(",", ":"), ensure_ascii=False).encode()


def variants(review: Json) -> list[bytes]:
    """Return reviews of pods of one template. They are the same in every run."""
    text = encode(review).decode()
    return [_variant(text, random.Random(number)).encode() for number in range(VARIANTS)]


def distinct_templates() -> list[bytes]:
    """Return reviews of Tekton pods, each of a different template.

    The name of an init container differs, which the answer contains, and so does its command. No
    cache of decisions can answer one of these pods from another one.
    """
    review = tekton()
    container = review["request"]["object"]["spec"]["initContainers"][0]
    name, command = container["name"], container["command"]
    bodies = []
    for number in range(DISTINCT_TEMPLATES):
        container |= {"name": f"{name}-{number:05}", "command": [*command, f"step-{number:05}"]}
        bodies.append(_variant(encode(review).decode(), random.Random(number)).encode())
    return bodies


def previewed_texts() -> list[bytes]:
    """Return texts for /preview: first ordinary pods, then some that take much time to refuse.

    All are below the limits of /preview: 256 KiB and 50 pods.
    """
    pod = tekton()["request"]["object"]
    count = min((256 * 1024 - 1024) // (len(json.dumps(pod)) + 2), 50)
    nested = "a: " + "".join(f"&a{n} [" for n in range(190)) + "1," * 120_000 + "]" * 190
    containers = [{"name": f"c{n}", "image": "a", "env": [{"name": "x"}] * 20} for n in range(300)]
    wide = {"kind": "Pod", "metadata": pod["metadata"], "spec": {"initContainers": containers}}
    return [
        json.dumps({"kind": "List", "items": [pod] * count}).encode(),
        nested.encode(),
        b"[" + b"1," * 120_000 + b"1]",
        json.dumps(wide).encode(),
        b"kind: Service\n---\n" * 4_900 + json.dumps(pod).encode(),
    ]


def _variant(text: str, generator: random.Random) -> str:
    """Return a review in which names, uids and scripts are replaced by random ones."""

    def uid(_old: str) -> str:
        return str(uuid.UUID(int=generator.getrandbits(128)))

    def suffix(old: str) -> str:
        return "".join(generator.choices(_LETTERS, k=len(old)))

    def script(old: str) -> str:
        size = len(base64.b64decode(old)) + generator.randint(-8, 8)
        rest = "".join(generator.choices("abcdefghij $/\n", k=size - 10))
        return base64.b64encode(f"#!/bin/sh\n{rest}".encode()).decode()

    for pattern, make in ((_UID, uid), (_SUFFIX, suffix), (_SCRIPT, script)):
        text = _replace_each(pattern, make, text)
    return text


def _replace_each(pattern: re.Pattern[str], make: Callable[[str], str], text: str) -> str:
    """Replace what a pattern finds, and what occurs several times by the same text each time."""
    replacements = {old: make(old) for old in dict.fromkeys(pattern.findall(text))}
    return pattern.sub(lambda match: replacements[match[0]], text)
