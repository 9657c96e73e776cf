"""What the jailer finds out about its host, once, by making the real jail."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from subako_ray.sandbox.cgroup import Cgroups, CgroupUnavailable, Leaf
from subako_ray.sandbox.config import HostFacts, SystemMount, nsjail_config
from subako_ray.sandbox.handover import Finding
from subako_ray.sandbox.spawn import Spawned, spawn
from subako_ray.sandbox.spec import INTERPRETER_TARGET, JailLimits, JailSpec, LimitsMode
from subako_ray.sandbox.stage import Stage
from subako_ray.sandbox.verdict import Evidence, Judgement, complaint, judge

RESERVED_ID: Final = 65_534
"""The host's user `nobody`, which owns nothing; jails of a root service run as it."""

LINKED: Final = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
OPTIONAL: Final = (("/etc/ld.so.cache", False), ("/etc/alternatives", True))

TRIAL_SECONDS: Final = 20.0
MEBIBYTE: Final = 1 << 20
TRIAL: Final = JailSpec(
    argv=("python3", "-I", "-S", "-E", "-c", "pass"),
    cwd="/tmp",  # noqa: S108
    limits=JailLimits(
        wall_seconds=TRIAL_SECONDS,
        memory_bytes=256 * MEBIBYTE,
        processes=16,
        cpu_seconds=10,
        file_bytes=MEBIBYTE,
        open_files=64,
        temporary_bytes=MEBIBYTE,
        stderr_bytes=4096,
    ),
)

UNENFORCED_WITHOUT_CGROUP: Final = ("memory_bytes",)


class HostUnusable(Exception):  # noqa: N818 - read as a state, like `JailUnavailable`
    """A needed thing is missing; `finding` says which."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding)
        self.finding = finding


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A host that can isolate."""

    nsjail: Path
    facts: HostFacts
    stage: Stage
    cgroups: Cgroups | None

    @property
    def unenforced(self) -> tuple[str, ...]:
        """Limits that no jail of this host has as a whole."""
        return UNENFORCED_WITHOUT_CGROUP if self.cgroups is None else ()

    def leaf(self, memory_bytes: int, processes: int) -> Leaf | None:
        """Makes the cgroup of a jail, where the host has cgroups.

        Raises:
            OSError: it cannot be made.
        """
        return None if self.cgroups is None else self.cgroups.leaf(memory_bytes, processes)

    def spawn(self, leaf: Leaf | None, *, stdin: int, stdout: int) -> Spawned:
        """Starts nsjail, which waits for its configuration, in the cgroup of its jail.

        Raises:
            OSError: it cannot be started.
        """

        def start() -> Spawned:
            return spawn(self.nsjail, stdin=stdin, stdout=stdout)

        if leaf is None or self.cgroups is None:
            return start()
        return self.cgroups.spawn(leaf, start)

    def close(self) -> None:
        """Removes what the host keeps of this jailer."""
        if self.cgroups is not None:
            self.cgroups.close()


def discover(nsjail: Path, limits: LimitsMode, found: Callable[[Finding], None]) -> Host:
    """Finds out how this host can isolate; every finding is told as it is made.

    Raises:
        HostUnusable: it cannot; the finding has been told as well.
    """
    try:
        stage = _make_stage()
        found(Finding(name="mounts", state="ok", detail="private, read-only, without submounts"))
        facts = base_facts(stage)
        found(Finding(name="interpreter", state="ok", detail=_interpreter_detail(facts)))
        cgroups, memory = _find_cgroups(limits)
        host = Host(
            nsjail=nsjail,
            facts=replace(facts, whole_memory=cgroups is not None),
            stage=stage,
            cgroups=cgroups,
        )
        found(memory)
        host = _try(host, found)
    except HostUnusable as unusable:
        found(unusable.finding)
        raise
    if memory.state == "missing":
        # Only now, so that whoever mends it hears at once what else is missing.
        host.close()
        raise HostUnusable(memory)
    return host


