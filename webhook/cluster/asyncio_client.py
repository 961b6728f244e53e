"""The asyncio client of `kubernetes`, without the rest of that package.

Its `__init__` imports the synchronous client as well, and with it requests, urllib3, oauthlib and
websocket-client: 8 MiB in every replica and a quarter of a second of every start, for nothing that
is ever called. So it is not run: modules that only know where their submodules are stand in for
the packages, and submodules are found there as ever, also by whoever imports others of them later.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec, module_from_spec

__all__ = ["Configuration", "RESTClientObject", "load_incluster_config", "load_kube_config"]


def _stand_in_for(package: str) -> None:
    if package in sys.modules or (spec := find_spec(package)) is None:
        return
    sys.modules[package] = module_from_spec(spec)
    parent, _, name = package.rpartition(".")
    if parent:
        setattr(sys.modules[parent], name, sys.modules[package])


# ruff: noqa: E402
_stand_in_for("kubernetes")
_stand_in_for("kubernetes.aio")

from kubernetes.aio.client import Configuration
from kubernetes.aio.client.rest import RESTClientObject
from kubernetes.aio.config import load_incluster_config, load_kube_config
