"""The consumer group lab, with our tools, on our broker and on Apache's."""

import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from barnabas.client import Admin
from support.needs import CUSTOMERS, needs, needs_reference
from support.reference import apache_cluster
from support.servers import BARNABAS, barnabas, up
from support.waiting import eventually

pytestmark = [pytest.mark.interop]


@pytest.fixture(scope="module", params=["ours", pytest.param("apache", marks=[pytest.mark.java, needs_reference])])
def bootstrap(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A cluster of three brokers, or one of Apache's."""
    directory = tmp_path_factory.mktemp(request.param)
    with up(directory, brokers=3) if request.param == "ours" else apache_cluster(directory) as cluster:
        yield cluster.bootstrap


class Reader:
    """A console consumer in a group, its output in a file."""

    def __init__(self, bootstrap: str, topic: str, group: str, output: Path) -> None:
        self._path = output
        self._output = output.open("wb")
        command = [*BARNABAS, "console-consumer", "--bootstrap-server", bootstrap, "--topic", topic]
        self._process = subprocess.Popen(
            [*command, "--group", group, "--from-beginning"], stdout=self._output, stderr=subprocess.PIPE
        )

    def stop(self) -> list[bytes]:
        """Ctrl-C; the lines it printed."""
        self._process.send_signal(signal.SIGINT)
        _, errors = self._process.communicate(timeout=60)
        self._output.close()
        lines = self._path.read_bytes().splitlines()
        assert self._process.returncode == 130
        assert f"Processed a total of {len(lines)} messages".encode() in errors
        return lines


@needs("../shared/data/customers.csv")
@pytest.mark.parametrize("members", [2, 5])
def test_a_group_shares_the_customers_by_partitions(bootstrap: str, members: int, tmp_path: Path) -> None:
    """Every record once, each member the whole of its partitions, and members beyond
    the partitions idle."""
    topic, group = f"customers-{members}", f"customer-group-{members}"
    broker = ["--bootstrap-server", bootstrap]
    made = barnabas("topics", *broker, "--create", "--topic", topic, "--partitions", 3, "--replication-factor", 1)
    assert made.stdout == f"Created topic {topic}.\n", made.stderr
    with ExitStack() as stack, Admin({"bootstrap.servers": bootstrap}) as admin:
        readers = []
        for number in range(members):
            readers.append(Reader(bootstrap, topic, group, tmp_path / f"{number}.csv"))
            stack.callback(readers[-1]._process.kill)

        def all_joined() -> bool:
            described = admin.describe_group(group)
            owned = [len(member.partitions) for member in described.members]
            return described.state == "Stable" and len(owned) == members and sum(owned) == 3

        eventually(all_joined, what=f"{members} members share the partitions")
        with CUSTOMERS.open("rb") as file:
            sent = subprocess.run(
                [*BARNABAS, "console-producer", *broker, "--topic", topic], stdin=file, timeout=60, check=False
            )
        assert sent.returncode == 0
        expected = sorted(line.rstrip(b"\r") for line in CUSTOMERS.read_bytes().splitlines())

        def all_read() -> bool:
            committed = admin.group_offsets(group)
            return sum(committed.values()) == len(expected)

        eventually(all_read, what="everything is read and committed")
        shares = sorted((reader.stop() for reader in readers), key=len)
    assert sorted(line for lines in shares for line in lines) == expected
    listed = barnabas("get-offsets", *broker, "--topic", topic).stdout.split()
    sizes = sorted(int(row.split(":")[2]) for row in listed)
    assert sum(sizes) == len(expected)
    counts = [len(lines) for lines in shares]
    if members == 2:
        assert counts[0] in sizes
        assert counts[1] == sum(sizes) - counts[0]
    else:
        assert counts == [0, 0, *sizes]
