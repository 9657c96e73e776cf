"""The peer of `call.function`: nsjail with a call's own configuration, Python that does nothing.

Runs it once for every line on standard input. A process of its own, because the configuration
names sources that are staged in a private mount namespace. Its argument is the package's folder.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import sys
import tempfile
from pathlib import Path

from benchmarks.command import run_quietly
from subako_ray.sandbox import kernel
from subako_ray.sandbox.binary import locate_nsjail
from subako_ray.sandbox.config import nsjail_config
from subako_ray.sandbox.function import FunctionLimits, FunctionRunner, PackageFolder
from subako_ray.sandbox.host import Host, discover
from subako_ray.sandbox.lease import Jailer
from subako_ray.sandbox.spec import BindMount, IsolationSettings, JailSpec

PROGRAM = ("python3", "-I", "-S", "-E", "-c", "pass")


def enter_namespaces() -> None:
    """Makes the mounts of this process its own, as the jailer does."""
    user, group = os.geteuid(), os.getegid()
    if user == 0:
        kernel.unshare(kernel.CLONE_NEWNS)
    else:
        kernel.unshare(kernel.CLONE_NEWUSER | kernel.CLONE_NEWNS)
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    kernel.stop_sharing_mounts()


def function_jail(folder: Path) -> JailSpec:
    """Returns the jail of a call of this package, with the program that does nothing."""
    # The jailer only leases jails; the specification is made without it.
    runner = FunctionRunner(Jailer.__new__(Jailer))
    package = PackageFolder(path=folder, name="bench", command=PROGRAM)
    return dataclasses.replace(runner.spec(package, FunctionLimits()), argv=PROGRAM)


def configuration(host: Host, spec: JailSpec) -> dict[str, object]:
    """Returns nsjail's configuration of that jail on this host."""
    binds = [mount.source for mount in spec.mounts if isinstance(mount, BindMount)]
    return nsjail_config(spec, host.facts, {source: host.stage.show(source) for source in binds})


def main() -> None:
    """Runs a jail for each line, and answers with a line when it has ended."""
    folder = Path(sys.argv[1])
    nsjail = locate_nsjail(IsolationSettings())
    enter_namespaces()
    host = discover(nsjail, "best-effort", lambda _finding: None)
    with contextlib.closing(host), tempfile.NamedTemporaryFile("w", suffix=".json") as config:
        json.dump(configuration(host, function_jail(folder)), config)
        config.flush()
        for _ in sys.stdin:
            run_quietly(nsjail, "--config", config.name, environment={})
            print("done", flush=True)


if __name__ == "__main__":
    main()
