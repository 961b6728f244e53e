"""Generated SettlePolicy documents, most of them valid.

They hold neither null nor a whole fraction: tests/data/policy_differences.py says why.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.support.factories import Json
from tests.support.remedy_settings import settings_of
from webhook.core import remedies as registry
from webhook.core.constants import DNS_LABEL, DNS_SUBDOMAIN
from webhook.core.durations import DURATION_PATTERN
from webhook.core.globs import CONTAINER_GLOB_PATTERN
from webhook.core.labels import LABEL_PAIR_PATTERN
from webhook.core.remedies.start_targets import DNS_PATTERN, HTTP_PATTERN, TCP_PATTERN

JUNK = st.sampled_from([5, 1.5, True, "", "x", [], {}, [5], ["x"], {"a": "b"}, {"a": 5}])


def mostly(good: st.SearchStrategy[Any], odd: st.SearchStrategy[Any] = JUNK) -> Any:
    """Now and then something odd: with one oddity in most documents, all of them are seen."""
    return st.integers(0, 24).flatmap(lambda n: (odd | JUNK) if n == 11 else good)


@st.composite
def objects(
    draw: st.DrawFn, /, required: dict[str, Any] | None = None, **optional: st.SearchStrategy[Any]
) -> Json:
    known: Json = draw(st.fixed_dictionaries(required or {}, optional=optional))
    return {**known, "extra": 1} if draw(st.integers(0, 24)) == 11 else known


def joined(amounts: st.SearchStrategy[str], units: list[str]) -> st.SearchStrategy[str]:
    parts = st.builds(str.__add__, amounts, st.sampled_from(units))
    return st.lists(parts, min_size=1, max_size=3).map("".join)


DURATIONS = mostly(
    joined(st.integers(0, 20).map(str) | st.sampled_from(["0.5", "00", "19.9999"]), ["ms", "s"]),
    joined(st.sampled_from(["1", "0.9", "59.999", "60", "60.0001", "60000"]), ["ms", "s", "m", "h"])
    | joined(st.text("0123.-+", max_size=3), ["ms", "s", "us", ""]),
)
GLOBS = mostly(st.text("ab-*?", min_size=1, max_size=4), st.text("aB.*[]", max_size=3))
CONTAINERS = mostly(
    st.sampled_from(["prepare", "a", "a-0", "0" * 63]),
    st.sampled_from(["*", "a" * 64]) | st.text("a-.B", max_size=4),
)
VALUES = mostly(
    st.sampled_from(["", "a", "b-c", "A_1.b", "a" * 63]),
    st.sampled_from(["a" * 64]) | st.text("aB1-_./", max_size=4),
)
KEYS = mostly(
    st.sampled_from(["a", "tekton.dev/taskRun", "a" * 63, f"{'a' * 253}/b"]),
    st.sampled_from(["a" * 64, f"{'a' * 254}/b"]) | st.text("aB1-_./", max_size=5),
)
TEXT_KEYS = KEYS.map(lambda key: key if isinstance(key, str) else "a b")
CLASSES = mostly(
    st.sampled_from(["a", "a", "a", "b", "a" * 253]),
    st.sampled_from(["a" * 254]) | st.text("a-.B", max_size=4),
)
HOSTS = ["a", "a-0.b", "a.", "169.254.170.23", "[fd00:ec2::23]", "a" * 253, "-a", "A", "a_b", "[]"]
PORTS = ["1", "80", "9999", "65535", "0", "080", "65536", "123456", "", "+1", "٣"]
TCP_TARGETS = mostly(
    st.builds("{}:{}".format, st.sampled_from(HOSTS[:6]), st.sampled_from(PORTS[:4])),
    st.builds("{}:{}".format, st.sampled_from(HOSTS), st.sampled_from(PORTS)),
)
URLS = mostly(
    st.builds(
        "http://{}{}{}".format,
        st.sampled_from(HOSTS[:6]),
        st.sampled_from(["", ":80"]),
        st.sampled_from(["", "/", "/a?b=c&d=%20", "/" + "a" * 200]),
    ),
    st.builds(
        "{}{}{}".format,
        st.sampled_from(["http://", "https://", "HTTP://", ""]),
        st.sampled_from(HOSTS),
        st.sampled_from(["/$(A)", "/a,b", "/a b", "?a", ":0/", "/" + "a" * 512]),
    ),
)
DNS_TARGETS = mostly(
    st.sampled_from(["a", "sts.example.com", "a.b.", "a" * 253, "a" * 253 + "."]),
    st.sampled_from(["a" * 255, "a..b", ".", "*.a"]) | st.text("a-.B_", max_size=4),
)
ENTRIES = mostly(
    objects(
        {"key": KEYS, "operator": st.sampled_from(["In", "NotIn"])}
        | {"values": mostly(st.lists(VALUES, min_size=1, max_size=2))}
    )
    | objects({"key": KEYS, "operator": st.sampled_from(["Exists", "DoesNotExist"])}),
    objects(
        key=KEYS,
        operator=st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt"]),
        values=st.lists(VALUES, max_size=1),
    ),
)
SELECTORS = mostly(
    objects(
        matchLabels=mostly(st.dictionaries(TEXT_KEYS, VALUES, max_size=2)),
        matchExpressions=mostly(st.lists(ENTRIES, max_size=2)),
    )
)
TEXTS = {
    DURATION_PATTERN: DURATIONS,
    CONTAINER_GLOB_PATTERN: GLOBS,
    f"^{DNS_LABEL}$": CONTAINERS,
    f"^{DNS_SUBDOMAIN}$": CLASSES,
    LABEL_PAIR_PATTERN: st.builds("{}={}".format, KEYS, VALUES)
    | mostly(st.sampled_from(["a=b", "a="]), st.sampled_from(["a", "=b", "a=b=c"])),
    TCP_PATTERN: TCP_TARGETS,
    HTTP_PATTERN: URLS,
    DNS_PATTERN: DNS_TARGETS,
}
REMEDIES: dict[str, Any] = {
    name: settings_of(remedy, TEXTS, mostly, objects) for name, remedy in registry.REMEDIES.items()
}
SPECS = objects(
    {"remedies": mostly(objects(**REMEDIES))},
    description=mostly(st.text("aé -", max_size=9)),
    priority=mostly(st.integers(-(2**31), 2**31 - 1), st.sampled_from([-(2**31) - 1, 2**31])),
    action=mostly(st.sampled_from(["Mutate", "Audit"])),
    namespaceSelector=SELECTORS,
    podSelector=SELECTORS,
)
DOCUMENTS = st.fixed_dictionaries(
    {
        "apiVersion": st.just("podsettle.dev/v1alpha1"),
        "kind": st.just("SettlePolicy"),
        "metadata": st.builds(dict, name=st.sampled_from(["p", "p", "p", "a-.b", "a.b", "B"])),
        "spec": mostly(SPECS),
    }
)
