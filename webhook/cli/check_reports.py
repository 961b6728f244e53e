"""The problems of manifests in the formats that pipelines read: SARIF 2.1.0 and JUnit XML."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote
from xml.etree import ElementTree

from webhook import __version__
from webhook.core.policy.validation_errors import ManifestProblem
from webhook.core.printable import printable

_RULE = "invalid-manifest"


def as_sarif(problems: Iterable[ManifestProblem]) -> dict[str, Any]:
    """Return a log of SARIF 2.1.0, which code scanning of GitHub and GitLab shows."""
    rule = {
        "id": _RULE,
        "shortDescription": {"text": "A manifest that podsettle cannot use as it stands."},
    }
    driver = {"name": "podsettle", "version": __version__, "rules": [rule]}
    return {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": list(map(_sarif_result, problems))}],
    }


def _sarif_result(problem: ManifestProblem) -> dict[str, Any]:
    physical: dict[str, Any] = {"artifactLocation": {"uri": _uri(problem.source)}}
    if problem.line:
        physical["region"] = {"startLine": problem.line}
    location: dict[str, Any] = {"physicalLocation": physical}
    if problem.path:
        location["logicalLocations"] = [{"fullyQualifiedName": problem.path}]
    return {
        "ruleId": _RULE,
        "level": "error",
        "message": {"text": _text(problem)},
        "locations": [location],
    }


def _uri(source: str) -> str:
    """Return a file as a URI. A relative path stays relative, to the root of the repository."""
    path = Path(source)
    return path.as_uri() if path.is_absolute() else quote(path.as_posix())


def as_junit(problems: Sequence[ManifestProblem], sources: Iterable[str]) -> str:
    """Return JUnit XML with a test for each text, which fails if the text has a problem."""
    by_source: dict[str, list[ManifestProblem]] = {source: [] for source in sources}
    for problem in problems:
        by_source.setdefault(problem.source, []).append(problem)
    failures = sum(1 for found in by_source.values() if found)
    counts = {"tests": str(len(by_source)), "failures": str(failures)}
    root = ElementTree.Element("testsuites", counts)
    suite = ElementTree.SubElement(root, "testsuite", {"name": "podsettle check", **counts})
    for source, found in by_source.items():
        # XML 1.0 cannot hold control characters, not even as references.
        case = {"name": printable(source), "classname": "podsettle check"}
        test = ElementTree.SubElement(suite, "testcase", case)
        if found:
            message = f"{len(found)} problems" if len(found) > 1 else printable(_text(found[0]))
            failure = ElementTree.SubElement(test, "failure", {"message": message})
            failure.text = "\n".join(printable(str(problem)) for problem in found)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _text(problem: ManifestProblem) -> str:
    return ": ".join(filter(None, (problem.path, problem.message)))
