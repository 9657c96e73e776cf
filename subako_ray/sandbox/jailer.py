"""The jailer: one helper process per worker that makes and watches its jails.

Started by `launch`, with one socket as its only tie to the worker. What is guaranteed:

* The worker dies, in whatever way, or closes the socket: every jail is killed, its cgroup removed.
* The jailer dies: it is the first process of its own pid namespace, so the kernel kills every jail
  with it. Where an ordinary user may not mount that namespace's `/proc` (masked in containers),
  there is none; then the guardian, its parent, adopts the jails and kills them. Only if both are
  killed at the same instant is a jail left to nsjail's own time limit.
* Either way the next jailer of the same cgroup kills whatever a dead one left.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import resource
import signal
import socket
from pathlib import Path
from typing import Final

from subako_ray.sandbox import kernel
from subako_ray.sandbox.handover import Finding, encode_findings
from subako_ray.sandbox.host import RESERVED_ID, HostUnusable, discover
from subako_ray.sandbox.spawn import reserve_descriptors
from subako_ray.sandbox.spec import LimitsMode
from subako_ray.sandbox.supervisor import Supervisor

HARMLESS_PROC_MOUNT: Final = "/proc/sys/fs/binfmt_misc"


def main(arguments: list[str]) -> None:
    """Runs the helper; never returns.

    Args:
        arguments: the number of the socket's descriptor, the path of nsjail, the limits mode.
    """
    descriptor, nsjail, limits = arguments
    control = socket.socket(fileno=fcntl.fcntl(int(descriptor), fcntl.F_DUPFD_CLOEXEC, 64))
    os.close(int(descriptor))
    reserve_descriptors()
    mode: LimitsMode = "best-effort" if limits == "best-effort" else "enforced"
    try:
        own_process_list = _enter_namespaces()
    except HostUnusable as unusable:
        control.send(encode_findings([unusable.finding]))
        os._exit(1)
    kernel.adopt_orphans()
    child = os.fork()
    if child == 0:
        kernel.die_with_parent()
        _serve(control, Path(nsjail), mode, own_process_list=own_process_list)
        os._exit(0)
    control.close()
    os.waitpid(child, 0)
    if not own_process_list:
        _kill_adopted()
    os._exit(0)


def _enter_namespaces() -> bool:
    """Moves into private namespaces; returns whether children get a pid namespace of their own.

    Raises:
        HostUnusable: the host does not allow it.
    """
    user, group = os.geteuid(), os.getegid()
    try:
        if user == 0:
            _check_reserved_id()
            kernel.unshare(kernel.CLONE_NEWNS | kernel.CLONE_NEWPID)
            return True
        own = not _process_list_is_masked()
        flags = kernel.CLONE_NEWUSER | kernel.CLONE_NEWNS
        kernel.unshare(flags | (kernel.CLONE_NEWPID if own else 0))
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    except OSError as error:
        raise HostUnusable(_why_no_namespaces(error, root=user == 0)) from error
    return own


def _check_reserved_id() -> None:
    """Refuses a user namespace in which the reserved user does not exist."""
    for line in Path("/proc/self/uid_map").read_text().splitlines():
        first, _, count = map(int, line.split())
        if first <= RESERVED_ID < first + count:
            return
    raise HostUnusable(
        Finding(
            name="namespaces",
            state="missing",
            detail=f"root runs in a user namespace that has no user {RESERVED_ID}, and a jail "
            "must not be root",
            help_text="run the service as an ordinary user, or give its namespace 65536 users",
        )
    )


def _process_list_is_masked() -> bool:
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    places = (line.split(" ")[4] for line in lines)
    return any(place.startswith("/proc/") and place != HARMLESS_PROC_MOUNT for place in places)


def _why_no_namespaces(error: OSError, *, root: bool) -> Finding:
    match error.errno:
        case errno.ENOSPC:
            help_text = "raise `user.max_user_namespaces` and `user.max_pid_namespaces` by `sysctl`"
        case errno.EPERM | errno.EACCES if root:
            help_text = (
                "run the service as an ordinary user, or give it the capability SYS_ADMIN "
                "(in Docker `--cap-add SYS_ADMIN --security-opt apparmor=unconfined`)"
            )
        case _:
            help_text = (
                "allow user namespaces: `sysctl kernel.unprivileged_userns_clone=1` and "
                "`kernel.apparmor_restrict_unprivileged_userns=0` where they exist; in a "
                "container `--security-opt seccomp=unconfined`"
            )
    return Finding(
        name="namespaces",
        state="missing",
        detail=f"the host does not allow new namespaces: {error.strerror}",
        help_text=help_text,
    )


def _serve(
    control: socket.socket, nsjail: Path, limits: LimitsMode, *, own_process_list: bool
) -> None:
    # A terminal's keys are for the worker, which decides when its jails end.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 1 << 20), most))
    findings = [
        Finding(name="nsjail", state="ok", detail=f"`{nsjail}`"),
        Finding(name="namespaces", state="ok", detail=_namespaces_detail(own_process_list)),
    ]
    try:
        _mount_namespace(own_process_list=own_process_list)
        host = discover(nsjail, limits, findings.append)
    except HostUnusable as unusable:
        if unusable.finding not in findings:
            findings.append(unusable.finding)
        control.send(encode_findings(findings))
        return
    try:
        control.send(encode_findings(findings))
    except ConnectionError:
        host.close()
        return
    Supervisor(control, host).run()


def _namespaces_detail(own_process_list: bool) -> str:
    who = "root" if os.geteuid() == 0 else "an ordinary user"
    return f"as {who}" + ("" if own_process_list else ", without a pid namespace for the jailer")


def _mount_namespace(*, own_process_list: bool) -> None:
    try:
        kernel.stop_sharing_mounts()
        if own_process_list:
            kernel.mount_proc("/proc")
        else:
            kernel.adopt_orphans()
    except OSError as error:
        raise HostUnusable(
            Finding(
                name="namespaces",
                state="missing",
                detail=f"the jailer cannot mount in its own namespace: {error.strerror}",
                help_text="allow mounts in user namespaces: on Ubuntu "
                "`sysctl kernel.apparmor_restrict_unprivileged_userns=0`; in a container "
                "`--security-opt apparmor=unconfined --security-opt systempaths=unconfined`",
            )
        ) from error


def _kill_adopted() -> None:
    """Kills every descendant that is left, the adopted ones as they come."""
    while True:
        with contextlib.suppress(FileNotFoundError):
            for child in Path("/proc/thread-self/children").read_text().split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(child), signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return
