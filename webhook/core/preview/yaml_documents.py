"""A reader for YAML and JSON texts. Its documents contain the lines of their values.

Scalars and keys have the same meaning as for a Kubernetes client (`yaml_scalars`). Duplicate keys
are errors. The size of a document, its nesting and the copies that aliases make are bounded
(`yaml_composer`).
"""

from __future__ import annotations

import re
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterator
from itertools import islice

import msgspec
import yaml

from webhook.core.preview.document import Document, DocumentError, ValuePath
from webhook.core.preview.yaml_composer import TOO_DEEP, CopyBudget, DocumentReader

_MAX_DIRECTIVES = 16
"""The maximum number of lines that begin with `%`. libyaml compares each `%TAG` directive with all
earlier ones."""
_DIRECTIVE = re.compile("(?:^|[\\n\\r\\x85\\u2028\\u2029])%")
SEVERAL_DOCUMENTS = (
    "another document begins, without a line `---` before it; of JSON lines, `jq -s "
    """'{apiVersion: "v1", kind: "List", items: .}'` makes one document"""
)
_NO_YAML_CHARACTER = re.compile("[\x7f-\x9f\ufffe\uffff]")
_SURROGATES = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}")


def load_documents(text: str | bytes, source: str) -> list[Document]:
    """Return every non-empty document in a text.

    `source` names the text in errors. Raises DocumentError.
    """
    return [document for document, _ in iterate_items(text, source, by_item=False)]


def iterate_items(
    text: str | bytes, source: str, *, by_item: bool = True
) -> Iterator[tuple[Document, ValuePath]]:
    """Yield each item of a list as soon as it is read, with its path, and every other document.

    The list may be of any length, because the limit for the number of values holds for each item.
    What remains of the list is yielded as a document at its end. Items without a kind may remain
    in it, because the kind of the list says theirs. Without `by_item`, every document is yielded
    whole. Raises DocumentError, possibly after some items.
    """
    try:
        decoded = _decode(text, source)
        if len(list(islice(_DIRECTIVE.finditer(decoded), _MAX_DIRECTIVES + 1))) > _MAX_DIRECTIVES:
            raise DocumentError(source, 0, f"more than {_MAX_DIRECTIVES} lines begin with '%'")
        events, copies = yaml.parse(decoded, Loader=yaml.CSafeLoader), CopyBudget()
        for event in events:
            if not isinstance(event, yaml.DocumentStartEvent):
                continue
            reader = DocumentReader(events, source, copies)
            try:
                for document, path in reader.read(by_item=by_item):
                    if document.value is not None or path:
                        yield document, path
            except ValueError as error:
                raise DocumentError(source, reader.line, str(error)) from None
    except UnicodeDecodeError as error:
        raise DocumentError(source, 0, f"not YAML: not UTF-8 text ({error.reason})") from None
    except yaml.YAMLError as error:
        raise _parse_error(error, source) from None


def in_utf8(text: bytes, source: str) -> bytes:
    """Return a text in UTF-8 without a byte order mark. Raises DocumentError.

    PowerShell writes files in UTF-16 with such a mark, and kubectl reads them (k8s.io/cli-runtime
    `pkg/resource/visitor.go`).
    """
    if text.startswith(b"\x1f\x8b"):
        raise DocumentError(source, 0, "compressed by gzip; unpack it first")
    if text.startswith((BOM_UTF16_BE, BOM_UTF16_LE)):
        try:
            text = text.decode("utf-16").encode()
        except UnicodeDecodeError as error:
            raise DocumentError(source, 0, f"not UTF-16 text ({error.reason})") from None
    return text.removeprefix(BOM_UTF8)


def _decode(text: str | bytes, source: str) -> str:
    decoded = in_utf8(text, source).decode() if isinstance(text, bytes) else text
    # Where files with a mark were joined, kubectl skips it, too.
    decoded = decoded.replace("\n\ufeff", "\n")
    # JSON escapes characters beyond 16 bits as surrogate pairs, which libyaml refuses, and need not
    # escape some that it refuses. Texts that do not begin as JSON stay unchanged, because YAML
    # strings without double quotes have no escapes.
    if decoded.lstrip()[:1] in ("{", "[", '"'):
        decoded = _SURROGATES.sub(lambda pair: str(msgspec.json.decode(f'"{pair[0]}"')), decoded)
        decoded = _NO_YAML_CHARACTER.sub(lambda found: f"\\u{ord(found[0]):04x}", decoded)
    return decoded


def _parse_error(error: yaml.YAMLError, source: str) -> DocumentError:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error)
    if problem == "did not find expected <document start>":
        problem = SEVERAL_DOCUMENTS
    context = getattr(error, "context", None)
    message = f"not YAML: {problem}" + (f" ({context})" if context else "")
    if problem == "exceeded maximum nesting depth":  # libyaml has a limit of its own, of 1,000.
        message = TOO_DEEP
    return DocumentError(source, mark.line + 1 if mark else 0, message)
