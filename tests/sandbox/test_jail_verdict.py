"""The verdict from evidence, as nsjail 3.6 writes it."""

from typing import Literal

import pytest

from subako_ray.sandbox.verdict import Evidence, Judgement, judge

START = (
    "[I][2026-12-01T03:00:00+0000] Mode: STANDALONE_ONCE\n"
    "[I][2026-12-01T03:00:00+0000] Executing '/usr/bin/python3' for '[STANDALONE MODE]'\n"
)
END = "[I][2026-12-01T03:00:01+0000] pid=19303 ([STANDALONE MODE]) "
EXITED_0 = END + "exited with status: 0, (PIDs left: 0)\n"
KILLED = END + "terminated with signal: SIGKILL (9), (PIDs left: 0)\n"
NEVER_RAN = (
    "[E][2026-12-01T03:00:00+0000][7] mountPt():1 mount('/x' -> '/y'): Permission denied\n"
    "[E][2026-12-01T03:00:00+0000][7] runChild():2 Couldn't launch the child process\n"
)


def verdict(
    log: str, *, memory_kills: int = 0, stopped: Literal["timed_out", "killed"] | None = None
) -> Judgement:
    return judge(Evidence(stopped=stopped, log=log.encode(), memory_kills=memory_kills))


@pytest.mark.parametrize("code", [0, 1, 137, 255])
def test_an_exit_is_an_exit_whatever_its_code(code: int) -> None:
    log = START + END + f"exited with status: {code}, (PIDs left: 0)\n"
    assert verdict(log) == Judgement(verdict="exited", exit_code=code)


def test_a_signal_is_named() -> None:
    log = START + END + "terminated with signal: SIGSEGV (11), (PIDs left: 0)\n"
    assert verdict(log) == Judgement(verdict="signalled", signal="SIGSEGV")


def test_a_forbidden_system_call_is_a_signal() -> None:
    log = START + (
        "[W][2026-12-01T03:00:01+0000][7] reapProc():1 pid=9 committed a syscall/seccomp violation "
        "and exited with SIGSYS\n"
    )
    assert verdict(log) == Judgement(verdict="signalled", signal="SIGSYS")


def test_a_kill_is_lack_of_memory_only_if_the_cgroup_counted_one() -> None:
    assert verdict(START + KILLED).verdict == "signalled"
    assert verdict(START + KILLED, memory_kills=1).verdict == "out_of_memory"


def test_a_child_killed_for_memory_does_not_change_its_parents_exit() -> None:
    assert verdict(START + EXITED_0, memory_kills=1) == Judgement(verdict="exited", exit_code=0)


def test_nsjail_killed_for_memory_is_lack_of_memory() -> None:
    assert verdict(START, memory_kills=2).verdict == "out_of_memory"


@pytest.mark.parametrize("later", ["", KILLED, END + "exited with status: 255, (PIDs left: 0)\n"])
def test_a_jail_that_could_not_be_made_never_ran_however_its_process_ended(later: str) -> None:
    judgement = verdict(START + NEVER_RAN + later, memory_kills=1)
    assert judgement.verdict == "jail_failed"
    assert judgement.detail == "mount('/x' -> '/y'): Permission denied"


def test_what_the_jailer_did_itself_comes_first() -> None:
    for log in (START, START + KILLED, START + NEVER_RAN):
        assert verdict(log, stopped="timed_out", memory_kills=1).verdict == "timed_out"
        assert verdict(log, stopped="killed", memory_kills=1).verdict == "killed"


def test_nsjails_own_limit_is_a_limit() -> None:
    log = START + (
        "[I][2026-12-01T03:00:09+0000] pid=9 run time >= time limit (9 >= 9) ([STANDALONE MODE]). "
        "Killing it\n"
    )
    assert verdict(log + KILLED).verdict == "timed_out"


def test_without_a_last_word_nothing_is_known() -> None:
    assert verdict(START).verdict == "supervisor_lost"
    assert verdict("").verdict == "supervisor_lost"


def test_a_line_that_only_quotes_another_decides_nothing() -> None:
    quoting = "[I][2026-12-01T03:00:00+0000] process:'x pid=1 (y) exited with status: 7, [F][x'\n"
    assert verdict(START + quoting + EXITED_0).exit_code == 0