def _make_stage() -> Stage:
    try:
        return Stage()
    except OSError as error:
        raise HostUnusable(
            Finding(
                name="mounts",
                state="missing",
                detail=f"the jailer cannot mount in its own namespace: {error.strerror}",
                help_text="allow `mount` in user namespaces: on Ubuntu "
                "`sysctl kernel.apparmor_restrict_unprivileged_userns=0` or an AppArmor profile "
                "with `userns`; in a container `--security-opt apparmor=unconfined`",
            )
        ) from error


def base_facts(stage: Stage) -> HostFacts:
    """Stages the base system and returns what is known before a jail was tried.

    Raises:
        HostUnusable: a part of it cannot be shown.
    """
    system = [_system_mount(stage, "/usr", executable=True)]
    links: list[tuple[str, str]] = []
    for name in LINKED:
        top = Path("/", name)
        if top.is_symlink() and top.resolve().is_relative_to("/usr"):
            links.append((str(top.readlink()), str(top)))
        elif top.is_dir():
            system.append(_system_mount(stage, str(top), executable=True))
    for path, executable in OPTIONAL:
        if Path(path).exists():
            system.append(_system_mount(stage, path, executable=executable))
    prefix = os.path.realpath(sys.base_prefix)
    name = f"bin/python{sys.version_info.major}.{sys.version_info.minor}"
    if prefix == "/usr" or prefix.startswith("/usr/"):
        interpreter = f"{prefix}/{name}"
    else:
        shown = _system_mount(stage, prefix, executable=True)
        system.append(replace(shown, target=INTERPRETER_TARGET))
        interpreter = f"{INTERPRETER_TARGET}/{name}"
    root = os.geteuid() == 0
    return HostFacts(
        outside_uid=RESERVED_ID if root else os.geteuid(),
        outside_gid=RESERVED_ID if root else os.getegid(),
        process_list=True,
        whole_memory=False,
        interpreter=interpreter,
        system=tuple(system),
        links=tuple(links),
    )


def _system_mount(stage: Stage, path: str, *, executable: bool) -> SystemMount:
    try:
        return SystemMount(target=path, source=stage.show(Path(path)), executable=executable)
    except OSError as error:
        raise HostUnusable(
            Finding(
                name="mounts",
                state="missing",
                detail=f"`{path}` cannot be shown in a jail: {error.strerror or error}",
                help_text="an ordinary user cannot hide file systems mounted below it: unmount "
                "them, or run the service as root",
            )
        ) from error


def _interpreter_detail(facts: HostFacts) -> str:
    return f"`{facts.interpreter}` from `{os.path.realpath(sys.base_prefix)}`"


def _find_cgroups(limits: LimitsMode) -> tuple[Cgroups | None, Finding]:
    try:
        cgroups = Cgroups.find(
            Path("/proc/self/cgroup").read_text(), Path("/proc/self/mountinfo").read_text()
        )
    except CgroupUnavailable as error:
        tried = f"no cgroup can limit a jail's memory ({error.message})"
        return None, _without_cgroup(limits, tried)
    place = cgroups.folders[0].parent
    return cgroups, Finding(
        name="memory limit", state="ok", detail=f"cgroup{cgroups.version} below `{place}`"
    )


def _without_cgroup(limits: LimitsMode, tried: str) -> Finding:
    delegate = (
        "run the service in a delegated cgroup: "
        "`systemd-run --user --scope -p Delegate=yes COMMAND` or `Delegate=yes` in its unit; in "
        "Docker `--cgroupns=private` with `/sys/fs/cgroup` writable and its processes moved to a "
        "child cgroup"
    )
    if limits == "enforced":
        return Finding(
            name="memory limit",
            state="missing",
            detail=tried,
            help_text=f"{delegate}; or accept limits per process: `best-effort` limits",
        )
    return Finding(
        name="memory limit",
        state="degraded",
        detail=f"{tried}: each process has the limit for itself, so a jail can use as many times "
        "its memory as it may have processes",
        help_text=delegate,
    )


