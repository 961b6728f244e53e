"""Amounts of resources as Kubernetes writes them, such as `250m` or `12Mi`.

https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
"""

from __future__ import annotations

import re
from decimal import Decimal

from webhook.core.pod import MAX_QUANTITY_CHARACTERS

_QUANTITY = re.compile(r"([+-]?[0-9.]+)(?:[eE]([+-]?\d+)|([numkMGTPE]|[KMGTPE]i)?)", re.ASCII)
_SUFFIX_FACTORS = {
    **{suffix: Decimal(1000) ** power for power, suffix in enumerate([*"num", "", *"kMGTPE"], -3)},
    **{f"{suffix}i": Decimal(1024) ** power for power, suffix in enumerate("KMGTPE", 1)},
}


def parse_quantity(text: str) -> Decimal | None:
    """Return a quantity as a number, so that `0.25` equals `250m`. Return None for other texts."""
    # Python rejects numbers of more than 4,300 digits.
    match = _QUANTITY.fullmatch(text) if len(text) <= MAX_QUANTITY_CHARACTERS else None
    if not match or match[1].count(".") > 1:
        return None
    number, exponent, suffix = match.groups()
    try:
        return Decimal(number).scaleb(int(exponent or 0)) * _SUFFIX_FACTORS[suffix or ""]
    except ArithmeticError:
        return None
