"""The command lines of a page, and the files that they read, in the order of the page."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from tests.support.markdown import Page
from tests.support.paths import EXAMPLES

_POLICIES = (EXAMPLES / "policies.yaml").read_text()
_READERS_OWN = {
    "pod.yaml": """\
apiVersion: v1
kind: Pod
metadata: {name: own}
spec: {containers: [{name: c, image: registry.example/app:1, command: [sh, -c, "true"]}]}
""",
    "policies.yaml": _POLICIES,
    "policy.yaml": _POLICIES,
    "node.toml": """\
[crio.runtime]
default_runtime = "crun"
[crio.runtime.runtimes.crun]
runtime_path = "/usr/libexec/crio/crun"
monitor_path = "/usr/libexec/crio/conmon"
""",
}
"""Files of the reader that pages name without showing them."""
_OPERATOR = re.compile(r"[();<>|&]+")
_FILE_BEFORE_BLOCK = re.compile(
    r"`([\w-]+\.yaml)`(?:(?!\.yaml`).)*?^```yaml\n(.*?)^```$", re.MULTILINE | re.DOTALL
)
_KEYWORDS = {"if", "then", "else", "fi", "for", "do", "done", "while", "!"}


def write_files(page: Page, directory: Path) -> None:
    """Write the policies that the page says to save, the reader's own files, and examples/."""
    (directory / "examples").symlink_to(EXAMPLES)
    for name, text in _READERS_OWN.items():
        (directory / name).write_text(text)
    for name, text in _FILE_BEFORE_BLOCK.findall(page.text):
        if "kind: SettlePolicy" in text:
            (directory / name).write_text(text)


def shell_texts(page: Page) -> Iterator[str]:
    """Yield each command line of a console, and each script."""
    for block in page.blocks:
        if block.language == "console":
            lines = block.text.replace("\\\n", " ").splitlines()
            yield from (line[2:] for line in lines if line.startswith("$ "))
        elif block.language == "sh":
            yield block.text


def commands_of_script(text: str) -> list[str]:
    """Return the commands of a script, without the documents that they read. A pipe is one."""
    whole = re.sub(r"^(.*<<'?EOF'?)\n.*?^EOF$", r"\1", text, flags=re.MULTILINE | re.DOTALL)
    return whole.replace("\\\n", "").splitlines()


def programs_of(text: str) -> set[str]:
    """Return the names of the programs that a command line or a script runs."""
    found: set[str] = set()
    for line in text.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        is_first, is_file = True, False
        for word in lexer:
            if _OPERATOR.fullmatch(word):
                is_file = word in (">", ">>", "<")
                is_first = is_first or not is_file
            elif is_file:
                is_file = False
            elif is_first and word not in _KEYWORDS and not re.match(r"\w+=", word):
                found.add(word)
                is_first = False
    return found
