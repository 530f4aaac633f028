"""Small jobs for bench/pipelines.py: the same windows over the same topic, by us and by
confluent-kafka with Polars and with pandas.

Once inside programs that run already, and once as commands, from their start to a
table of SQLite's.
"""

import contextlib
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from bench_environment import missing_modules, skipped
from pipeline_queries import OURS, SCHEMA, Queries, windows
from rounds import CpuClock, Taken

LIBRARIES = ("polars", "pandas")
_RIVAL = [sys.executable, str(Path(__file__).with_name("pipeline_rival.py"))]
_FLOW = """\
name = "job"
checkpoint = "job"
[source]
bootstrap_servers = "{bootstrap}"
topics = ["{topic}"]
max_offsets_per_trigger = 100000000
format = {{ type = "json", columns = {{ id = "bigint", airline = "string", delay = "int", at = "timestamp" }} }}
[aggregate]
time = "at"
window = "1 minute"
watermark = "1 day"
group_by = ["airline"]
compute = {{ delay = "avg(delay)", flights = "count(*)" }}
[[sinks]]
type = "sqlite"
path = "out.db"
table = "t"
"""


def rivals() -> list[str]:
    """Those whose packages are here."""
    found = []
    for each in LIBRARIES:
        if missing_modules([each]):
            skipped(f"confluent-kafka with {each}: it is not installed")
        else:
            found.append(each)
    return found


@contextlib.contextmanager
def running_jobs(queries: Queries) -> Iterator[dict[str, Callable[[], Taken]]]:
    """The job by each contestant, in a process that goes on."""
    topic = queries.topic()
    found: set[tuple[int, int]] = set()

    def ours() -> Taken:
        clock = queries.clock()
        options = {"kafka.bootstrap.servers": queries.bootstrap, "subscribe": topic}
        frame = queries.spark.read.format(OURS).options(**options).load()
        parsed = frame.selectExpr(f"from_json(cast(value as string), '{SCHEMA}') r").select("r.*")
        rows = windows(parsed).collect()
        taken = clock.taken()
        require_equal(found, len(rows), sum(each[-1] for each in rows))
        return taken

    def job_of(process: "subprocess.Popen[str]") -> Callable[[], Taken]:
        def job() -> Taken:
            assert process.stdin
            assert process.stdout
            clock = CpuClock(process.pid)
            process.stdin.write("\n")
            process.stdin.flush()
            answer = process.stdout.readline()
            taken = clock.taken()
            if not answer:
                raise SystemExit(f"{process.args} ended")
            said = json.loads(answer)
            require_equal(found, said["groups"], said["rows"])
            return taken

        return job

    with contextlib.ExitStack() as stack:
        jobs: dict[str, Callable[[], Taken]] = {OURS: ours}
        for library in rivals():
            command = [*_RIVAL, library, queries.bootstrap, topic]
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            stack.enter_context(process)  # closes its input, and waits for its end
            jobs[library] = job_of(process)
        queries.without_clusters([*queries.clusters, *_children(os.getpid(), "pipeline_rival.py")])
        yield jobs


def commands(queries: Queries) -> dict[str, Callable[[], Taken]]:
    """The job by each contestant, from the command to the table."""
    topic = queries.topic()
    found: set[tuple[int, int]] = set()

    def of(library: str) -> Callable[[], Taken]:
        def job() -> Taken:
            with tempfile.TemporaryDirectory() as folder:
                database = Path(folder) / "out.db"
                command = [*_RIVAL, library, queries.bootstrap, topic, str(database)]
                if library == OURS:
                    flow = Path(folder) / "flow.toml"
                    flow.write_text(_FLOW.format(bootstrap=queries.bootstrap, topic=topic))
                    command = [sys.executable, "-m", "barnabas", "pipeline", "run", str(flow), "--once", "--quiet"]
                taken = timed(command)
                with contextlib.closing(sqlite3.connect(database)) as connection:
                    require_equal(found, *connection.execute("SELECT count(*), sum(flights) FROM t").fetchone())
            return taken

        return job

    return {each: of(each) for each in (OURS, *rivals())}


def timed(command: list[str]) -> Taken:
    """What a command takes, with its children."""
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        clock = CpuClock(process.pid)
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        taken = clock.taken()
    if process.returncode:
        raise SystemExit(f"{command} ended with {process.returncode}")
    return taken


def require_equal(found: set[tuple[int, int]], groups: int, rows: int) -> None:
    """End the program if contestants have found different things."""
    found.add((groups, rows))
    if len(found) > 1:
        raise SystemExit(f"the contestants found different groups and rows: {sorted(found)}")


def _children(parent: int, word: str) -> list[int]:
    """Processes of the parent with this word in their command line."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            fields = (path / "stat").read_text().rpartition(")")[2].split()
            if int(fields[1]) == parent and word in (path / "cmdline").read_text():
                found.append(int(path.name))
    return found
