"""The releases of CRI-O and containerd, as users write them."""

from __future__ import annotations

import re
from collections.abc import Collection

from webhook.core.defects.versions import Version, parse_version

# containerd's Makefile adds `.m` to the version of sources with changes.
_RELEASE = re.compile(r"v?\d+\.\d+(\.\d+)?([-+~].*|\.m)?", re.ASCII)


class UnsupportedError(ValueError):
    """The runtime does not support a setting. The message says what to do."""


def parse_runtime_release(
    text: str, runtime: str, *, example: str, minors_that_need_patch: Collection[tuple[int, int]]
) -> Version:
    """Parse a release, with or without the prefix `RUNTIME://`. `example` is a valid release.

    For the pairs of major and minor number in `minors_that_need_patch`, the text must include the
    patch number. Raises ValueError if the text is not a release of the runtime.
    """
    prefix, separator, release = text.rpartition("://")
    if separator and prefix != runtime:
        raise ValueError(f"{text!r} is not a release of {runtime}")
    match, version = _RELEASE.fullmatch(release), parse_version(release)
    if match is None or version is None:
        raise ValueError(f"{text!r} is not a version such as {example}")
    if match[1] is None and version[:2] in minors_that_need_patch:
        raise ValueError(
            f"{release} has no patch number, but the result depends on it: give the whole release, "
            f"such as {example}"
        )
    return version
