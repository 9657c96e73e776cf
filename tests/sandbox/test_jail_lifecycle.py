"""Real jails from acquire to report: how they end, what is left, and who they are meanwhile."""

import asyncio
import os
import signal
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from isolation import isolation, require_memory_cgroup
from jail_programs import MEBIBYTE, limits, marked, new_mark, nothing_left, python, status

from subako_ray.sandbox.lease import Jailer, JailLease
from subako_ray.sandbox.spec import (
    BindMount,
    FileMount,
    JailReport,
    JailSpec,
    JailUnavailable,
    TemporaryMount,
)

UP_THEN_WAIT = "import signal; print('up', flush=True)\nwhile True: signal.pause()"


@pytest.fixture
async def jailer() -> AsyncIterator[Jailer]:
    jailer = await Jailer.start(isolation())
    yield jailer
    await jailer.aclose()


async def ended(jailer: Jailer, spec: JailSpec) -> tuple[bytes, JailReport]:
    """Runs a jail to its own end; returns its output and report."""
    lease = await jailer.acquire(spec)
    try:
        async with asyncio.timeout(30):
            output = await lease.reader.read(-1)
            return output, await lease.ended()
    finally:
        await lease.release()


async def up(jailer: Jailer, spec: JailSpec) -> JailLease:
    """Starts a jail and waits until its program says `up`."""
    lease = await jailer.acquire(spec)
    assert await lease.reader.readline() == b"up\n"
    return lease


@pytest.mark.parametrize("code", [0, 3, 137, 255])
async def test_an_exit_is_reported_with_its_code(jailer: Jailer, code: int) -> None:
    output, report = await ended(jailer, python(f"print('out'); raise SystemExit({code})"))
    assert (report.verdict, report.exit_code, report.signal) == ("exited", code, None)
    assert output == b"out\n"
    assert report.leaked_processes == 0
    assert 0 < report.wall_seconds < 10


async def test_a_crash_is_reported_with_its_signal(jailer: Jailer) -> None:
    _, report = await ended(jailer, python("import ctypes; ctypes.string_at(0)"))
    assert (report.verdict, report.exit_code, report.signal) == ("signalled", None, "SIGSEGV")


async def test_a_program_cannot_kill_itself_into_a_false_verdict(jailer: Jailer) -> None:
    # The first process of a pid namespace is not killed from inside.
    output, report = await ended(jailer, python("import os; os.kill(os.getpid(), 9); print('on')"))
    assert (report.verdict, report.exit_code, output) == ("exited", 0, b"on\n")


async def test_log_lines_forged_on_standard_error_change_nothing(jailer: Jailer) -> None:
    forged = (
        "[F][2026-12-01T03:00:00+0000][1] main():1 Couldn't launch the child process\n"
        "[I][2026-12-01T03:00:00+0000] pid=1 ([STANDALONE MODE]) terminated with signal: SIGKILL\n"
    )
    program = "import os, sys\nfor fd in (2, 3, 4):\n try: os.write(fd, sys.argv[1].encode())\n"
    _, report = await ended(jailer, python(program + " except OSError: pass\n", forged))
    assert (report.verdict, report.exit_code) == ("exited", 0)
    assert report.stderr.decode() == forged


async def test_a_program_that_is_not_there_is_a_failed_jail(jailer: Jailer) -> None:
    spec = JailSpec(argv=("/nonexistent",), cwd="/tmp", limits=limits())
    _, report = await ended(jailer, spec)
    assert report.verdict == "jail_failed"
    assert "/nonexistent" in report.detail


async def test_a_name_is_looked_up_in_the_jails_path(jailer: Jailer) -> None:
    spec = JailSpec(argv=("echo", "-n", "$HOME"), cwd="/tmp", limits=limits())
    assert (await ended(jailer, spec))[0] == b"$HOME"


async def test_more_memory_than_allowed_is_out_of_memory(jailer: Jailer) -> None:
    require_memory_cgroup()
    spec = python("x = bytearray(300 << 20)", limits=limits(memory_mib=64))
    _, report = await ended(jailer, spec)
    assert report.verdict == "out_of_memory"
    assert report.peak_memory_bytes is not None
    assert 32 * MEBIBYTE < report.peak_memory_bytes <= 64 * MEBIBYTE


