"""The executor on Ray: actors as thin shells, and the driver's way to them."""

from subako_ray.executor.cluster.connection import Cluster
from subako_ray.executor.cluster.session_handle import SessionHandle

__all__ = ["Cluster", "SessionHandle"]
