"""kcat, with the librdkafka of its distribution (years older than the one of our
Python clients)."""

import json
import subprocess

import pytest

from support.needs import needs
from support.servers import Up, up

pytestmark = [pytest.mark.interop, needs("kcat")]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory):
    """One broker for the module."""
    with up(tmp_path_factory.mktemp("kcat")) as running:
        yield running


def kcat(cluster: Up, *args: str, text: str = "") -> str:
    command = ["kcat", "-b", cluster.bootstrap, "-X", "log_level=0", *args]
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_lines_go_in_and_come_out_through_every_codec(cluster: Up, codec: str) -> None:
    """Keys, values and their order in the one partition."""
    lines = [f"k{n}:{n} {'x' * 50}" for n in range(1000)]
    kcat(cluster, "-P", "-t", f"t-{codec}", "-z", codec, "-K:", text="\n".join(lines))
    read = kcat(cluster, "-C", "-t", f"t-{codec}", "-o", "beginning", "-e", "-q", "-K:").splitlines()
    assert read == lines


def test_metadata_is_listed_as_json(cluster: Up) -> None:
    """The broker, the controller and a topic's partitions."""
    kcat(cluster, "-P", "-t", "listed", text="one\n")
    listing = json.loads(kcat(cluster, "-L", "-J"))
    assert [broker["id"] for broker in listing["brokers"]] == [0]
    assert listing["controllerid"] == 0
    (topic,) = [topic for topic in listing["topics"] if topic["topic"] == "listed"]
    assert [(p["partition"], p["leader"], p["isrs"]) for p in topic["partitions"]] == [(0, 0, [{"id": 0}])]


def test_a_group_reads_what_another_run_left(cluster: Up) -> None:
    """The balanced consumer commits, and the next run of the group goes on after it."""
    kcat(cluster, "-P", "-t", "grouped", text="one\ntwo\n")
    settings = ("-X", "auto.offset.reset=earliest", "-e", "-q")
    assert kcat(cluster, "-G", "readers", *settings, "grouped").splitlines() == ["one", "two"]
    kcat(cluster, "-P", "-t", "grouped", text="three\n")
    assert kcat(cluster, "-G", "readers", *settings, "grouped").splitlines() == ["three"]


def test_an_offset_is_found_by_its_timestamp(cluster: Up) -> None:
    """ListOffsets by time, of the past and of the future."""
    kcat(cluster, "-P", "-t", "timed", text="one\ntwo\n")
    assert "offset 0" in kcat(cluster, "-Q", "-t", "timed:0:1")