async def test_temporary_files_count_as_memory(jailer: Jailer) -> None:
    require_memory_cgroup()
    write = "with open('/big/x', 'wb') as f:\n for _ in range(200): f.write(bytes(1 << 20))"
    mount = TemporaryMount(target="/big", size_bytes=512 * MEBIBYTE, inodes=16)
    spec = python(write, limits=limits(memory_mib=64), mounts=(mount,))
    _, report = await ended(jailer, spec)
    # The file size limit stops it if memory does not.
    assert report.verdict == "out_of_memory"


async def test_a_fork_bomb_stays_below_its_limit_and_dies_whole(jailer: Jailer) -> None:
    mark = new_mark()
    bomb = (
        "import os, time\n"
        "made = 0\n"
        "try:\n"
        "    while made < 1000:\n"
        "        if os.fork() == 0: time.sleep(60)\n"
        "        made += 1\n"
        "except OSError as error: print(made, error.errno, flush=True)\n"
        "time.sleep(60)\n"
    )
    lease = await jailer.acquire(python(bomb, mark, limits=limits(processes=20)))
    made, error = map(int, (await lease.reader.readline()).split())
    assert (made, error) == (19, 11)
    # The program and its children; nsjail has another command line.
    assert len(marked(mark)) == 20
    assert (await lease.release()).verdict == "killed"
    assert marked(mark) == []


async def test_the_wall_limit_ends_everything_a_jail_started(jailer: Jailer) -> None:
    mark = new_mark()
    program = (
        "import os, signal\n"
        "for number in (1, 2, 15): signal.signal(number, signal.SIG_IGN)\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork(): os._exit(0)\n"
        "    os.close(0), os.close(1), os.close(2)\n"
        "    while True: signal.pause()\n"
        "os.wait(); print('up', flush=True)\n"
        "while True: signal.pause()\n"
    )
    lease = await up(jailer, python(program, mark, limits=limits(wall_seconds=1.0)))
    assert len(marked(mark)) == 2
    async with asyncio.timeout(5):
        report = await lease.ended()
    assert report.verdict == "timed_out"
    assert 1.0 <= report.wall_seconds < 2.5
    assert (marked(mark), report.leaked_processes) == ([], 0)
    assert await lease.release() == report


async def test_a_daemon_ends_with_the_program_that_started_it(jailer: Jailer) -> None:
    mark = new_mark()
    program = "import os, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(60)\n"
    _, report = await ended(jailer, python(program, mark))
    assert report.verdict == "exited"
    assert marked(mark) == []


async def test_a_flood_of_standard_error_is_cut_and_hinders_nobody(jailer: Jailer) -> None:
    flood = "import os\nfor _ in range(2000): os.write(2, b'y' * 65536)\nprint('done')"
    (flooded, report), (other, _) = await asyncio.gather(
        ended(jailer, python(flood, limits=limits(stderr_bytes=1000))),
        ended(jailer, python("print('neighbour')")),
    )
    assert (flooded, other) == (b"done\n", b"neighbour\n")
    assert (report.verdict, report.exit_code) == ("exited", 0)
    assert (report.stderr, report.stderr_cut) == (b"y" * 1000, True)


async def test_standard_error_up_to_its_cap_is_whole(jailer: Jailer) -> None:
    program = "import os; os.write(2, b'e' * 1000)"
    _, report = await ended(jailer, python(program, limits=limits(stderr_bytes=1000)))
    assert (report.stderr, report.stderr_cut) == (b"e" * 1000, False)


async def test_a_large_report_arrives_whole(jailer: Jailer) -> None:
    size = 3 * MEBIBYTE
    program = f"import os\nfor _ in range({size >> 16}): os.write(2, b'e' * 65536)"
    _, report = await ended(jailer, python(program, limits=limits(stderr_bytes=size)))
    assert (len(report.stderr), report.stderr_cut) == (size, False)


async def test_many_jails_at_once_get_their_own_input(jailer: Jailer) -> None:
    async def echo(number: int) -> bytes:
        lease = await jailer.acquire(python("import sys; print(sys.stdin.read(), end='')"))
        lease.writer.write(b"%d" % number)
        lease.writer.close()
        output = await lease.reader.read(-1)
        await lease.release()
        return output

    assert await asyncio.gather(*map(echo, range(16))) == [b"%d" % n for n in range(16)]


async def test_a_large_file_reaches_the_jail(jailer: Jailer) -> None:
    content = os.urandom(MEBIBYTE)
    program = "import sys; sys.stdout.buffer.write(open('/in/file', 'rb').read())"
    output, _ = await ended(
        jailer, python(program, mounts=(FileMount(target="/in/file", content=content),))
    )
    assert output == content


