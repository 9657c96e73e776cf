"""Commands in a real machine: what they see, what is kept of them, and what outlives them."""

import asyncio
import os
import socket
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest
from isolation import isolation, require_memory_cgroup

from subako_ray.sandbox.lease import Jailer
from subako_ray.sandbox.machine import ExecResult, Machine, MachineLimits, MachineLost

LIMITS = MachineLimits(memory_mib=192, processes=64, workspace_mib=32, temporary_mib=16)
ARGUMENTS_OF_ALL = "cat /proc/[0-9]*/cmdline | tr '\\0' '\\n'"


@pytest.fixture
async def jailer() -> AsyncIterator[Jailer]:
    jailer = await Jailer.start(isolation())
    yield jailer
    await jailer.aclose()


@pytest.fixture
async def machine(jailer: Jailer) -> AsyncIterator[Machine]:
    machine = await Machine.start(jailer, LIMITS)
    yield machine
    await machine.close()


async def run(
    machine: Machine, command: str, timeout_seconds: float = 20, output_bytes: int = 65_536
) -> ExecResult:
    return await machine.exec(command, timeout_seconds=timeout_seconds, output_bytes=output_bytes)


async def arguments_of_all(machine: Machine) -> list[bytes]:
    """The arguments of every process in the machine, one after the other."""
    result = await run(machine, ARGUMENTS_OF_ALL)
    assert b"cat" in result.stdout
    return result.stdout.split(b"\n")


