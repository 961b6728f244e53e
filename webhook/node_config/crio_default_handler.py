"""The default handler of a node with CRI-O, as `crio status config` prints it."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypedDict

import msgspec

# At most 18 digits, so that the amount is a finite number.
_AMOUNT = re.compile(r"(\d{1,18}(?:\.\d+)?) ?([kmgtp]?)i?b?", re.ASCII | re.IGNORECASE)
_POWERS = {suffix: 1024**number for number, suffix in enumerate(("", "k", "m", "g", "t", "p"))}

_SOURCE = (
    "write what `crio status config` prints on a node into it (before 1.30: crio-status config)"
)


# The types of CRI-O's own struct (`RuntimeHandler` in pkg/config/config.go, 1.24 to 1.36).
_Setting = str | bool | int | list[str] | dict[str, str]


class _Known(TypedDict, total=False):
    """The settings that podsettle reads or extends."""

    allowed_annotations: list[str]
    container_min_memory: str
    default_annotations: dict[str, str]
    monitor_path: str
    runtime_path: str
    runtime_type: str


class ConfigError(ValueError):
    """The text is not the configuration of a running CRI-O. The message says what to do."""


@dataclass(frozen=True, slots=True)
class DefaultHandler:
    """The settings of the handler that pods without a RuntimeClass get."""

    name: str
    settings: Mapping[str, Any]

    @classmethod
    def read(cls, text: str) -> DefaultHandler:
        """Read the output of `crio status config`. Raises ConfigError for any other text."""
        try:
            runtime = tomllib.loads(text)["crio"]["runtime"]
            name = runtime["default_runtime"]
            settings = msgspec.convert(runtime["runtimes"][name], dict[str, Any])
            for key, value in settings.items():
                _check_type(key, value)
            known = msgspec.convert(settings, _Known)
            as_quantity(known.get("container_min_memory", "12MiB"))
        except (KeyError, TypeError):
            raise ConfigError(f"does not have the table of a default_runtime: {_SOURCE}") from None
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"{error}: {_SOURCE}") from None
        # A running CRI-O has found both in $PATH if its files do not name them. Without them, CRI-O
        # ignores a handler of another name, or does not start.
        is_oci = known.get("runtime_type", "") in ("", "oci")
        if not known.get("runtime_path") or (is_oci and not known.get("monitor_path")):
            raise ConfigError(f"lacks the paths of the handler {name!r}: {_SOURCE}")
        settings.pop("inherit_default_runtime", None)
        return cls(name, settings)


def _check_type(name: str, value: object) -> None:
    """Raise ValueError with the name of a setting that is of no type of `_Setting`."""
    try:
        msgspec.convert(value, _Setting)
    except msgspec.ValidationError as error:
        raise ValueError(f"{name}: {error}") from None


def as_quantity(amount: str) -> str:
    """Return an amount of memory, such as `500KiB`, as a quantity of Kubernetes.

    CRI-O reads `k` and `kB` as KiB too (`RAMInBytes` of docker/go-units). Raises ValueError for a
    text that is not an amount.
    """
    match = _AMOUNT.fullmatch(amount)
    if match is None:
        raise ValueError(f"{amount!r} is not an amount of memory")
    number = int(float(match[1]) * _POWERS[match[2].lower()])
    for suffix, factor in (("Mi", 1 << 20), ("Ki", 1 << 10)):
        if number % factor == 0:
            return f"{number // factor}{suffix}"
    return str(number)
