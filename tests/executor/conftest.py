"""Fixtures of the executor's tests."""

from host_bench import host
from session_bench import open_bench, store

__all__ = ["host", "open_bench", "store"]
