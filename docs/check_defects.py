"""The check of the catalogue of defects. `make defects` runs it.

It checks `webhook/core/defects/*.yaml` against the model in `webhook.core.defects.defect`. Its
errors have the file, the line and the key. `webhook.core.defects.catalogue`, which loads the files
for the product, knows no lines.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from webhook.core.defects.defect import Defect
from webhook.core.json_path import json_path
from webhook.core.policy.validation_errors import ManifestProblem, field_error
from webhook.core.preview.document import Document, DocumentError, ValuePath
from webhook.core.preview.yaml_documents import load_documents

ROOT = Path(__file__).parent.parent
SOURCES = ROOT / "webhook" / "core" / "defects"


class CatalogueError(Exception):
    """Raised for files that are no catalogue. Holds every problem in them."""

    def __init__(self, problems: Iterable[ManifestProblem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))


class DefectFile(NamedTuple):
    """A checked file: its document, which knows the lines, and the defect that it describes."""

    document: Document
    defect: Defect

    def problem(self, path: ValuePath, message: str) -> ManifestProblem:
        """Return a problem with the value at a path."""
        return _problem(self.document, path, message)


def read_files(paths: Iterable[Path]) -> tuple[DefectFile, ...]:
    """Return the checked files, in their order. Raise CatalogueError with all problems."""
    files: list[DefectFile] = []
    problems: list[ManifestProblem] = []
    for path in paths:
        source = str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)
        try:
            files.append(parse_file(path.read_bytes(), source))
        except CatalogueError as error:
            problems += error.problems
    if problems:
        raise CatalogueError(problems)
    return tuple(files)


def parse_file(text: bytes, source: str) -> DefectFile:
    """Return the checked file with a YAML text. `source` is the file's path, also for problems.

    Raises CatalogueError, whose problems have the line and the key.
    """
    try:
        documents = load_documents(text, source)
    except DocumentError as error:
        raise CatalogueError([ManifestProblem(source, error.line, error.message)]) from None
    if len(documents) != 1:
        message = f"has {len(documents)} documents; a file describes one defect"
        raise CatalogueError([ManifestProblem(source, 0, message)])
    (document,) = documents
    try:
        file = DefectFile(document, Defect.model_validate(document.value))
    except ValidationError as error:
        found = [field_error(detail, Defect) for detail in error.errors(include_url=False)]
        raise CatalogueError(
            _problem(document, each.path, each.message) for each in found
        ) from None
    defect = file.defect
    if Path(source).stem != defect.id:
        message = f"is {defect.id!r}, so the file has to be {defect.id}.yaml"
        raise CatalogueError([file.problem(("id",), message)])
    if defect.page is not None and not (ROOT / "docs" / defect.page).is_file():
        raise CatalogueError([file.problem(("page",), f"docs/{defect.page} does not exist")])
    return file


def check_remedies(files: Iterable[DefectFile], known: Collection[str]) -> None:
    """Check that each remedy of the files is known. Raise CatalogueError with all problems."""
    problems = [
        file.problem(("remedies", index), f"{remedy!r} is no remedy; {_suggestion(remedy, known)}")
        for file in files
        for index, remedy in enumerate(file.defect.remedies)
        if remedy not in known
    ]
    if problems:
        raise CatalogueError(problems)


def _suggestion(remedy: str, known: Collection[str]) -> str:
    close = difflib.get_close_matches(remedy, known, n=1)
    return f"did you mean {close[0]}?" if close else f"known are {', '.join(sorted(known))}"


def _problem(document: Document, path: ValuePath, message: str) -> ManifestProblem:
    return ManifestProblem(document.source, document.line(path), message, json_path(path))


def files() -> tuple[DefectFile, ...]:
    """Return the files of the catalogue. Raise CatalogueError."""
    return read_files(sorted(SOURCES.glob("*.yaml")))


def check_defects() -> None:
    """Check the files of the catalogue, and the names of remedies in them. Raise CatalogueError."""
    found = files()
    # The policies import the catalogue, which cannot be loaded before the files fit the model.
    from webhook.core.policy.model import Remedies

    known = {field.alias or name for name, field in Remedies.model_fields.items()}
    check_remedies(found, known)


if __name__ == "__main__":
    try:
        check_defects()
    except CatalogueError as error:
        sys.exit(str(error))
