"""YAML for `kubectl apply`."""

from __future__ import annotations

import re

import yaml


class KubectlDumper(yaml.SafeDumper):
    """A dumper that puts texts in quotes which kubectl would read as numbers or booleans.

    kubectl's parser (go-yaml) reads more texts as such than PyYAML: `1e5` and `08` as numbers, `y`
    and `n` as booleans. The API server then refuses the object, because a name or the value of a
    label has to be a text. kustomize also reads `2026-1-1` as a time.
    """


_NUMBER = re.compile(
    r"[-+]?(0[xXoObB][0-9a-fA-F_]+|\.?[0-9][0-9_]*(\.[0-9_]*)?([eE][-+]?[0-9_]+)?)$"
)
KubectlDumper.add_implicit_resolver("tag:yaml.org,2002:float", _NUMBER, list("-+.0123456789"))
KubectlDumper.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile("[yYnN]$"), list("yYnN"))
KubectlDumper.add_implicit_resolver(
    "tag:yaml.org,2002:timestamp", re.compile("[0-9]{4}(-[0-9]{1,2}){2}$"), list("0123456789")
)
