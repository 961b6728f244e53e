"""YAML and JSON text as documents that remember their lines.

Scalars and keys read as a Kubernetes client reads them (`goyaml.v2/resolve.go` and `yaml.go` in
kubernetes-sigs/yaml), not as YAML 1.1 would have it: a date is a string and so is `1:30`. A key
that stands twice is an error, aliases cannot be used to blow up a document, and nesting is bounded.

The parser's events are put together here, without recursion: PyYAML's own composer overflows the
stack in C on deep nesting, which takes the process with it. Time and memory are in proportion to
the text, whatever its nesting: an anchor's size is counted while it is read, and what aliases and
merge keys copy is bounded for the whole text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import islice

import msgspec
import yaml

from webhook.core.preview.document import Document, DocumentError
from webhook.core.preview.yaml_builder import CopyBudget, DocumentBuilder

_MAX_DIRECTIVES = 16
"""Lines that begin with `%`. libyaml compares each `%TAG` with all before it."""
_DIRECTIVE = re.compile("(?:^|[\\n\\r\\x85\\u2028\\u2029])%")
_SURROGATES = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}")


def load_documents(text: str | bytes, source: str) -> list[Document]:
    """Every document in the text that is not empty; `source` names it in errors.

    Raises DocumentError.
    """
    return list(each_document(text, source))


def each_document(text: str | bytes, source: str) -> Iterator[Document]:
    """The same one by one, as each is read: thousands at once are many times what is kept of them.

    Raises DocumentError, perhaps after some documents.
    """
    try:
        decoded = _decode(text)
        if len(list(islice(_DIRECTIVE.finditer(decoded), _MAX_DIRECTIVES + 1))) > _MAX_DIRECTIVES:
            raise DocumentError(source, 0, f"more than {_MAX_DIRECTIVES} lines begin with '%'")
        events = yaml.parse(decoded, Loader=yaml.CSafeLoader)
        yield from (found for found in _build_documents(events, source) if found.value is not None)
    except UnicodeDecodeError as error:
        raise DocumentError(source, 0, f"not YAML: not UTF-8 text ({error.reason})") from None
    except yaml.YAMLError as error:
        raise _parse_error(error, source) from None


def _decode(text: str | bytes) -> str:
    decoded = text.decode() if isinstance(text, bytes) else text
    # Only JSON: a YAML string without double quotes has no escapes.
    if decoded.lstrip()[:1] in ("{", "[", '"') and _SURROGATES.search(decoded):
        # JSON writes characters beyond 16 bits in two halves, which libyaml takes for nonsense.
        decoded = _SURROGATES.sub(lambda pair: str(msgspec.json.decode(f'"{pair[0]}"')), decoded)
    return decoded


def _build_documents(events: Iterable[yaml.Event], source: str) -> Iterator[Document]:
    copies = CopyBudget()
    builder = DocumentBuilder(source, copies)
    for event in events:
        if isinstance(event, yaml.DocumentStartEvent):
            builder = DocumentBuilder(source, copies)
        elif isinstance(event, yaml.DocumentEndEvent):
            yield Document(builder.root, source, builder.lines)
        elif isinstance(event, yaml.NodeEvent | yaml.CollectionEndEvent):
            builder.feed(event)


def _parse_error(error: yaml.YAMLError, source: str) -> DocumentError:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error)
    context = getattr(error, "context", None)
    message = f"not YAML: {problem}" + (f" ({context})" if context else "")
    return DocumentError(source, mark.line + 1 if mark else 0, message)
