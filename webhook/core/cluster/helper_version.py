"""The version of the helper, and the options that it has since then.

A helper that does not know an option ends with exit code 2, so the pod would fail. podsettle uses
an option only if the image's tag, or the operator, says that the helper has it.
"""

from __future__ import annotations

from enum import Enum

from webhook import __version__
from webhook.core.defects.versions import Version, parse_version
from webhook.core.image_reference import parse_reference


class HelperFeature(Enum):
    """What newer helpers can do. Its value is the first version, and the name on a command line.

    Every helper has `--sleep`, `--min-lifetime`, `install` and `wait-kubelet`.
    """

    WAIT = Version(0, 2, 0), "wait"
    OPEN_FILES = Version(0, 2, 0), "--open-files"

    @property
    def since(self) -> Version:
        """The first version of the helper that has the feature."""
        return self.value[0]

    def missing(self, image: str, version: Version | None) -> str:
        """Return why the feature must not be used, and what to do. Empty if the helper has it.

        `version` is that of `helper_version`.
        """
        if version is not None and version >= self.since:
            return ""
        needs = f"`{self.value[1]}` needs a helper of version {self.since} or later"
        if version is not None:
            return (
                f"{needs}, and {image} has version {version}: build the helper of podsettle's "
                "version, and set the chart value `lingerImage` to it"
            )
        return (
            f"{needs}, and {image} does not say its version: set the chart value `lingerVersion` "
            "(`--linger-version`) to the version of the helper in it"
        )


_OWN_VERSION = parse_version(__version__) or Version(0, 0)


def helper_version(image: str | None, stated: Version | None) -> Version | None:
    """Return the version of the helper in an image, or None if nothing says it.

    `stated` is what the operator says. Otherwise the image's tag counts if it has three numbers.
    A later version than podsettle's own is no release's tag, but perhaps a date.
    """
    if stated is not None or image is None:
        return stated
    try:
        tag = parse_reference(image).tag
    except ValueError:
        return None
    version = parse_version(tag) if tag.count(".") > 1 else None
    return None if version is None or version > _OWN_VERSION else version
