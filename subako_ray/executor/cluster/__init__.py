"""The executor on Ray: actors as thin shells, and the driver's way to them."""

import os

# Ray reads its environment once, when it is imported. Clusters started here have a token, and one
# that has none takes no notice of ours.
os.environ.setdefault("RAY_AUTH_MODE", "token")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

from subako_ray.executor.cluster.connection import Cluster
from subako_ray.executor.cluster.session_handle import SessionHandle

__all__ = ["Cluster", "SessionHandle"]
