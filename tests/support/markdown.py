"""The documentation's pages, as their readers use them: policies to apply, commands to type."""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import click
import yaml

from tests.support.factories import is_policy
from tests.support.paths import DOCS, ROOT
from webhook.cli import main
from webhook.core.policy.model import SettlePolicySpec

ALL = [
    *sorted(ROOT.glob("*.md")),
    ROOT / "charts" / "podsettle" / "README.md",
    *sorted(DOCS.rglob("*.md")),
]

_FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_HEREDOC = re.compile(r"<<-?'?EOF'?\n(.*?)^ *EOF$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`(?:timeout \S+ )?((?:podsettle|kubectl settle) [a-z][^`\n]*)`")
_PLACEHOLDER = re.compile(r"^(?:[A-Z]+|\$\w+)$")
_OPERATOR = re.compile(r"[();<>|&]+")
_BEFORE_COMMANDS = {"if", "then", "else", "do", "!"}
_FRAGMENTS = {field.alias or name for name, field in SettlePolicySpec.model_fields.items()}


class Block(NamedTuple):
    """What stands between two fences."""

    language: str
    text: str


class Typed(NamedTuple):
    """A podsettle command as a page has it, and what the page says that it prints."""

    arguments: tuple[str, ...]
    output: tuple[str, ...] = ()
    whole: bool = True
    """False where the page only mentions it, perhaps without all that it takes."""

    def __str__(self) -> str:
        return shlex.join(("podsettle", *self.arguments))


@dataclass(frozen=True)
class Page:
    """A page in Markdown."""

    path: Path

    @cached_property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def sections(self) -> dict[str, str]:
        """The text under each heading of the second level."""
        parts = re.split(r"^## (.+)$", self.text, flags=re.MULTILINE)[1:]
        return dict(zip(parts[::2], parts[1::2], strict=True))

    @cached_property
    def anchors(self) -> set[str]:
        """What links may name behind a `#`, as GitHub makes it of headings."""
        prose = _FENCE.sub("", self.text)
        headings = re.findall(r"^#+ (.+)$", prose, re.MULTILINE)
        return set(map(_anchor, headings))

    @cached_property
    def links(self) -> list[tuple[str, str]]:
        """Targets within the repository: a path, perhaps empty, and an anchor, perhaps empty."""
        prose = _FENCE.sub("", self.text)
        found = re.findall(r"\]\(([^)#\s]*)(?:#([^)]*))?\)", prose)
        return [(path, anchor) for path, anchor in found if "://" not in path]

    @cached_property
    def blocks(self) -> list[Block]:
        return blocks_of(self.text)

    def section(self, anchor: str) -> str:
        """The text under the heading that a link names behind a `#`, up to the next heading."""
        parts = re.split(r"^##+ (.+)$", self.text, flags=re.MULTILINE)[1:]
        found = dict(zip(map(_anchor, parts[::2]), parts[1::2], strict=True))
        return found[anchor]

    @cached_property
    def policies(self) -> list[dict[str, Any]]:
        """The SettlePolicies that it shows whole."""
        texts = [block.text for block in self.blocks if block.language == "yaml"]
        texts += [text for block in self.blocks for text in _HEREDOC.findall(block.text)]
        texts = [text for text in texts if "kind: SettlePolicy" in text]
        documents = [document for text in texts for document in yaml.safe_load_all(text)]
        return [document for document in documents if is_policy(document)]

    @cached_property
    def fragments(self) -> list[dict[str, Any]]:
        """The parts of a policy's `spec` that it shows alone."""
        texts = [block.text for block in self.blocks if block.language == "yaml"]
        documents = [list(yaml.safe_load_all(text)) for text in texts]
        return [
            only
            for only, *others in documents
            if not others and isinstance(only, dict) and only.keys() <= _FRAGMENTS
        ]

    @cached_property
    def commands(self) -> list[Typed]:
        """Every podsettle command that it tells to type, and those that it mentions."""
        found = [typed for block in self.blocks for typed in commands_of(block)]
        prose = _FENCE.sub("", self.text)
        mentioned = (shlex.split(text.replace("…", "")) for text in _INLINE.findall(prose))
        return found + [Typed(tuple(_arguments(words)), whole=False) for words in mentioned]

    def command(self, *words: str) -> Typed:
        """The first command that begins so."""
        return next(c for c in self.commands if c.whole and c.arguments[: len(words)] == words)


def blocks_of(text: str) -> list[Block]:
    """The blocks of a page or of a part of it."""
    return [
        Block(language, textwrap.dedent(indent + code).rstrip("\n") + "\n")
        for indent, language, code in _FENCE.findall(text)
    ]


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def parse(typed: Typed) -> None:
    """Parse a command's arguments as the command line does. Raises click.UsageError."""
    # What stands for a name is a name: POD, IMAGE, $pod.
    arguments = [_PLACEHOLDER.sub("x", word) for word in typed.arguments]
    command: click.Command = main
    context = click.Context(command, info_name="podsettle", **main.context_settings)
    while isinstance(command, click.Group) and arguments:
        name = arguments.pop(0)
        found = command.get_command(context, name)
        if found is None:
            raise click.UsageError(f"there is no command {name!r}")
        command = found
    try:
        command.make_context(command.name, arguments, parent=context)
    except (click.MissingParameter, click.exceptions.NoArgsIsHelpError):
        if typed.whole:
            raise


def commands_of(block: Block) -> Iterator[Typed]:
    lines = block.text.replace("\\\n", " ").split("\n")
    if block.language == "console":
        for index, line in enumerate(lines):
            if line.startswith("$ "):
                rest = lines[index + 1 : -1]
                end = next((n for n, text in enumerate(rest) if text.startswith("$ ")), len(rest))
                yield from _typed(line[2:], tuple(rest[:end]))
    elif block.language == "sh":
        for line in lines:
            yield from _typed(line)
    elif block.language == "yaml":
        for line in re.findall(r"^ *- (.*podsettle .*)$", block.text, re.MULTILINE):
            yield from _typed(line)


def _typed(line: str, output: tuple[str, ...] = ()) -> Iterator[Typed]:
    if not re.search(r"\bpodsettle |\bkubectl settle ", line):
        return
    # A synopsis: what is in brackets may be typed, of alternatives the first.
    line = re.sub(r"\[(-[^\]]*)\]", lambda found: found[1].partition("|")[0], line)
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words: list[str] = []
    for word in (*lexer, ";"):
        if _OPERATOR.fullmatch(word) or (not words and word in _BEFORE_COMMANDS):
            if words[:1] == ["podsettle"] or words[:2] == ["kubectl", "settle"]:
                last = word in (";", "|")
                yield Typed(tuple(_arguments(words)), output if last else ())
            words = []
        else:
            words.append(word)


def _arguments(words: list[str]) -> list[str]:
    return words[2:] if words[0] == "kubectl" else words[1:]
