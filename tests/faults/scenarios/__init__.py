"""The scenarios. Importing this package registers them."""

from tests.faults.scenarios import api_server, cluster, objects, replicas, surroundings

__all__ = ["api_server", "cluster", "objects", "replicas", "surroundings"]
