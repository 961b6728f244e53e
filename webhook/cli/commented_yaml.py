"""YAML for people and for `kubectl apply`: objects after a comment."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from typing import Any

import yaml

from webhook.core.kubectl_yaml import KubectlDumper

_WIDTH = 98


def as_comment(paragraphs: Iterable[str]) -> str:
    """Return paragraphs and items of lists as a comment. A paragraph with line breaks is a file."""
    lines: list[str] = []
    for paragraph in paragraphs:
        # A file stays as it is. Commands and paths stay whole, so that they can be copied.
        lines += (
            paragraph.splitlines()
            if "\n" in paragraph
            else textwrap.wrap(
                paragraph,
                _WIDTH,
                subsequent_indent="  " if paragraph.startswith("- ") else "",
                break_on_hyphens=False,
                break_long_words=False,
            )
        ) or [""]
    return "".join(f"# {line}".rstrip() + "\n" for line in lines)


class _Dumper(KubectlDumper):
    """A dumper that writes texts of several lines as blocks, which people can read."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style)


_Dumper.add_representer(str, _represent_text)


def objects_yaml(objects: Iterable[Any], *, explicit_start: bool = False) -> str:
    """Return objects as documents in YAML. `explicit_start` puts a line `---` before the first."""
    text: str = yaml.dump_all(
        objects, Dumper=_Dumper, sort_keys=False, width=1000, explicit_start=explicit_start
    )
    return text