def host_processes(argument: str) -> list[int]:
    """The processes of the whole host that have this argument of their own."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            arguments = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if argument.encode() in arguments:
            found.append(int(folder.name))
    return found


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])


async def test_a_file_is_still_there_at_the_next_command(machine: Machine) -> None:
    written = await run(machine, "pwd; echo kept > note; id -u")
    assert written.exit_code == 0
    assert written.stdout.startswith(b"/workspace\n")
    assert not written.stdout.endswith(b"\n0\n")
    read = await run(machine, "cat /workspace/note")
    assert (read.exit_code, read.stdout, read.stderr) == (0, b"kept\n", b"")


@pytest.mark.parametrize("prefix", ["", "setsid "])
async def test_b1_a_background_process_does_not_hold_its_command_and_lives_on(
    machine: Machine, prefix: str
) -> None:
    result = await run(machine, f"{prefix}sleep 31415 & echo done")
    assert (result.exit_code, result.stdout, result.timed_out) == (0, b"done\n", False)
    assert result.duration_seconds < 10
    assert b"31415" in await arguments_of_all(machine)


async def test_b1_standard_input_is_empty(machine: Machine) -> None:
    # The first process's own input would look empty, too.
    result = await run(machine, 'read x; echo "$?[$x]"; readlink /proc/$$/fd/0')
    assert result.stdout == b"1[]\n/dev/null\n"


async def test_b1_nothing_of_a_command_survives_its_time_limit(machine: Machine) -> None:
    await run(machine, "sleep 27182 &")
    result = await run(
        machine,
        "sleep 31415 & (setsid sleep 31415 &); setsid bash -c '(sleep 31415 & wait)' & "
        # By the session alone, and by descent alone.
        "(env -i sleep 31415 &); env -i setsid sleep 31415 & "
        "trap '' TERM INT HUP; echo before; sleep 31415",
        timeout_seconds=1,
    )
    assert result.timed_out
    assert (result.exit_code, result.signal, result.stdout) == (None, "SIGKILL", b"before\n")
    left = await arguments_of_all(machine)
    assert b"31415" not in left
    assert b"27182" in left, "the background process of another command was killed too"


async def test_cancelling_kills_the_commands_tree_and_nothing_else(machine: Machine) -> None:
    await run(machine, "sleep 27182 &")
    command = asyncio.create_task(
        run(machine, "(setsid sleep 31415 &); touch started; sleep 31415; touch finished")
    )
    assert (await run(machine, "until [ -e started ]; do sleep 0.01; done")).exit_code == 0
    command.cancel()
    with pytest.raises(asyncio.CancelledError):
        await command
    left = await arguments_of_all(machine)
    assert b"31415" not in left
    assert b"27182" in left
    assert machine.alive


@pytest.mark.parametrize("redirect", ["", " >&2"])
async def test_b2_endless_output_is_cut_while_a_neighbour_is_answered(
    machine: Machine, redirect: str
) -> None:
    flood = asyncio.create_task(run(machine, f"yes{redirect}", 2, output_bytes=1001))
    neighbour = await run(machine, "echo here")
    assert (neighbour.stdout, flood.done()) == (b"here\n", False)
    result = await flood
    kept, cut, other = result.stdout, result.stdout_cut_bytes, result.stderr
    if redirect:
        kept, cut, other = result.stderr, result.stderr_cut_bytes, result.stdout
    assert kept == b"y\n" * 500 + b"y"
    assert cut > 1_000_000
    assert other == b""
    assert result.timed_out


@pytest.mark.parametrize("redirect", ["", " >&2"])
async def test_b2_two_gigabytes_are_counted_exactly_and_the_exit_code_is_kept(
    machine: Machine, redirect: str
) -> None:
    result = await run(machine, f"head -c 2G /dev/zero{redirect}; exit 7", 60, output_bytes=10)
    cut = (result.stdout_cut_bytes, result.stderr_cut_bytes)
    assert cut == ((0, 2 * 1024**3 - 10) if redirect else (2 * 1024**3 - 10, 0))
    assert result.stdout + result.stderr == bytes(10)
    assert result.exit_code == 7


async def test_b3_bytes_are_kept_as_they_are_and_streams_apart(machine: Machine) -> None:
    result = await run(machine, r"printf '\xff\xe2\x82\0'; printf '\0\xfe' >&2")
    assert result.stdout == b"\xff\xe2\x82\0"
    assert result.stderr == b"\0\xfe"
    cut = await run(machine, r"printf 'a\xc3\xa9b'", output_bytes=2)
    assert (cut.stdout, cut.stdout_cut_bytes) == (b"a\xc3", 2)


async def test_the_last_output_of_a_shell_is_never_lost(machine: Machine) -> None:
    for size in (65_536, 1_000_000):
        result = await run(machine, f"head -c {size} /dev/zero", output_bytes=1_000_000)
        assert result.stdout == bytes(size)


async def test_a_writer_that_is_just_finishing_is_waited_for(machine: Machine) -> None:
    # On a loaded host one may come too late; without any wait each one does.
    seen = [(await run(machine, "(sleep 0.02; echo late) & echo early")).stdout for _ in range(5)]
    assert b"early\nlate\n" in seen


async def test_what_ended_a_command_is_told_apart(machine: Machine) -> None:
    assert (await run(machine, "exit 137")).exit_code == 137
    killed = await run(machine, "kill -9 $$")
    assert (killed.exit_code, killed.signal, killed.timed_out) == (None, "SIGKILL", False)
    # A pipe's writer must die of the signal that Python, the first process, ignores.
    assert (await run(machine, "yes | head -1; exit ${PIPESTATUS[0]}")).exit_code == 128 + 13


@pytest.mark.parametrize("command", ["x" * 200_000, "echo \0", "echo \udead"])
async def test_a_command_that_no_shell_can_be_given_is_a_result(
    machine: Machine, command: str
) -> None:
    result = await run(machine, command)
    assert result.exit_code == 126
    assert result.stderr.startswith(b"cannot start a shell: ")
    assert (await run(machine, "echo $?")).stdout == b"0\n"


async def test_a_background_server_outlives_the_pipe_that_it_logs_to(machine: Machine) -> None:
    await run(machine, "touch ticks; (while sleep 0.02; do echo tick; echo >> ticks; done) &")
    waiting = 'n=$(wc -l < ticks); until [ "$(wc -l < ticks)" -gt $((n + 3)) ]; do :; done'
    assert (await run(machine, waiting)).exit_code == 0


async def test_signals_from_inside_do_not_end_the_machine(machine: Machine) -> None:
    await run(machine, "sleep 31415 &")
    result = await run(
        machine, "for n in $(seq 1 64); do kill -$n 1; done; kill -9 -1; kill -STOP -1; echo on"
    )
    assert result.stdout == b"on\n"
    assert b"31415" not in await arguments_of_all(machine)


@pytest.mark.parametrize(
    "reach",
    [
        "ls /proc/1/fd/",
        "echo forged > /proc/1/fd/10",
        "cat /proc/1/fd/10",
        "head -c 1 /proc/1/mem",
        "cat /proc/1/environ",
        "cat /proc/1/maps",
        "ls /proc/1/cwd/",
    ],
)
async def test_the_first_process_is_out_of_a_commands_reach(machine: Machine, reach: str) -> None:
    allowed = await run(machine, reach.replace("/proc/1/", "/proc/$$/"), 1)
    denied = await run(machine, reach)
    assert denied.exit_code != 0
    assert b"ermission denied" in denied.stderr
    assert b"ermission denied" not in allowed.stderr, "the attempt says nothing"


async def test_a_command_inherits_its_three_descriptors_alone(machine: Machine) -> None:
    # What the shell held open to list its descriptors is gone when they are looked at.
    result = await run(machine, "for f in /proc/$$/fd/*; do [ -e $f ] && echo ${f##*/}; done")
    assert result.stdout.split() == [b"0", b"1", b"2"]


async def test_the_workspace_is_full_at_its_size_and_usable_again(machine: Machine) -> None:
    result = await run(machine, "head -c 100M /dev/zero > big; e=$?; stat -c %s big; exit $e")
    assert result.exit_code != 0
    assert b"No space left" in result.stderr
    assert int(result.stdout) <= LIMITS.workspace_mib << 20
    many = await run(
        machine, "rm big; mkdir d; for n in $(seq 9000); do : > d/$n || break; done; exec ls d"
    )
    assert b"No space left" in many.stderr
    again = await run(machine, "rm -r d; echo room > small; cat small")
    assert again.stdout == b"room\n"


async def test_hundreds_of_orphans_are_reaped(machine: Machine) -> None:
    result = await run(machine, "for n in $(seq 300); do (true & true &); done; echo made", 60)
    assert result.stdout == b"made\n"
    gone = await run(
        machine, "while grep -qs '^State:.Z' /proc/[0-9]*/status; do :; done; echo /proc/[0-9]*"
    )
    assert gone.exit_code == 0
    assert len(gone.stdout.split()) < 10


async def test_a_fork_bomb_ends_with_its_command(machine: Machine) -> None:
    bomb = "bash -c 'f() { while :; do f & done; }; f' 2>/dev/null"
    result = await run(machine, bomb, timeout_seconds=1.5)
    assert result.timed_out
    assert (await run(machine, "echo next")).stdout == b"next\n"
    assert len((await run(machine, "echo /proc/[0-9]*")).stdout.split()) < 10


FILL = """
import os, resource, signal, sys
soft, hard = resource.getrlimit(resource.RLIMIT_NPROC)
if sys.argv[1] == "greedy":
    soft = hard
