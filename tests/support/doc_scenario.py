"""The scenario of a page about a fault: its policies, its commands, and the pods of the report."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any, NamedTuple

import jsonpatch
import yaml

from tests.support.both_ways import admit_both_ways
from tests.support.factories import IMAGE, SETTINGS, Json
from tests.support.markdown import Page
from tests.support.patches import without_pod_notes
from tests.support.paths import DATA, DOCS
from tests.support.process import podsettle
from tests.support.reviews import patch_of, review
from webhook.cluster.manifest_files_source import ManifestsSource

PODS = DATA / "pods"


class Admitted(NamedTuple):
    """A pod before and after the webhook."""

    before: Json
    after: Json
    reasons: dict[str, str]
    """By remedy and container, such as `postInitSleep prepare`."""
    warnings: list[str]

    @property
    def unchanged(self) -> bool:
        """Whether nothing differs except the annotations that say why."""
        return self.before == without_pod_notes(self.after)


class DocScenario:
    """A page, and a directory with its policies and objects."""

    def __init__(self, name: str, directory: Path) -> None:
        self.page = Page(DOCS / f"{name}.md")
        self._cluster = directory / "cluster"
        self._policy = directory / "no-policy.yaml"

    def apply(self, *objects: Json, policies: slice = slice(1), without_audit: bool = True) -> None:
        """Write policies of the page, by default the first, and objects of the cluster.

        The policies in the cluster have no `action`, as after the page's last step, unless
        `without_audit` is False.
        """
        self._cluster.mkdir(exist_ok=True)
        documents = self.page.policies[policies]
        _, file = self.page.command("check").arguments
        Path(file).write_text(yaml.safe_dump_all(documents, sort_keys=False))
        if without_audit:
            documents = [
                {**each, "spec": {k: v for k, v in each["spec"].items() if k != "action"}}
                for each in documents
            ]
        (self._cluster / file).write_text(yaml.safe_dump_all(documents, sort_keys=False))
        view = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        (self._cluster / "view.yaml").write_text(json.dumps(view))

    def admit(self, pod: Json) -> Admitted:
        """Review the creation of the pod, and apply the patch as the API server does."""
        source = ManifestsSource(self._cluster)
        source.refresh()
        assert not source.problems
        answer = admit_both_ways(json.dumps(review(pod)).encode(), source.view, SETTINGS)
        assert answer.error is None
        body: Json = json.loads(answer.body)
        assert body["response"]["allowed"] is True
        after = jsonpatch.apply_patch(pod, patch_of(body))
        reasons = {
            f"{o.remedy} {o.container}".strip(): str(o.reason) for o in answer.decision.outcomes
        }
        return Admitted(pod, after, reasons, body["response"].get("warnings", []))

    def run(self, *words: str, stdin: str | None = None) -> str:
        """Run the page's first command that begins with `words`, and return its output.

        The output must contain the lines that the page shows. The objects of the cluster stand for
        the cluster of the reader's kubeconfig.
        """
        typed = self.page.command(*words)
        arguments = [IMAGE if word == "IMAGE" else word for word in typed.arguments]
        env = {**os.environ, "PODSETTLE_MANIFESTS": str(self._cluster / "view.yaml")}
        done = podsettle(*arguments, stdin=stdin, env=env)
        assert done.returncode == 0, done.stderr
        printed = [line.rstrip() for line in done.stdout.splitlines()]
        # A line with only an ellipsis stands for omitted lines, one within a line for omitted text.
        shown = [line.rstrip() for line in typed.output if line.strip() != "…"]
        patterns = {line: ".*".join(map(re.escape, line.split("…"))) for line in shown}
        missing = [
            line
            for line, pattern in patterns.items()
            if not any(re.fullmatch(pattern, found) for found in printed)
        ]
        assert missing == []
        return done.stdout

    def preview(self, pod: Json) -> None:
        """Run the commands that the page recommends before the policy is applied."""
        self.run("check")
        assert self.page.command("preview").output
        self.run("preview", stdin=json.dumps(pod))


def containers(pod: Json, kind: str = "initContainers") -> dict[str, Any]:
    """Return the containers of a pod by name."""
    return {container["name"]: container for container in pod["spec"].get(kind, ())}


def of_kind(kind: str, document: Json) -> Json:
    """Return the document with its apiVersion and kind."""
    versions = {"RuntimeClass": "node.k8s.io/v1"}
    return {"apiVersion": versions.get(kind, "v1"), "kind": kind, **document}
