"""How this host isolates: limits enforced where a memory cgroup can be had, else best effort.

A host without one (an ordinary user, a container with a read-only cgroup) still runs every test of
jails but those of the memory limit itself, which are skipped by name and counted.
"""

from __future__ import annotations

from functools import cache

import pytest

from subako_ray.sandbox.probe import probe
from subako_ray.sandbox.spec import IsolationSettings, LimitsMode


@cache
def limits_mode() -> LimitsMode:
    """The strictest mode that this host can do."""
    return "enforced" if probe(IsolationSettings()).can_isolate else "best-effort"


def isolation() -> IsolationSettings:
    """Settings for jails of tests."""
    return IsolationSettings(limits=limits_mode())


def require_memory_cgroup() -> None:
    """Skips a test of the memory limit where no cgroup can enforce it."""
    if limits_mode() == "best-effort":
        pytest.skip("this host has no memory cgroup to enforce the limit with")
