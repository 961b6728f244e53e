"""Amounts of resources as Kubernetes writes them, such as `250m` or `12Mi`.

https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
"""

from __future__ import annotations

import re
from decimal import Decimal

from webhook.core.pod import MAX_QUANTITY_CHARACTERS

_QUANTITY = re.compile(r"([+-]?[0-9.]+)(?:[eE]([+-]?\d+)|([numkMGTPE]|[KMGTPE]i)?)", re.ASCII)
_SUFFIX_FACTORS = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "k": Decimal("1e3"),
    "M": Decimal("1e6"),
    "G": Decimal("1e9"),
    "T": Decimal("1e12"),
    "P": Decimal("1e15"),
    "E": Decimal("1e18"),
    "Ki": Decimal(1 << 10),
    "Mi": Decimal(1 << 20),
    "Gi": Decimal(1 << 30),
    "Ti": Decimal(1 << 40),
    "Pi": Decimal(1 << 50),
    "Ei": Decimal(1 << 60),
}


def parse_quantity(text: str) -> Decimal | None:
    """Return a quantity as a number, so that `0.25` equals `250m`. Return None for other texts."""
    # Python rejects numbers of more than 4,300 digits.
    match = _QUANTITY.fullmatch(text) if len(text) <= MAX_QUANTITY_CHARACTERS else None
    if not match or match[1].count(".") > 1:
        return None
    number, exponent, suffix = match.groups()
    try:
        return Decimal(number).scaleb(int(exponent or 0)) * _SUFFIX_FACTORS.get(
            suffix or "", Decimal(1)
        )
    except ArithmeticError:
        return None
