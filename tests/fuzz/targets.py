"""What is fuzzed: functions of bytes, each with the CPU time that it may take."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

from tests.fuzz.inputs import Piece, Program
from tests.fuzz.pods import LONG_FIELDS, POD, pod_with_long_field, reviewed
from tests.support.factories import SETTINGS, node, policy, runtime_class, view
from webhook.core.admission.cache import DecisionCache
from webhook.core.admission.decider import Decider
from webhook.core.admission.handler import UnreadableReviewError, admit
from webhook.core.defects.versions import Version
from webhook.core.globs import compile_globs
from webhook.core.image_reference import parse_reference
from webhook.core.images import LookupRules
from webhook.core.preview.document import DocumentError
from webhook.core.preview.preview import Preview, preview_all, render
from webhook.core.preview.yaml_documents import load_documents
from webhook.core.pull_secrets import DOCKER_CONFIG_JSON, PullSecret
from webhook.images.errors import LookupFailedError
from webhook.images.keyring import read_keyring
from webhook.images.registry import registry_of
from webhook.images.www_authenticate import parse_challenges
from webhook.server.limits import PreviewLimits


class Target(NamedTuple):
    """A function that reads what others wrote, and the CPU time that it may take."""

    run: Callable[[bytes], object]
    """Raises only for a defect."""
    seeds: tuple[Program, ...]
    words: Sequence[str]
    """Parts that its inputs are made of."""
    milliseconds: float = 50.0
    milliseconds_per_kib: float = 2.0
    milliseconds_per_pod: float = 0.0
    """For each of the first pods: a decision and a diff have a price, however short the pod."""
    max_bytes: int = 512 * 1024
    """The maximum length of its inputs."""

    def allowed_seconds(self, body: bytes) -> float:
        """CPU seconds for an input."""
        pods = min(body.count(b"spec"), PreviewLimits().max_pods)
        allowed = (
            self.milliseconds
            + self.milliseconds_per_kib * len(body) / 1024
            + self.milliseconds_per_pod * pods
        )
        return allowed / 1000


SEEN = view(
    policy(
        "all",
        imageConfig={"lookup": "Registry", "registries": ["*"]},
        remedies={
            "postInitSleep": {"initContainers": ["*a*a*b", "?*", "c*"], "containers": ["*"]},
            "openFiles": {"soft": 65536, "initContainers": ["*a*"], "nodeLabel": "n=5"},
            "startGate": {"waitFor": [{"tcp": "a:80"}, {"http": "http://b/"}], "podTargets": True},
            "kubeletGate": {},
            "retryInitExit255": {"initContainers": ["c1"]},
            "seLinuxChangePolicy": "Recursive",
            "fsGroupChangePolicy": "OnRootMismatch",
            "skipSELinuxRelabel": {"pods": "All", "runtimeClassName": "fast"},
        },
    ),
    policy("audit", action="Audit", remedies={"postInitSleep": {"delivery": "Binary"}}),
    *(policy(f"p{n}", podSelector={"matchLabels": {f"l{n}": ""}}) for n in range(20)),
    nodes=[node(f"n{n}", labels={"disk": "ssd", "n": "5"}) for n in range(100)],
    classes=[runtime_class("fast", {"cpu": "250m"}, {"disk": "ssd"})],
    server=Version(1, 36),
)
_CACHING = Decider(SETTINGS, DecisionCache())


def _admit(body: bytes) -> None:
    with suppress(UnreadableReviewError):
        # The second time it may be answered from the cache.
        for decider in (Decider(SETTINGS), _CACHING):
            answer = admit(body, decider, SEEN)
            if answer.error is not None:
                raise answer.error


def _preview(body: bytes) -> None:
    count = 0
    with suppress(DocumentError):
        for document in load_documents(body, "body"):
            for found in preview_all(document, SEEN, SETTINGS, namespace_labels={"team": "a"}):
                count += isinstance(found, Preview)
                if count > PreviewLimits().max_pods:
                    return
                if isinstance(found, Preview):
                    render(found).model_dump_json(by_alias=True)


def _documents(body: bytes) -> None:
    with suppress(DocumentError):
        load_documents(body, "body")


def _globs(body: bytes) -> None:
    name, *globs = body.decode("utf-8", "replace").split("\n")
    compile_globs(tuple(glob[:63].replace("[", "?") for glob in globs[:50]))(name)
    LookupRules(tuple(glob[:300] for glob in globs[:100])).allows(name)


def _keyring(body: bytes) -> None:
    ring = read_keyring([PullSecret("s", DOCKER_CONFIG_JSON, body)])
    for name in ("a" * 250 + "/x", "a." * 100 + "a/x", "registry.example/team/app"):
        ring.matching(name)


def _challenge(body: bytes) -> None:
    parse_challenges(body.decode("latin-1").split("\n"))


def _reference(body: bytes) -> None:
    with suppress(ValueError, LookupFailedError):
        found = parse_reference(body.decode("utf-8", "replace"))
        registry_of(found, LookupRules(("*a*a*a*b", "*.example", "*:*")))


_PODS: tuple[Program, ...] = (
    (Piece(json.dumps(POD)),),
    *(pod_with_long_field(path, item, 400) for path, item in LONG_FIELDS),
)

_JSON_WORDS = (
    '"', "{", "}", "[", "]", ",", ":", "null", "0", "1e9", "9", "\\u0041", "\\ud800", "\udcff",
    '"name":"c{}",', '"command":["sh"],', '"command":["x"],', '"args":["x"],', '"volumeMounts":[',
    '{"name":"d","mountPath":"/podsettle"},', '"image":"a{}.example/x",', '"x{}":1,', '"a"', "a",
    "*", ".", " ", '"limits":{"cpu":"1"},', '"values":["x"],', '"restartPolicy":"Always",',
    '{"name":"c{}","command":["sh"]},', '{"name":"c{}","command":["x"]},', '"labels":{"l1":""},',
)  # fmt: skip
_YAML_WORDS = (
    *_JSON_WORDS, "\n", "- ", "? ", ": ", "a{}: 1\n", "&a{} ", "*a{} ", "&a ", "*a,", "<<: *a\n",
    "<<: {a: 1}\n", "---\n", "...\n", "%TAG !{}! x\n", "%YAML 1.1\n", "!!int ", "!!str ", "#",
    "|\n", ">-\n", "  ", "\t", "'", "1_", "0x", "\r", "\u2028", "key: value\n", "x" * 50 + "\n",
    "kind: Pod\n", "kind: List\nitems:\n", "- {kind: Pod, spec: {containers: []}}\n",
)  # fmt: skip
_LIST = '{"kind":"List","items":['
_EMPTY_POD = '{"kind":"Pod","spec":{"initContainers":[{"name":"c1","command":["sh"]}]}},'
_TEXTS = ("*", "?", "a", "*a", "a*", ".", "*.", ":", "/", "[", "]", "@", "\n", "b", "-", "_",
          "=", '"', "\\", " ", ",", "a=", 'a="', "Basic ", "sha256:", "%", "é", "\x00",
          "5000")  # fmt: skip

TARGETS = {
    "admit": Target(
        # Twice what one review may take: it is answered twice.
        _admit, tuple(map(reviewed, _PODS)), _JSON_WORDS, 2 * 20.0, 2 * 0.02,
        max_bytes=3 * 1024 * 1024,
    ),
    "preview": Target(
        _preview,
        (
            *_PODS[::6],
            (Piece(_LIST), Piece(_EMPTY_POD, 50), Piece(_EMPTY_POD[:-1] + "]}")),
            (Piece("kind: Pod\nmetadata: {name: p}\nspec:\n  containers: []\n  initContainers:\n"),
             Piece("  - name: c{}\n    command: [sh]\n    args: [a]\n", 50)),
            (Piece("kind: Pod\nspec:\n  containers: []\n  x:\n"), Piece("  - a\n  - b\n", 500)),
        ),
        _YAML_WORDS,
        # A preview also says of each policy why it matched, and escapes deceptive text.
        milliseconds_per_kib=4.0,
        milliseconds_per_pod=2.0,
    ),
    "documents": Target(
        _documents,
        (
            (Piece("a: &a [1]\nb: ["), Piece("*a,", 100), Piece("]\n")),
            (Piece("&a{} [", 190), Piece("1,", 100), Piece("]", 190)),
            (Piece("a: &a {b: 1}\nc:\n  <<: *a\n"), Piece("---\nx: |\n  y\n", 10)),
            *_PODS[:2],
        ),
        _YAML_WORDS,
    ),
    "globs": Target(
        _globs,
        (
            (Piece("a", 63), Piece("\n"), Piece("*a", 31), Piece("b\n")),
            (Piece("a", 63), Piece("\n*"), Piece("?", 30), Piece("b\n")),
            (Piece("a.", 100), Piece("b\n"), Piece("*.", 100), Piece("c")),
        ),
        _TEXTS,
    ),
    "keyring": Target(
        _keyring,
        (
            (Piece('{"auths":{'), Piece('"*a*a*b{}":{"username":"u"},', 400),
             Piece('"x":{"auth":"dTpw"}}}')),
            (Piece('{"auths":{"'), Piece("*.", 100), Piece('a":{"auth":"dTpw"}}}')),
            (Piece('{"auths":{"'), Piece("*a", 500), Piece('b":{"auth":"'), Piece("dTpw", 50),
             Piece('"}}}')),
        ),
        (*_TEXTS, '"*.example/{}":{"username":"u"},', '"a{}":{"auth":"dTpw"},', "https://"),
    ),
    "challenge": Target(
        _challenge,
        (
            (Piece('Bearer realm="https://a/token",service="b",scope="c"'),),
            (Piece("Basic "), Piece('a="\\\\" ,', 300)),
            (Piece("a "), Piece(" ", 4_000), Piece("="), Piece("\nBasic", 10)),
        ),
        _TEXTS,
    ),
    "references": Target(
        _reference,
        (
            (Piece("registry.example:5000/team/app:1.2@sha256:"), Piece("0123456789abcdef", 4)),
            (Piece("a", 100), Piece(".b", 20), Piece("/"), Piece("a-", 50), Piece("b")),
            (Piece("a/", 100), Piece("b_", 100)),
        ),
        _TEXTS,
    ),
}  # fmt: skip
