"""Test that all channels give the same codes and sentences for every sample pod.

`podsettle preview -o json` is what the others are compared with. Each other channel has a function
in `CHANNELS`: it says what is different in the channel, and why.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from tests.support.chromium import Chromium, start_chromium
from tests.support.factories import Json
from tests.support.paths import DATA, EXAMPLES
from tests.support.process import RunningServer, podsettle, start_server
from tests.support.reviews import PODS, load_pod, patch_of, review
from tests.support.waiting import await_that
from webhook.cli import main
from webhook.core.admission.response import MAX_WARNING_CHARACTERS
from webhook.core.admission.summary import parse_skipped
from webhook.core.reasons import NOT_EVALUATED, Reason
from webhook.core.remedies import REMEDIES

pytestmark = pytest.mark.needs("chromium", "chromedriver")

ALL = [
    *PODS,
    *sorted((EXAMPLES / "pods").glob("*.yaml")),
    *sorted((DATA / "reasons").glob("*.yaml")),
]
AUDITING = {
    document["metadata"]["name"]
    for document in yaml.safe_load_all((EXAMPLES / "policies.yaml").read_text())
    if document["spec"].get("action") == "Audit"
}
_LOG_CHARACTERS = 2_000
"""A line of the log is cut at 2,400 characters, with its prefix."""


def name_of(path: Path) -> str:
    return f"{path.parts[-3]}-{path.parts[-2]}-{path.stem}"


@dataclass
class Channels:
    """What each channel says, made once for all pods."""

    server: RunningServer
    browser: Chromium
    previews: dict[Path, Json]
    reviews: dict[Path, Json]
    """The answers of `/mutate`."""
    pods: Path
    """A dump of the running pods as their authors wrote them."""
    admitted: Path
    """A dump of the same pods as podsettle leaves them."""
    unsettled: dict[str, str]
    """The sentence of `podsettle scan` for each pod that is not settled."""
    unsettled_after: dict[str, str]
    """The sentences for the same pods as podsettle leaves them."""

    def outcomes(self, path: Path) -> list[Json]:
        found: list[Json] = self.previews[path]["outcomes"]
        return found

    def changing_outcomes(self, path: Path) -> list[Json]:
        """The outcomes of policies with `action: Mutate`."""
        outcomes = self.outcomes(path)
        return [o for o in outcomes if o["policy"] and o["policy"] not in AUDITING]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    certs = tmp_path_factory.mktemp("certs")
    with start_server(EXAMPLES, certs, "--log-level", "debug") as found:
        found.await_previews()
        yield found


@pytest.fixture(scope="module")
def by_command_line() -> dict[Path, Json]:
    done = podsettle("preview", "--manifests", EXAMPLES, "-o", "json", *ALL)
    assert done.returncode == 0, done.stderr
    pods = json.loads(done.stdout)["pods"]
    return dict(zip(ALL, pods, strict=True))


@pytest.fixture(scope="module")
def channels(
    server: RunningServer,
    by_command_line: dict[Path, Json],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Channels]:
    with server.client() as client:
        answers = {
            path: client.post("/mutate", json=review(load_pod(path), uid=uid_of(path))).json()
            for path in ALL
        }
    dumps = tmp_path_factory.mktemp("dumps")
    pods, admitted = dumps / "pods.yaml", dumps / "admitted.yaml"
    pods.write_text(yaml.safe_dump_all(running(load_pod(path), path) for path in ALL))
    admitted.write_text(
        yaml.safe_dump_all(running(by_command_line[path]["after"], path) for path in ALL)
    )
    with start_chromium(tmp_path_factory.mktemp("chromium")) as browser:
        browser.open(f"{server.web_url}/")
        found, found_after = scanned(1, EXAMPLES, pods), scanned(0, EXAMPLES, admitted)
        yield Channels(
            server, browser, by_command_line, answers, pods, admitted, found, found_after
        )


def uid_of(path: Path) -> str:
    return f"uid-of-{name_of(path)}"


def running(pod: Json, path: Path) -> Json:
    """Return a pod as a cluster has it while it runs, with an owner of its own.

    Its name is that of the sample.
    """
    name = name_of(path)
    owners = [{**owner, "name": name} for owner in pod["metadata"].get("ownerReferences") or ()]
    metadata = {**pod["metadata"], "name": name, "ownerReferences": owners}
    return {**pod, "metadata": metadata, "status": {"phase": "Running"}}


def scanned(code: int, *manifests: Path) -> dict[str, str]:
    """Return the sentence for each pod that is not settled. The scan exits with `code`."""
    arguments = [word for path in manifests for word in ("--manifests", path)]
    done = podsettle("scan", *arguments, "-o", "json")
    assert done.returncode == code, done.stderr
    (report,) = (s for s in json.loads(done.stdout)["symptoms"] if s["id"] == "not-settled")
    assert report["unlisted"] == 0
    assert all(finding["count"] == 1 for finding in report["findings"])
    return {f["evidence"][0]["object"]: f["sentence"] for f in report["findings"]}


def explained(target: str, namespace: str, *arguments: str | Path) -> str:
    """Return the output of `podsettle explain`, without a new process."""
    words = ["explain", target, "-n", namespace, "--manifests", EXAMPLES, *arguments]
    done = CliRunner().invoke(main, list(map(str, words)), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def line_of(outcome: Json) -> str:
    """The line of an outcome on a terminal."""
    subject = " ".join(filter(None, (outcome["reason"], outcome["remedy"], outcome["container"])))
    by = f" (by {outcome['policy']})" if outcome["policy"] else ""
    return f"{subject}: {outcome['message']}{by}"


def audit_entry(outcome: Json) -> str:
    """The entry of an outcome in the audit annotations."""
    subject = "/".join(filter(None, (outcome["policy"], outcome["remedy"])))
    container = f"[{outcome['container']}]" if outcome["container"] else ""
    return f"{subject}{container}={outcome['reason']}" if subject else outcome["reason"]


def check_warnings(channels: Channels, path: Path) -> None:
    """A warning is for several containers, and is cut at 256 characters."""
    warnings = channels.reviews[path]["response"].get("warnings", [])
    assert warnings == channels.previews[path]["warnings"]
    wanted = {
        (": ".join(filter(None, ("podsettle", o["remedy"], o["reason"]))) + ": ", o["message"])
        for o in channels.outcomes(path)
        if o["warns"]
    }
    assert len(warnings) == len(wanted)
    for prefix, sentence in wanted:
        (warning,) = (w for w in warnings if w.startswith(prefix) and _ends_with(w, sentence))
        assert len(warning) <= MAX_WARNING_CHARACTERS


def _ends_with(warning: str, sentence: str) -> bool:
    """Return whether a warning ends with a sentence, or with the beginning of one."""
    if warning.endswith(f": {sentence}"):
        return True
    if len(warning) != MAX_WARNING_CHARACTERS or not warning.endswith("..."):
        return False
    return any(f": {sentence}".startswith(part) for part in _tails(warning.removesuffix("...")))


def _tails(text: str) -> Iterator[str]:
    yield from (text[index:] for index in range(len(text)) if text.startswith(": ", index))


def check_audit_annotations(channels: Channels, path: Path) -> None:
    """They have codes only, and none for a remedy that was not evaluated."""
    annotations = channels.reviews[path]["response"].get("auditAnnotations", {})
    outcomes = [o for o in channels.outcomes(path) if o["reason"] not in NOT_EVALUATED]
    assert annotations.get("applied", "").split() == [
        audit_entry(o) for o in outcomes if o["changed"]
    ]
    assert annotations.get("skipped", "").split() == [
        audit_entry(o) for o in outcomes if not o["changed"]
    ]


def check_annotations(channels: Channels, path: Path) -> None:
    """They have what policies with `action: Mutate` did, and the codes that warn."""
    preview = channels.previews[path]
    operations = patch_of(channels.reviews[path])
    assert operations == preview["patch"]
    before, after = (preview[state]["metadata"] for state in ("before", "after"))
    annotations = after.get("annotations") or {}
    outcomes = channels.changing_outcomes(path)
    assert applied_in(after) - applied_in(before) == {
        f"{o['policy']}/{o['remedy']}" for o in preview["outcomes"] if o["changed"]
    }
    unmet = [o for o in outcomes if o["warns"] and not o["changed"]]
    skipped = annotations.get("podsettle.dev/skipped", "")
    assert [tuple(each) for each in parse_skipped(skipped)] == list(
        dict.fromkeys((o["container"], o["remedy"], o["reason"]) for o in unmet)
    )
    summary = annotations.get("podsettle.dev/summary", "")
    if not unmet and not any(o["changed"] for o in outcomes):
        assert after.get("annotations") == before.get("annotations")
        return
    for outcome in unmet:
        assert outcome["reason"] in summary
    says_the_same = len(outcomes) == len(preview["outcomes"]) and not any(
        o["reason"] == Reason.ALREADY_SETTLED for o in outcomes
    )
    if says_the_same:
        # Each clause is a line, because `kubectl describe` cuts long lines.
        assert summary.replace("\n", " ") == preview["summary"]


def applied_in(metadata: Json) -> set[str]:
    """Return the remedies that the annotations of a pod name."""
    applied = (metadata.get("annotations") or {}).get("podsettle.dev/applied", "")
    return set(filter(None, applied.split(",")))


def check_log(channels: Channels, path: Path) -> None:
    """It has the codes of the audit annotations, and no line for a pod without a policy.

    A covered pod of which no remedy was evaluated has a line with the reason alone.
    """
    annotations = channels.reviews[path]["response"].get("auditAnnotations", {})
    marker = f"uid {uid_of(path)} "
    if not any(o["policy"] for o in channels.outcomes(path)):
        reasons = {o["reason"] for o in channels.outcomes(path)}
        written = [line for line in channels.server.log.read_text().splitlines() if marker in line]
        assert bool(written) is bool(reasons & {"WindowsPod", "MirrorPod", "PolicyNotFound"})
        assert all(line.partition(": skipped: ")[2] in reasons for line in written)
        return

    def lines() -> list[str]:
        """The lines with the marker that are written to their end."""
        complete, _, _ = channels.server.log.read_text().rpartition("\n")
        return [line for line in complete.splitlines() if marker in line]

    await_that(lines, "the line is written")
    (line,) = lines()
    summary = "; ".join(f"{key}: {text}" for key, text in annotations.items())
    assert summary[:_LOG_CHARACTERS] in line


def check_command_line(channels: Channels, path: Path) -> None:
    """The first lines of a preview are the summary and one line for each outcome."""
    done = CliRunner().invoke(main, ["preview", "--manifests", str(EXAMPLES), str(path)])
    assert done.exit_code == 0, done.output
    _, summary, *lines = done.stdout.splitlines()
    preview = channels.previews[path]
    outcomes = preview["outcomes"]
    assert summary == f"  {preview['summary']}"
    assert lines[: len(outcomes)] == [f"  {line_of(outcome)}" for outcome in outcomes]


def check_endpoint(channels: Channels, path: Path) -> None:
    """It has the same JSON."""
    with channels.server.client() as client:
        (pod,) = client.post("/preview", content=path.read_bytes()).json()["pods"]
    assert pod == channels.previews[path]


def check_page(channels: Channels, path: Path) -> None:
    """It shows outcomes that differ only in their container as one."""
    page = channels.browser
    page.paste("#workload", path.read_text())
    # Not by the mouse: on a busy machine, the page can move between its aim and its click.
    page.run("document.querySelector('#preview').click()")
    page.wait_for(
        "document.querySelector('#results').getAttribute('aria-busy') === 'false' &&"
        "document.querySelector('.pod:not(.stale *)')?.textContent.includes(arguments[0])",
        channels.previews[path]["name"],
    )
    groups: dict[tuple[str, str, str, str], list[str]] = {}
    for o in channels.outcomes(path):
        key = (o["remedy"], o["reason"], o["policy"], o["message"])
        groups.setdefault(key, []).extend([o["container"]] if o["container"] else [])
    shown = page.run(
        "return [...document.querySelectorAll('.reasons li .what')].map((e) => e.textContent)"
    )
    assert len(shown) == len(groups)
    for text, ((remedy, reason, policy, message), names) in zip(shown, groups.items(), strict=True):
        assert reason in text
        assert remedy in text
        assert policy in text
        assert ", ".join(names) in text
        assert message.replace("`", "") in text


def check_explain(channels: Channels, path: Path) -> None:
    """It decides as a preview does. Of a settled pod, it takes the remedies out first."""
    preview = channels.previews[path]
    if "AlreadySettled" in [outcome["reason"] for outcome in preview["outcomes"]]:
        return
    target, namespace = f"pod/{name_of(path)}", preview["namespace"]
    answer = json.loads(explained(target, namespace, "--manifests", channels.pods, "-o", "json"))
    assert answer["today"]["outcomes"] == preview["outcomes"]
    assert answer["today"]["summary"] == preview["summary"]
    assert answer["today"]["warnings"] == preview["warnings"]
    text = explained(target, namespace, "--manifests", channels.pods).splitlines()
    for line in [preview["summary"], *map(line_of, preview["outcomes"])]:
        assert f"  {line}" in text or len(preview["outcomes"]) > 40


def check_explain_of_the_admitted_pod(channels: Channels, path: Path) -> None:
    """It reads the annotations: their codes, with the sentences of the decision of today."""
    preview = channels.previews[path]
    arguments = ("--manifests", channels.admitted, "-o", "json")
    answer = json.loads(explained(f"pod/{name_of(path)}", preview["namespace"], *arguments))
    annotations = preview["after"]["metadata"].get("annotations") or {}
    assert answer["summary"] == annotations.get("podsettle.dev/summary", "")
    applied = [f"{each['policy']}/{each['remedy']}" for each in answer["applied"]]
    assert ",".join(applied) == annotations.get("podsettle.dev/applied", "")
    assert all(each["today"] == "" for each in answer["applied"])
    if applied:
        assert answer["verdict"] == "podsettle changed this pod when it was created."
    assert not any("no sign of" in note for note in answer["notes"])
    unmet = [o for o in channels.changing_outcomes(path) if o["warns"] and not o["changed"]]
    assert [
        (each["container"], each["remedy"], each["reason"], each["sentence"])
        for each in answer["leftOut"]
    ] == list(
        dict.fromkeys((o["container"], o["remedy"], o["reason"], o["message"]) for o in unmet)
    )


def check_scan(channels: Channels, path: Path) -> None:
    """It names what a new pod would get, and only for pods that would be changed."""
    pod = f"pod {channels.previews[path]['namespace']}/{name_of(path)}"
    changed = [o for o in channels.outcomes(path) if o["changed"]]
    would = "; ".join(dict.fromkeys(f"{o['remedy']}: {o['message']}" for o in changed))
    if would:
        assert channels.unsettled[pod].endswith(f"; a new pod would get {would}")
    else:
        assert pod not in channels.unsettled
    assert pod not in channels.unsettled_after


CHANNELS: dict[str, Callable[[Channels, Path], None]] = {
    "warnings": check_warnings,
    "audit annotations": check_audit_annotations,
    "annotations of the pod": check_annotations,
    "log": check_log,
    "command line": check_command_line,
    "/preview": check_endpoint,
    "page": check_page,
    "explain": check_explain,
    "explain of the admitted pod": check_explain_of_the_admitted_pod,
    "scan": check_scan,
}


def test_each_remedy_is_applied_to_one_of_the_sample_pods(
    by_command_line: dict[Path, Json],
) -> None:
    outcomes = [o for pod in by_command_line.values() for o in pod["outcomes"]]
    assert {o["remedy"] for o in outcomes if o["changed"]} == REMEDIES.keys()


def test_sample_pods_show_reasons_that_warn_and_reasons_that_do_not(
    by_command_line: dict[Path, Json],
) -> None:
    outcomes = [o for pod in by_command_line.values() for o in pod["outcomes"]]
    assert len({o["reason"] for o in outcomes}) > 15
    assert {o["warns"] for o in outcomes} == {True, False}


@pytest.mark.parametrize("channel", CHANNELS)
@pytest.mark.parametrize("path", ALL, ids=name_of)
def test_channel_gives_the_codes_and_sentences_of_the_preview(
    channel: str, path: Path, channels: Channels
) -> None:
    CHANNELS[channel](channels, path)