resource.setrlimit(resource.RLIMIT_NPROC, (soft, hard))
while True:
    try:
        if os.fork() == 0:
            signal.pause()
    except BlockingIOError:
        open("full", "w").close()
"""


def fill(machine: Machine, how: str) -> asyncio.Task[ExecResult]:
    """Takes every process that becomes free, until it is killed."""
    return asyncio.create_task(run(machine, f"exec python3 -I -S -c '{FILL}' {how}", 60))


async def test_a_machine_that_is_full_of_processes_can_be_cleared(machine: Machine) -> None:
    filling = fill(machine, "modest")
    await run(machine, "until [ -e full ]; do :; done")
    for _ in range(5):
        assert (await run(machine, "echo room")).stdout == b"room\n"
    assert (await run(machine, "kill -9 -1; echo cleared")).stdout == b"cleared\n"
    assert (await filling).signal == "SIGKILL"
    assert len((await run(machine, "echo /proc/[0-9]*")).stdout.split()) < 10


async def test_a_shell_that_finds_no_room_is_a_result(machine: Machine) -> None:
    """Programs may take what is reserved for shells, if they ask for it."""
    filling = fill(machine, "greedy")
    await run(machine, "until [ -e full ]; do :; done")
    # The filler may need a moment to take the place of the command before.
    for _ in range(50):
        result = await run(machine, "echo no")
        if result.exit_code != 0:
            break
    assert (result.exit_code, result.stdout) == (126, b"")
    assert result.stderr == b"cannot start a shell: Resource temporarily unavailable\n"
    filling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await filling
    assert (await run(machine, "echo room")).stdout == b"room\n"


@pytest.mark.parametrize("limit", ["NOFILE", "AS", "DATA", "STACK", "CPU", "NPROC", "FSIZE"])
async def test_a_crippled_first_process_costs_its_own_machine_at_most(
    jailer: Jailer, machine: Machine, limit: str
) -> None:
    """The kernel lets equals of a process lower its limits; nobody may have to wait for it."""
    cripple = f"import resource; resource.prlimit(1, resource.RLIMIT_{limit}, (0, 0))"
    async with asyncio.timeout(30):
        with suppress(MachineLost):
            assert (await run(machine, f"python3 -I -S -c '{cripple}'")).stderr == b""
            await run(machine, "yes | head -c 1000000", output_bytes=1_000_000)
        await machine.close()
    other = await Machine.start(jailer, LIMITS)
    assert (await run(other, "echo on")).stdout == b"on\n"
    await other.close()


async def test_a_memory_bomb_ends_alone(machine: Machine) -> None:
    require_memory_cgroup()
    await run(machine, "echo kept > note")
    result = await run(machine, "head -c 2G /dev/zero | tail; exit ${PIPESTATUS[1]}", 60)
    assert result.exit_code == 137
    assert (await run(machine, "cat note")).stdout == b"kept\n"


async def test_a_machine_has_no_network(machine: Machine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        host = await run(machine, f"exec 3<> /dev/tcp/127.0.0.1/{port}")
        assert b"refused" in host.stderr
        server.settimeout(0)
        with pytest.raises(BlockingIOError):
            server.accept()
    outside = await run(machine, "exec 3<> /dev/tcp/198.51.100.1/80")
    assert b"unreachable" in outside.stderr


async def test_closing_ends_what_runs_and_leaves_nothing(jailer: Jailer) -> None:
    machine = await Machine.start(jailer, LIMITS)
    mark = f"31415.{time.monotonic_ns()}"
    await run(machine, f"sleep {mark} & setsid sleep {mark} &")
    running = asyncio.create_task(run(machine, f"sleep {mark}"))
    await run(machine, f"until [ $({ARGUMENTS_OF_ALL} | grep -cx {mark}) = 3 ]; do :; done")
    assert len(host_processes(mark)) == 3
    await machine.close()
    assert host_processes(mark) == []
    with pytest.raises(MachineLost, match="closed"):
        await running
    with pytest.raises(MachineLost, match="closed"):
        await run(machine, "true")
    assert not machine.alive
    await machine.close()


async def test_a_jail_that_dies_in_a_command_is_a_lost_machine(machine: Machine) -> None:
    mark = f"31415.{time.monotonic_ns()}"
    await run(machine, f"(setsid sleep {mark} &)")
    (orphan,) = host_processes(mark)
    running = asyncio.create_task(run(machine, "sleep 31415"))
    os.kill(parent_of(orphan), 9)
    with pytest.raises(MachineLost, match="SIGKILL"):
        await running
    assert not machine.alive
    assert host_processes(mark) == []


async def test_two_machines_share_nothing(jailer: Jailer) -> None:
    first, second = await asyncio.gather(
        Machine.start(jailer, LIMITS), Machine.start(jailer, LIMITS)
    )
    await run(first, "echo x > /workspace/a; echo x > /tmp/a; echo x > /dev/shm/a; sleep 31415 &")
    seen = await run(second, f"ls /workspace /tmp /dev/shm; {ARGUMENTS_OF_ALL}")
    assert b"a\n" not in seen.stdout.split(b"/dev/shm")[0]
    assert b"31415" not in seen.stdout
    await first.close()
    assert (await run(second, "echo on")).stdout == b"on\n"
    await second.close()
