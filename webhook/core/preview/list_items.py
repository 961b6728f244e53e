"""The objects of a document: those in its lists, or the document itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from webhook.core.preview.document import ValuePath


def find_objects(document: object, steps: ValuePath = ()) -> Iterator[tuple[object, ValuePath]]:
    """Yield the objects of a document in their order, each with its path.

    A list without items yields nothing. A List whose `items` are no list is yielded itself, because
    it cannot be read.
    """
    if isinstance(document, Mapping):
        kind, items = document.get("kind"), document.get("items")
        if kind == "List" and items is None:
            return
        if isinstance(items, list) and isinstance(kind, str) and kind.endswith("List"):
            inner_kind = kind.removesuffix("List")
            for index, item in enumerate(items):
                if isinstance(item, Mapping) and inner_kind and "kind" not in item:
                    # Items of a typed list, such as a PodList, omit their kind.
                    item = {"apiVersion": document.get("apiVersion"), "kind": inner_kind, **item}
                yield from find_objects(item, (*steps, "items", index))
            return
    yield document, steps