async def test_release_ends_a_jail_and_says_so_each_time(jailer: Jailer) -> None:
    mark = new_mark()
    lease = await up(jailer, python(UP_THEN_WAIT, mark))
    async with asyncio.timeout(2):
        first, second = await asyncio.gather(lease.release(), lease.release())
    assert first == second == await lease.release()
    assert (first.verdict, first.leaked_processes, marked(mark)) == ("killed", 0, [])


async def test_a_cancelled_release_still_ends_the_jail(jailer: Jailer) -> None:
    mark = new_mark()
    lease = await up(jailer, python(UP_THEN_WAIT, mark))
    releasing = asyncio.create_task(lease.release())
    await asyncio.sleep(0)
    releasing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await releasing
    assert (await lease.release()).verdict == "killed"
    assert marked(mark) == []


async def test_leases_closed_at_any_moment_of_the_set_up_leave_nothing(jailer: Jailer) -> None:
    require_memory_cgroup()
    mark = new_mark()
    for step in range(40):
        acquiring = asyncio.create_task(jailer.acquire(python(UP_THEN_WAIT, mark)))
        # The moment is what is varied: from before the request to after the program's start.
        await asyncio.sleep(step * 0.001)
        if step % 2:
            acquiring.cancel()
        try:
            lease = await acquiring
        except asyncio.CancelledError:
            continue
        assert (await lease.release()).verdict == "killed"
    await nothing_left(mark)
    lease = await up(jailer, python(UP_THEN_WAIT, mark))
    (process_id,) = marked(mark)
    leaf = cgroup_folder(process_id)
    async with asyncio.timeout(5):
        while [entry for entry in leaf.parent.iterdir() if entry.is_dir()] != [leaf]:
            await asyncio.sleep(0.005)
    await lease.release()
    assert not leaf.exists()


