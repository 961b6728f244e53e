"""The kubelet's expansion of variables in a container's command."""

from __future__ import annotations


def kubelet_expands(text: str) -> str:
    """kubernetes third_party/forked/golang/expansion/expand.go, every variable set to `!`."""
    out, at = "", 0
    while at < len(text):
        if text[at] != "$" or at + 1 == len(text):
            out += text[at]
            at += 1
        elif text[at + 1] == "$":
            out += "$"
            at += 2
        elif text[at + 1] == "(":
            end = text.find(")", at + 2)
            out += "!" if end >= 0 else "$("
            at = end + 1 if end >= 0 else at + 2
        else:
            out += text[at : at + 2]
            at += 2
    return out
