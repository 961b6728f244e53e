"""The documents in the files and directories that a command gets."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from webhook.cluster.manifest_loader import SUFFIXES, ManifestsError, manifest_files
from webhook.core.preview.document import Document, DocumentError
from webhook.core.preview.yaml_documents import load_documents


def read_documents(paths: Iterable[Path]) -> tuple[list[Document], list[str]]:
    """Return the documents of all readable files, and the errors of all other files."""
    documents: list[Document] = []
    errors: list[str] = []
    for path in paths:
        try:
            files = manifest_files(path) if path.is_dir() else [path]
        except ManifestsError as error:
            errors.append(str(error))
            continue
        if not files:
            errors.append(f"{path}: contains no file that ends in {', '.join(SUFFIXES)}")
        for file in files:
            try:
                name, text = _read_name_and_bytes(file)
                documents += load_documents(text, name)
            except OSError as error:
                errors.append(f"{file}: {error.strerror}")
            except DocumentError as error:
                errors.append(str(error))
    return documents, errors


def _read_name_and_bytes(file: Path) -> tuple[str, bytes]:
    """Return a name for messages and the content of a file. `-` is standard input."""
    if str(file) == "-":
        return "stdin", sys.stdin.buffer.read()
    return str(file), file.read_bytes()
