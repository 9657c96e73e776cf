"""Fixtures of the tests on a real Ray."""

from deployment import site

__all__ = ["site"]
