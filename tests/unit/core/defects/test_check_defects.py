"""Tests of the check of the catalogue: its errors name the file, the line and the key."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from docs.check_defects import CatalogueError, check_remedies, parse_file, read_files
from tests.support.defects import defect_document, entry
from tests.support.paths import ROOT

Json = dict[str, Any]


def document() -> Json:
    return defect_document(entry("1.33.13", "1.34.9", newest="1.36.0"))


def text(content: Json) -> bytes:
    return yaml.safe_dump(content, sort_keys=False).encode()


def messages(content: bytes, source: str = "made-up.yaml") -> list[str]:
    with pytest.raises(CatalogueError) as caught:
        parse_file(content, source)
    return [str(problem) for problem in caught.value.problems]


def put(*path: str | int, value: object) -> Callable[[Json], None]:
    """Return a change that sets the value at a path."""

    def change(content: Any) -> None:
        for step in path[:-1]:
            content = content[step]
        content[path[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (put("titel", value="x"), ": titel: unknown key; did you mean title?"),
        (put("affected", 0, "fixd", value=[]), ": affected[0].fixd: unknown key; did you mean fix"),
        (put("title", value=""), ": title: '' is not text"),
        (put("title", value=7), ": title: is a number, should be a string"),
        (put("component", value="crio"), ": component: is 'crio'; it can be 'cri-o', "),
        (
            put("affected", 0, "fixed", 1, "release", value="1.34"),
            ": affected[0].fixed[1].release: '1.34' is not a release: write it with three numbers",
        ),
        (
            put("affected", 0, "fixed", 1, "release", value="1.32.1"),
            ": affected[0].fixed: the minor lines are not in ascending order",
        ),
        (
            put("affected", 0, "newest", value=1.36),
            ": affected[0].newest: 1.36 is not a release: write it with three numbers",
        ),
        (
            put("links", 0, value="http://example.org"),
            ": links[0]: 'http://example.org' is not a link: write it with https://",
        ),
        (
            put("evidence", 0, "date", value="November"),
            ": evidence[0].date: 'November' is not a date: write it as 2026-11-21",
        ),
        (put("evidence", value=[]), ": evidence: is empty; it takes at least one"),
        (put("id", value="Made Up"), ": id: 'Made Up' is not a name such as cri-o-9840"),
        (put("id", value="other"), ": id: is 'other', so the file has to be other.yaml"),
        (put("page", value="nowhere.md"), ": page: docs/nowhere.md does not exist"),
    ],
)  # fmt: skip
def test_error_names_the_file_the_line_and_the_key(
    change: Callable[[Json], None], expected: str
) -> None:
    content = document()
    change(content)
    (found,) = messages(text(content))
    where, _, rest = found.partition(":")
    line, _, message = rest.partition(":")
    assert where == "made-up.yaml"
    assert int(line) > 0
    assert f":{message}".startswith(expected)


def test_line_in_an_error_is_the_line_of_the_value() -> None:
    lines = text(document()).decode().splitlines()
    number = next(n for n, line in enumerate(lines, start=1) if "1.34.9" in line)
    changed = "\n".join(lines).replace("1.34.9", "1.34").encode()
    assert messages(changed)[0].startswith(f"made-up.yaml:{number}: affected[0].fixed[1].release:")


def test_error_in_contributing_is_the_one_of_that_file() -> None:
    source = "webhook/core/defects/cri-o-9840.yaml"
    changed = (ROOT / source).read_text(encoding="utf-8").replace(": 1.34.9", ': "1.34"')
    (message,) = messages(changed.encode(), source)
    assert f"\n{message}\n" in (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def test_missing_key_is_named() -> None:
    content = document()
    del content["cause"], content["advice"]
    assert [found.split(": ", 1)[1] for found in messages(text(content))] == [
        "cause: is missing",
        "advice: is missing",
    ]


def test_text_that_is_not_one_yaml_document_is_refused() -> None:
    assert messages(b"a: [")[0].startswith("made-up.yaml:2: not YAML:")
    assert messages(b"") == ["made-up.yaml: has 0 documents; a file describes one defect"]
    two = text(document()) + b"---\n" + text(document())
    assert messages(two) == ["made-up.yaml: has 2 documents; a file describes one defect"]


def test_unknown_remedy_is_refused_with_the_line_and_a_suggestion() -> None:
    content = document()
    content["remedies"] = ["postInitSleep", "postInitSlep"]
    file = parse_file(text(content), "made-up.yaml")
    with pytest.raises(CatalogueError) as caught:
        check_remedies([file], {"postInitSleep", "kubeletGate"})
    lines = text(content).decode().splitlines()
    number = lines.index("- postInitSlep") + 1
    assert str(caught.value) == (
        f"made-up.yaml:{number}: remedies[1]: 'postInitSlep' is no remedy; "
        "did you mean postInitSleep?"
    )
    check_remedies([file], {"postInitSleep", "postInitSlep"})


def test_problems_of_all_files_are_reported(tmp_path: Path) -> None:
    for name in ("first", "second"):
        content = document()
        content["id"] = name
        content["title"] = 7
        (tmp_path / f"{name}.yaml").write_bytes(text(content))
    with pytest.raises(CatalogueError) as caught:
        read_files(sorted(tmp_path.glob("*.yaml")))
    assert [Path(problem.source).name for problem in caught.value.problems] == [
        "first.yaml",
        "second.yaml",
    ]
