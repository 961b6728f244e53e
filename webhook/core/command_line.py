"""A container's command line: its `command` and its `args`, as one list of strings.

The facts of a pod omit arguments, because they differ between pods of one template. These functions
find in them what a decision needs all the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from webhook.core.constants import HELPER_IN_IMAGE, HELPER_PATH, SCRIPT_MARKER, SCRIPT_NAME

_PLACE_OF_NAME = 3
"""The index of SCRIPT_NAME in a wrapper of a shell, in every version: after the script."""

_BETWEEN = r"[\s\"'\\,]"
"""What stands between two strings of a command line in a text: for a shell, or in JSON."""
_find_helper, _find_script_end = (
    re.compile(pattern, re.ASCII).search
    for pattern in (
        # `re` finds a pattern quickly that begins with plain text.
        rf"{HELPER_PATH}(?<![\w./-]{HELPER_PATH}){_BETWEEN}{{1,16}}--",
        rf"{SCRIPT_NAME}(?<={_BETWEEN}{SCRIPT_NAME}){_BETWEEN}{{1,16}}"
        rf"([\d.]{{1,16}}){_BETWEEN}{{1,16}}([\d.]{{1,16}})",
    )
)
_find_own = re.compile(
    rf"{HELPER_IN_IMAGE}(?<![\w./-]{HELPER_IN_IMAGE})(?![\w./-])", re.ASCII
).search
_find_words = re.compile(r"[^\s\"'\\]+", re.ASCII).findall
_MAX_SEARCHED_CHARACTERS, _MAX_SPLIT_CHARACTERS = 256 * 1024, 8 * 1024
"""The number of characters of a container's texts that are searched, because a client may send
megabytes, and of one text that are split. A script of podsettle has a fifth of these."""
_ESCAPES = (("\\n", "\n"), ("\\u0026", "&"), ("\\u003c", "<"), ("\\u003e", ">"))

_QUOTES, _SEPARATOR = r"[\"'\\]{0,8}", r"[\s,]{1,16}"
_SCRIPT_END = (
    rf"{_BETWEEN}{SCRIPT_NAME}(?:{_BETWEEN}{{1,16}}[\d.]{{1,16}}){{2}}{_QUOTES}{_SEPARATOR}"
)
_remove_script, _remove_options = (
    re.compile(pattern, re.ASCII | re.DOTALL).sub
    for pattern in (
        # With the shell that runs the script. Webhooks that join a command leave it out at times.
        rf"(?:(?P<quote>{_QUOTES})[\w./-]{{0,32}}sh(?P=quote){_SEPARATOR}(?P=quote)-c(?P=quote)"
        # Not past a second marker: else each of many markers would be searched to the limit.
        rf"{_SEPARATOR})?{_QUOTES}{SCRIPT_MARKER}(?:(?!{SCRIPT_MARKER}).)"
        rf"{{0,{_MAX_SPLIT_CHARACTERS}}}?{_SCRIPT_END}",
        # Possessive, and not past a second path, for the same reason.
        rf"(?P<quote>{_QUOTES}){HELPER_PATH}"
        rf"(?:{_BETWEEN}{{1,16}}+(?!{HELPER_PATH})[^\s\"'\\,]{{1,64}}+){{0,16}}?"
        rf"{_BETWEEN}{{1,16}}--(?P=quote){_SEPARATOR}",
    )
)

# Background commands of a POSIX shell ignore INT and QUIT. In the line of a trap, dash, BusyBox and
# bash also take small letters and numbers.
_find_trap, _find_name, _find_signal = (
    re.compile(pattern, re.ASCII).search
    for pattern in (
        r"\btrap[ \t\"'\\]",
        r"\b(SIG)?(INT|QUIT)\b",
        r"[ \t\"']((?i:(SIG)?(INT|QUIT)\b)|0*[23]([\s;&|)}]|$))|'0*[23]'|\"0*[23]\"",
    )
)
_takes_variable = re.compile(r"[^;&|]*\$[\w@*{]", re.ASCII).match

INIT, SYSTEMD = "/init", "/systemd"
"""What the paths of programs end with that work only as process 1: s6-overlay and systemd."""
_INITS = frozenset(
    {INIT, "/sbin/init", "/usr/sbin/init", "/lib/systemd/systemd", "/usr/lib/systemd/systemd"}
)
_FILE_TOOLS = frozenset({"cat", "chmod", "chown", "cp", "install", "ln", "ls", "mkdir", "mv", "rm"})
"""Programs that execute none of their arguments. INIT can be a directory or a copy there."""
_find_exec_init = re.compile(
    r"(?:^|[\s;&|({])exec\s++(?:-\w++\s++)?[\"']?"
    rf"(?:{'|'.join(sorted(_INITS))})(?![\w./-])",
    re.ASCII,
).search

_MAX_SCRIPTS, _MAX_SCRIPT_CHARACTERS = 8, 32 * 1024
"""The number of scripts, and of characters of each, that are searched for traps or for INIT. A
client may send megabytes."""


def wrapper_index(strings: Sequence[str], start: int = 0) -> int | None:
    """Return the index from `start` on at which a wrapper of podsettle begins, or None.

    It is the helper's path before an option, or the shell of a script of podsettle.
    """
    indices = [
        index
        for index in (helper_index(strings, start), _shell_index(strings, start))
        if index is not None
    ]
    return min(indices, default=None)


def with_texts_split(strings: Sequence[str], *, mounts_helper: bool) -> Sequence[str]:
    """Return a command line in which a wrapper inside of a text is strings of its own.

    Another webhook may join a command into one text for a shell, such as `sh -c "exec
    /podsettle/linger --sleep 1s -- /a"` (Katib's `wrapWorkerContainer`), or write it as JSON. What
    precedes the wrapper in the text is left out. Without such a text, the result is `strings`.

    The helper counts only in a container that mounts it: a manifest, a comment or the pattern of a
    search can name it, too. A script of podsettle counts with its name and its two durations.
    """
    split: list[str] = []
    copied, unsearched = 0, _MAX_SEARCHED_CHARACTERS
    for index, text in enumerate(strings):
        if SCRIPT_NAME not in text or text in (HELPER_PATH, SCRIPT_NAME):
            continue
        unsearched -= len(text)
        if unsearched < 0:
            break
        is_script = strings[index + 1 : index + 2] == [SCRIPT_NAME]
        words = _wrapper_in_text(text, is_script=is_script, mounts_helper=mounts_helper)
        if words:
            split += [*strings[copied:index], *words]
            copied = index + 1
    return [*split, *strings[copied:]] if copied else strings


def _wrapper_in_text(text: str, *, is_script: bool, mounts_helper: bool) -> list[str]:
    """Return the strings of a text from podsettle's wrapper on. Empty if there is none."""
    text = _unescaped(text)
    helper = _find_helper(text) if mounts_helper and HELPER_PATH in text else None
    begin = text.find(SCRIPT_MARKER)
    if begin >= 0 and not (begin == 0 and is_script) and not (helper and helper.start() < begin):
        end = _find_script_end(text, begin, begin + _MAX_SPLIT_CHARACTERS)
        if end is not None:
            script = text[begin : end.start()].replace("\\", "")
            head, arguments, rest = script.rpartition('"$@')
            if arguments and not rest.strip("\"', \n"):
                script = f'{head}"$@"'  # Without the quotes of the text behind it.
            rest = text[end.end() : end.end() + _MAX_SPLIT_CHARACTERS]
            return ["sh", "-c", script, SCRIPT_NAME, *end.groups(), *_words(rest)]
    if helper is None:
        return []
    return _words(text[helper.start() : helper.start() + _MAX_SPLIT_CHARACTERS])


def without_wrappers(strings: Sequence[str], *, mounts_helper: bool) -> list[str]:
    """Return a command line without the wrappers of podsettle inside of its texts.

    The arguments are those of `with_texts_split`, and so is the number of characters searched.
    """
    kept, unsearched = [], _MAX_SEARCHED_CHARACTERS
    for text in strings:
        unsearched -= len(text)
        is_searched = unsearched >= 0 and SCRIPT_NAME in text
        kept.append(_without_wrapper(text, mounts_helper=mounts_helper) if is_searched else text)
    return kept


def _without_wrapper(text: str, *, mounts_helper: bool) -> str:
    if _wrapper_in_text(text, is_script=False, mounts_helper=mounts_helper):
        for each in (text, _unescaped(text)):  # A text without escapes stays as it was written.
            rest = _remove_script("", each)
            rest = _remove_options("", rest) if mounts_helper else rest
            if rest != each:
                return rest
    return text


def own_strings(strings: Sequence[str]) -> Sequence[str]:
    """Return the command line of an init container of podsettle.

    If another webhook has joined it into one text, the result has the words from the helper on.
    """
    if HELPER_IN_IMAGE in strings:
        return strings
    unsearched = _MAX_SEARCHED_CHARACTERS
    for text in strings:
        unsearched -= len(text)
        if unsearched < 0:
            break
        if HELPER_IN_IMAGE in text:
            text = _unescaped(text)
            if found := _find_own(text):
                return _words(text[found.start() : found.start() + _MAX_SPLIT_CHARACTERS])
    return strings


def _unescaped(text: str) -> str:
    """Return a text without the escapes of JSON, as Go writes it. Quotes keep their backslashes."""
    for escape, character in _ESCAPES:
        text = text.replace(escape, character)
    return text


def _words(text: str) -> list[str]:
    """Return the strings of a text without the brackets and commas of lists around them."""
    found = _find_words(text)
    words = [
        each.strip(",") if "[" in each and "]" in each else each.strip("[],") for each in found
    ]
    return [*filter(None, words)]


def helper_index(strings: Sequence[str], start: int = 0) -> int | None:
    """Return the index from `start` on of the helper's path before an option, or None.

    The path can also be an argument of another program.
    """
    while True:
        try:
            index = strings.index(HELPER_PATH, start)
        except ValueError:
            return None
        if strings[index + 1 : index + 2] and strings[index + 1].startswith("--"):
            return index
        start = index + 1


def _shell_index(strings: Sequence[str], start: int) -> int | None:
    from_name = start + _PLACE_OF_NAME
    while True:
        try:
            index = strings.index(SCRIPT_NAME, from_name)
        except ValueError:
            return None
        if strings[index - 1].startswith(SCRIPT_MARKER) and strings[index - 2] == "-c":
            return index - _PLACE_OF_NAME
        from_name = index + 1


def starts_init(strings: Sequence[str]) -> bool:
    """Return whether one of _INITS is one of the strings, or a shell's script executes it.

    The first string is the program. One such as vault-env of bank-vaults may execute its arguments.
    """
    if strings and strings[0].rpartition("/")[2] in _FILE_TOOLS:
        return False
    named = [text for text in strings if INIT in text or SYSTEMD in text]
    return not _INITS.isdisjoint(named) or any(
        _find_exec_init(text[:_MAX_SCRIPT_CHARACTERS]) for text in named[:_MAX_SCRIPTS]
    )


def traps_interrupt(strings: Iterable[str]) -> bool:
    """Return whether one of the strings looks like a shell script that traps INT or QUIT.

    Only the text is read: a trap in a file is not found. If a variable holds the signals of a trap,
    each number or name in the script counts.
    """
    scripts = [text for text in strings if "trap" in text]
    return bool(scripts) and any(
        _traps_interrupt(script[:_MAX_SCRIPT_CHARACTERS]) for script in scripts[:_MAX_SCRIPTS]
    )


def _traps_interrupt(script: str) -> bool:
    if _find_trap(script) is None:
        return False
    if _find_name(script) is not None:
        return True
    # One pattern for the whole line would look at it once for each trap in it, and a client may
    # write a megabyte of traps.
    open_quote, takes_variable = "", False
    for line in script.replace("\\\n", " ").split("\n"):
        if open_quote and open_quote in line:  # Behind the last line of what the trap runs.
            begin = line.index(open_quote) + 1
            open_quote = ""
        elif (trap := _find_trap(line)) is not None:
            begin = trap.end()
            quotes = [each for each in line[begin:] if each in "\"'"]
            open_quote = quotes[0] if quotes and quotes.count(quotes[0]) % 2 else ""
        else:
            continue
        if _find_signal(line, begin - 1) is not None:
            return True
        is_quoted = line[begin : begin + 1] in ("'", '"')
        action_end = line.find(line[begin], begin + 1) + 1 if is_quoted else begin
        takes_variable = takes_variable or _takes_variable(line, action_end) is not None
    return takes_variable and _find_signal(script) is not None
