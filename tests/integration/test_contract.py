"""The listing of what users name has lines of every kind, and tells two commits apart."""

from __future__ import annotations

from tests.contract.__main__ import lines_of
from tests.support.paths import ROOT

KINDS = {
    "command: podsettle serve --port ": '"default": 8443',
    "command: podsettle serve --web-port ": '"default": 9443',
    "exit code: podsettle check: ": "1 a problem was found",
    "metrics: | `podsettle_outcomes_total` ": "`remedy`, `reason`",
    "reason: DeadlineExceeded: ": "warns",
    "limit: | a TLS handshake ": "10 s",
    "label or annotation: {GROUP}/applied": "",
    "chart value: /properties/replicas/": "integer",
    "chart default: /replicas ": "",
    "policy: /$defs/PostInitSleep/properties/minLifetime/default ": "500ms",
    "http: /paths//preview/post/responses/422/": "",
    "review: /auditAnnotations/applied ": "tekton-on-crio/postInitSleep",
}


def test_listing_has_what_a_user_names() -> None:
    lines = lines_of(ROOT)
    assert lines == sorted(set(lines))
    for begin, part in KINDS.items():
        assert any(line.startswith(begin) and part in line for line in lines), begin