def cgroup_folder(process_id: int) -> Path:
    """Returns the folder of a process's memory cgroup."""
    for line in Path(f"/proc/{process_id}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "memory":
            return Path("/sys/fs/cgroup/memory" + path)
        if controllers == "" and (found := Path("/sys/fs/cgroup" + path)).is_dir():
            return found
    raise AssertionError("the process is in no memory cgroup")


async def test_a_jail_is_nobody_on_the_host(jailer: Jailer) -> None:
    mark = new_mark()
    lease = await up(jailer, python(UP_THEN_WAIT, mark))
    try:
        (process_id,) = marked(mark)
        found = status(process_id)
        user = 65534 if os.geteuid() == 0 else os.geteuid()
        assert user != 0
        assert set(found["Uid"].split()) == {str(user)}
        assert "0" not in found["Gid"].split()
        if os.geteuid() == 0:
            assert found["Groups"].strip() == ""
        for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
            assert int(found[name], 16) == 0
        assert (found["NoNewPrivs"].strip(), found["Seccomp"].strip()) == ("1", "2")
        ours, theirs = Path("/proc/self/ns"), Path(f"/proc/{process_id}/ns")
        for kind in ("user", "mnt", "pid", "net", "ipc", "uts", "cgroup"):
            assert (ours / kind).readlink() != (theirs / kind).readlink()
    finally:
        await lease.release()


async def test_a_jail_sees_nothing_of_the_one_beside_it_or_before_it(jailer: Jailer) -> None:
    leave = "open('/tmp/left', 'w').write('x'); open('/dev/shm/left', 'w').write('x'); "
    beside = await up(jailer, python(leave + UP_THEN_WAIT))
    await ended(jailer, python(leave))
    look = (
        "import os; print(os.listdir('/tmp'), os.listdir('/dev/shm'),"
        " [name for name in os.listdir('/proc') if name.isdigit()])"
    )
    output, _ = await ended(jailer, python(look))
    assert output == b"[] [] ['1']\n"
    await beside.release()


async def test_a_folder_below_a_closed_one_can_be_shown(jailer: Jailer, tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    shown = closed / "shown"
    shown.mkdir(parents=True)
    (shown / "file").write_text("content")
    (closed / "secret").write_text("secret")
    shown.chmod(0o755)
    closed.chmod(0o700)
    program = "import os; print(os.listdir('/shown'), open('/shown/file').read())"
    mounts = (BindMount(source=shown, target="/shown"),)
    assert (await ended(jailer, python(program, mounts=mounts)))[0] == b"['file'] content\n"


async def test_a_folder_made_anew_is_shown_anew(jailer: Jailer, tmp_path: Path) -> None:
    for text in ("first", "second"):
        shown = tmp_path / "shown"
        shown.mkdir()
        shown.chmod(0o755)
        (shown / text).touch()
        mounts = (BindMount(source=shown, target="/shown"),)
        program = "import os; print(*os.listdir('/shown'))"
        assert (await ended(jailer, python(program, mounts=mounts)))[0].decode() == text + "\n"
        shown.rename(tmp_path / text)


@pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user cannot mount")
async def test_what_is_mounted_below_a_shown_folder_is_not_shown(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    below = tmp_path / "below"
    below.mkdir()
    (below / "covered").touch()
    subprocess.run(["mount", "-t", "tmpfs", "none", below], check=True)
    try:
        (below / "mounted").touch()
        # Started only now: its mounts are those of its start.
        jailer = await Jailer.start(isolation())
        program = "import os; print(os.listdir('/shown/below'))"
        mounts = (BindMount(source=tmp_path, target="/shown"),)
        output, _ = await ended(jailer, python(program, mounts=mounts))
        await jailer.aclose()
        assert output == b"['covered']\n"
    finally:
        subprocess.run(["umount", below], check=True)


async def test_a_source_that_cannot_be_shown_refuses_the_jail(
    jailer: Jailer, tmp_path: Path
) -> None:
    closed = tmp_path / "closed"
    closed.mkdir()
    closed.chmod(0o000)
    for source in (tmp_path / "missing", closed, Path("/dev/null")):
        with pytest.raises(JailUnavailable, match=f"`{source}` cannot be shown in a jail: "):
            await jailer.acquire(python("pass", mounts=(BindMount(source=source, target="/x"),)))
    assert (await ended(jailer, python("print(1)")))[0] == b"1\n"


async def test_after_its_jailer_died_a_worker_gets_another(jailer: Jailer) -> None:
    require_memory_cgroup()
    mark = new_mark()
    lease = await up(jailer, python(UP_THEN_WAIT, mark))
    dead_folder = cgroup_folder(marked(mark)[0]).parent
    assert jailer.process_id is not None
    os.kill(jailer.process_id, signal.SIGKILL)
    async with asyncio.timeout(5):
        report = await lease.ended()
    assert report.verdict == "supervisor_lost"
    await nothing_left(mark)
    assert dead_folder.exists()
    assert (await ended(jailer, python("print(1)")))[0] == b"1\n"
    # The next one clears what the dead one could not.
    assert not dead_folder.exists()
    await lease.release()


async def test_a_closed_jailer_ends_its_jails_and_takes_no_more() -> None:
    require_memory_cgroup()
    jailer = await Jailer.start(isolation())
    mark = new_mark()
    lease = await up(jailer, python(UP_THEN_WAIT, mark))
    (process_id,) = marked(mark)
    jailers_folder = cgroup_folder(process_id).parent
    await jailer.aclose()
    assert marked(mark) == []
    assert not jailers_folder.exists()
    assert (await lease.ended()).verdict == "killed"
    await lease.release()
    with pytest.raises(JailUnavailable, match="the jailer was closed"):
        await jailer.acquire(python("pass"))


FREEZER = Path("/sys/fs/cgroup/freezer")


@pytest.mark.skipif(
    not os.access(FREEZER / "cgroup.procs", os.W_OK), reason="no freezer cgroup to hold a process"
)
async def test_a_process_that_cannot_be_killed_is_reported_and_cleared_later(
    jailer: Jailer,
) -> None:
    mark = new_mark()
    lease = await up(jailer, python(UP_THEN_WAIT, mark))
    (process_id,) = marked(mark)
    leaf = cgroup_folder(process_id)
    frozen = FREEZER / mark
    frozen.mkdir()
    try:
        (frozen / "cgroup.procs").write_text(str(process_id))
        (frozen / "freezer.state").write_text("FROZEN")
        async with asyncio.timeout(4):
            report = await lease.release()
        assert (report.verdict, report.leaked_processes) == ("killed", 1)
        # The jailer is not held up.
        assert (await ended(jailer, python("print(1)")))[0] == b"1\n"
        (frozen / "freezer.state").write_text("THAWED")
        async with asyncio.timeout(5):
            while leaf.exists():
                await asyncio.sleep(0.01)
        assert marked(mark) == []
    finally:
        (frozen / "freezer.state").write_text("THAWED")
        await nothing_left(mark)
        frozen.rmdir()
