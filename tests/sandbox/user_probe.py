"""Run as an ordinary user by `test_jail_ordinary_user`: makes jails and prints what was seen.

Standard library only: this user's Python has none of the test's packages.
"""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

from jail_programs import limits, marked, new_mark, nothing_left, python, status

from subako_ray.sandbox.lease import Jailer
from subako_ray.sandbox.spec import BindMount, IsolationSettings, JailUnavailable

WAIT = "import signal; print('up', flush=True)\nwhile True: signal.pause()"


async def main(nsjail: Path, folder: Path) -> dict[str, object]:
    found: dict[str, object] = {}
    try:
        await (await Jailer.start(IsolationSettings(nsjail=nsjail))).aclose()
    except JailUnavailable as error:
        found["refused"] = [error.message, error.help_text]
    jailer = await Jailer.start(IsolationSettings(nsjail=nsjail, limits="best-effort"))
    mark = new_mark()
    lease = await jailer.acquire(python(WAIT, mark))
    await lease.reader.readline()
    (process_id,) = marked(mark)
    found["status"] = status(process_id)
    report = await lease.release()
    found["release"] = [report.verdict, report.leaked_processes, list(report.unenforced)]
    found["after release"] = marked(mark)

    lease = await jailer.acquire(python("x = bytearray(300 << 20)", limits=limits(memory_mib=64)))
    report = await lease.ended()
    found["memory"] = [report.exit_code, report.stderr.decode().splitlines()[-1]]
    await lease.release()

    own = folder / "own"
    own.mkdir(mode=0o700)
    (own / "file").write_text("content")
    program = "import os; print(open('/own/file').read(), os.path.exists('/proc/self'))"
    mounts = (BindMount(source=own, target="/own"),)
    lease = await jailer.acquire(python(program, mounts=mounts))
    found["own folder"] = (await lease.reader.read()).decode()
    await lease.release()

    lease = await jailer.acquire(python(WAIT, mark))
    await lease.reader.readline()
    guardian = jailer.process_id
    assert guardian is not None
    children = Path(f"/proc/{guardian}/task/{guardian}/children").read_text().split()
    os.kill(int(children[0]), signal.SIGKILL)
    found["jailer killed"] = (await lease.ended()).verdict
    await nothing_left(mark)
    await lease.release()
    await jailer.aclose()
    return found


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2])))))