def _try(host: Host, found: Callable[[Finding], None]) -> Host:
    """Makes the real jail, with a process list and then without."""
    judgement, _ = _trial(host)
    if judgement == Judgement(verdict="exited", exit_code=0):
        found(Finding(name="process list", state="ok", detail="a jail has its own `/proc`"))
        found(Finding(name="jail", state="ok", detail="the real configuration runs"))
        return host
    without = replace(host, facts=replace(host.facts, process_list=False))
    again, log_without = _trial(without)
    if again == Judgement(verdict="exited", exit_code=0):
        found(
            Finding(
                name="process list",
                state="degraded",
                detail="jails have no `/proc`, so `ps`, `/dev/fd` and the like do not work in them",
                help_text="run where nothing is mounted over `/proc`: in Docker "
                "`--security-opt systempaths=unconfined`, in Kubernetes `procMount: Unmasked`",
            )
        )
        found(Finding(name="jail", state="ok", detail="the real configuration runs"))
        return without
    host.close()
    raise HostUnusable(_why_no_jail(again, log_without))


def _why_no_jail(judgement: Judgement, log: bytes) -> Finding:
    text = judgement.detail or complaint(log) or _first_line(log)
    text = text or f"its trial ended as `{judgement.verdict}`"
    help_text = "use nsjail 3.4 or later, built for this machine"
    if "clone(" in text:
        help_text = (
            "allow user namespaces: `sysctl user.max_user_namespaces=15000`, and "
            "`sysctl kernel.unprivileged_userns_clone=1` where it exists; in a container "
            "`--security-opt seccomp=unconfined`"
        )
    elif "policy" in text:
        help_text = "use nsjail 3.6, whose compiler knows the system calls that the policy names"
    elif "gid_map" in text or "uid_map" in text:
        help_text = "run as an ordinary user, or as root with the capabilities SETUID and SETGID"
    return Finding(
        name="jail",
        state="missing",
        detail=f"the real configuration does not run: {text}",
        help_text=help_text,
    )


def _first_line(log: bytes) -> str:
    line = log.decode(errors="replace").split("\n", 1)[0]
    return "".join(c if c.isprintable() else "?" for c in line)[:400]


def _trial(host: Host) -> tuple[Judgement, bytes]:
    """Makes one jail and returns how it ended, with nsjail's log."""
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    leaf: Leaf | None = None
    log = bytearray()
    try:
        leaf = host.leaf(TRIAL.limits.memory_bytes, TRIAL.limits.processes)
        spawned = host.spawn(leaf, stdin=null, stdout=null)
        try:
            os.set_blocking(spawned.config, True)
            with contextlib.suppress(BrokenPipeError):
                os.write(spawned.config, json.dumps(nsjail_config(TRIAL, host.facts, {})).encode())
            os.close(spawned.config)
            _collect(spawned.log, log)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(spawned.process_id, signal.SIGKILL)
            os.waitpid(spawned.process_id, 0)
            log += os.read(spawned.stderr, 4096) if not log else b""
            os.close(spawned.log)
            os.close(spawned.stderr)
    except OSError as error:
        raise HostUnusable(
            Finding(
                name="jail",
                state="missing",
                detail=f"a jail cannot be started: {error.strerror}",
                help_text="give this service a cgroup that it may write to, and a program "
                "`nsjail` that runs on this machine",
            )
        ) from error
    finally:
        os.close(null)
        if leaf is not None:
            _remove(leaf)
    return judge(Evidence(stopped=None, log=bytes(log), memory_kills=0)), bytes(log)


def _collect(descriptor: int, log: bytearray) -> None:
    deadline = time.monotonic() + TRIAL_SECONDS
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    while poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
        data = os.read(descriptor, 65_536)
        if not data:
            return
        log += data


def _remove(leaf: Leaf) -> None:
    deadline = time.monotonic() + 1.0
    while not leaf.remove() and time.monotonic() < deadline:
        leaf.kill()
