"""Fixtures of the executor's tests."""

from session_bench import open_bench, store

__all__ = ["open_bench", "store"]
