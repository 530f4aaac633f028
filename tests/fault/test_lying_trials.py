"""Every command that asks brokers against a broker that lies: each lie ends in words, in
time, and in little memory.

CI tells each command one lie about each API that it uses; ``make trials`` tells all
(``BARNABAS_LIES``).
"""

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from barnabas.cli.output.exit_codes import INCOMPLETE
from barnabas.testing import Cluster
from barnabas.wire.kafka.api import ApiKey
from support.lying_broker import Lie, LyingBroker, huge_lies, lies
from support.lying_commands import (
    CHANGING,
    OF_LIBRDKAFKA,
    READING,
    Command,
    asked_by,
    run_lied_to,
    small_cluster,
)

pytestmark = pytest.mark.fault

LIES = int(os.environ.get("BARNABAS_LIES", "1"))
"""How many about each API, to each command."""
SEED = int(os.environ.get("BARNABAS_SEED", "1"))
ELEMENTS = int(os.environ.get("BARNABAS_ELEMENTS", "500000"))
MEMORY_MIB = 160
"""Beyond what the command takes without a lie."""
ALL = 1000
LONGEST_S = 60.0
MIRROR_S = 5.0
_MEASURED = (
    "import sys\n"
    "from barnabas.cli.main import main\n"
    "code = main(sys.argv[1:])\n"
    "sys.stdout.flush()\n"
    "peak = next(line for line in open('/proc/self/status') if line.startswith('VmHWM'))\n"
    "print('PEAK', int(peak.split()[1]) // 1024, file=sys.stderr)\n"
    "sys.exit(code)\n"
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with small_cluster() as made:
        yield made


@pytest.fixture
def liar(cluster: Cluster) -> Iterator[LyingBroker]:
    with LyingBroker(int(cluster.bootstrap_servers.rpartition(":")[2])) as made:
        yield made


def chosen(random: Random, api_key: int, version: int) -> list[Lie]:
    found = list(lies(api_key, version))
    return found if len(found) <= LIES else random.sample(found, LIES)


@pytest.mark.timeout(3600)
def test_every_command_answers_a_lie_with_one_error_line(
    cluster: Cluster, liar: LyingBroker, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """No traceback, no hang, and no failure without a word; a lie that an honest broker
    could tell may be believed."""
    random = Random(SEED)
    wrong, statuses = [], Counter[int]()
    longest_s = 0.0
    for command in (*READING, *CHANGING):
        asked, honest = asked_by(command, cluster, liar, tmp_path)
        assert honest.is_clear, f"{command.name}: {honest.text}"
        for api_key, version in asked.items():
            for lie in chosen(random, api_key, version):
                liar.tell(api_key, lie)
                began = time.monotonic()
                outcome = run_lied_to(command, cluster, liar, tmp_path)
                longest_s = max(longest_s, time.monotonic() - began)
                statuses[outcome.status] += 1
                if not outcome.is_clear:
                    wrong.append(f"{command.name}, {ApiKey(api_key).title}, {lie.name}: {outcome.text[-500:]}")
    record_property("commands", len(READING) + len(CHANGING))
    record_property("lies", statuses.total())
    record_property("ended with 0, 1, 3", f"{statuses[0]}, {statuses[1]}, {statuses[3]}")
    record_property("tracebacks", statuses[-1])
    record_property("hangs", statuses[-2])
    record_property("the longest, s", round(longest_s, 1))
    assert wrong == []


def measured(command: Command, address: str, folder: Path) -> tuple[int, int, str]:
    """The status of a command in a process of its own, the most memory that it had
    in MiB, and its errors."""
    config = "request.timeout.ms=60000\ndefault.api.timeout.ms=60000\nsocket.connection.setup.timeout.ms=60000\n"
    arguments = [*command.arguments(address, folder), "--connect-timeout", "60"]
    (folder / "client.properties").write_text(config)
    done = subprocess.run(
        [sys.executable, "-c", _MEASURED, *arguments], capture_output=True, text=True, timeout=120, check=False
    )
    *errors, peak = done.stderr.strip().splitlines()
    return done.returncode, int(peak.split()[1]), "\n".join(errors)


HUGE = (("topics", ApiKey.METADATA, "topics.partitions"), ("consumer-groups", ApiKey.LIST_GROUPS, "groups"))
"""What CI tells. Others: what each command asks."""


@pytest.mark.timeout(7200)
def test_answers_too_large_to_hold_are_refused_in_little_memory(
    cluster: Cluster, liar: LyingBroker, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """An answer's size is known before its elements are made."""
    wrong, tried, most = [], 0, 0
    told = set()
    for command in READING:
        if LIES < ALL and not any(command.line.startswith(f"{name} ") for name, _, _ in HUGE):
            continue
        asked, _ = asked_by(command, cluster, liar, tmp_path)
        before = measured(command, liar.address, tmp_path)[1] if LIES >= ALL else 30
        for api_key, version in asked.items():
            for lie in huge_lies(api_key, version, ELEMENTS):
                path = lie.name.partition(":")[0]
                if LIES < ALL and (command.line.split()[0], api_key, path) not in HUGE:
                    continue
                if (api_key, path) in told:  # the reader is the same for all commands
                    continue
                told.add((api_key, path))
                liar.tell(api_key, lie)
                status, peak, errors = measured(command, liar.address, tmp_path)
                tried += 1
                most = max(most, peak - before)
                if status not in (0, 1, INCOMPLETE) or peak - before > MEMORY_MIB or "Traceback" in errors:
                    wrong.append(f"{command.name}, {ApiKey(api_key).title}, {lie.name}: {status}, {peak} MiB, {errors}")
    record_property("lies", tried)
    record_property("memory at most, MiB beyond an honest answer", most)
    assert tried >= len(HUGE)
    assert wrong == []


def end_of(arguments: list[str], *, is_endless: bool) -> tuple[int | str, str]:
    """The status of a command, "hangs" for none, and its errors."""
    process = subprocess.Popen(
        [sys.executable, "-m", "barnabas", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )
    try:
        with suppress(subprocess.TimeoutExpired):
            _, errors = process.communicate("one\ntwo\n", timeout=MIRROR_S if is_endless else LONGEST_S)
            return process.returncode, errors
        if is_endless:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                _, errors = process.communicate(timeout=LONGEST_S)
                return process.returncode, errors
        return "hangs", ""
    finally:
        process.kill()
        process.communicate()


TWICE = ("topics: all twice", "topics.partitions.leader_id is 77")
"""What CI tells a mirror and a consumer about Metadata: a partition twice in an assignment
once looked like Ctrl-C."""


@pytest.mark.timeout(7200)
def test_commands_that_read_and_write_records_end_whatever_they_hear(
    cluster: Cluster, liar: LyingBroker, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """librdkafka takes what it hears in its own way; what it reports is said, and nothing hangs."""
    random = Random(SEED)
    wrong, tried = [], 0
    with Cluster() as target:
        (tmp_path / "target.properties").write_text(f"bootstrap.servers={target.bootstrap_servers}\n")
        for line in OF_LIBRDKAFKA:
            is_mirror = line.startswith("mirror-maker")
            (tmp_path / "source.properties").write_text(
                f"bootstrap.servers={liar.address}\ngroup.id=mirror\nauto.offset.reset=earliest\n"
            )
            arguments = [word.format(server=liar.address, folder=tmp_path) for word in line.split()]
            if LIES < ALL:
                if not is_mirror:
                    continue
                told = [(int(ApiKey.METADATA), lie) for lie in lies(ApiKey.METADATA, 12) if lie.name in TWICE]
            else:
                liar.tell(-1, None)
                end_of(arguments, is_endless=is_mirror)
                told = [
                    (api_key, lie)
                    for api_key, version in dict(liar.seen).items()
                    for lie in random.sample(list(lies(api_key, version)), 5)
                ]
            for api_key, lie in told:
                liar.tell(api_key, lie)
                status, errors = end_of(arguments, is_endless=is_mirror)
                tried += 1
                if status not in (0, 1, 3) or "Traceback" in errors or (status and not errors.strip()):
                    wrong.append(f"{line}, {ApiKey(api_key).title}, {lie.name}: {status} {errors[-500:]}")
    record_property("lies", tried)
    assert wrong == []
