"""Dead letters at their worst: too large, without keys, in a topic that takes
little; and their way back."""

import os
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
pytest.importorskip("pyspark")

from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource  # noqa: E402

from barnabas.pipelines.dead_letters.replay import replay_dead_letters  # noqa: E402
from barnabas.pipelines.running.run import run_on  # noqa: E402
from barnabas.pipelines.specification import spec  # noqa: E402

FLOW = """\
name = "{topic}"
checkpoint = "state"
[source]
bootstrap_servers = "{bootstrap}"
topics = ["{topic}"]
bad_rows_topic = "{letters}"
format = {{ type = "{type}", columns = {{ {column} }} }}
[[sinks]]
type = "sqlite"
path = "out.db"
table = "t"
"""


def set_config(cluster: Any, topic: str, name: str, value: str) -> None:
    """Another value for a topic's setting."""
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource("topic", topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.incremental_alter_configs([resource])[resource].result(60)


def test_no_bad_record_is_too_large_for_the_dead_letters_and_all_come_back(
    spark: Any, cluster: Any, tmp_path: Path
) -> None:
    """They are cut, counted, and written once; a replay reads the whole records, and loses
    none that a topic refuses."""
    topic = cluster.topic(1)
    letters = cluster.topic(1, {"max.message.bytes": "3000", "cleanup.policy": "compact"})
    values = {"topic": topic, "letters": letters, "bootstrap": cluster.bootstrap}
    text = FLOW.format(**values, type="json", column='id = "int"')
    flow = spec.parse(text, file=str(tmp_path / "flow.toml"))
    # A text: one that is not UTF-8 would be a bad row again.
    huge = os.urandom(524_200).hex().encode()
    records: list[tuple[bytes | None, bytes | None]] = [
        (None, b"no json"), (b"k", huge), (None, b'{"id":1}'), (os.urandom(4000), None), (b"h", b"headers"),
    ]  # fmt: skip
    for record in records[:-1]:
        cluster.produce(topic, [record])
    repeated: Any = [("a", b"1"), ("a", None), ("big", os.urandom(5000)), ("a", b"\xff\xfe")]
    cluster.produce(topic, records[-1:], headers=repeated)
    summary = run_on(spark, flow)
    assert sqlite3.connect(tmp_path / "out.db").execute("select id from t").fetchall() == [(1,)]
    assert (summary["bad_rows"], summary["cut_letters"]) == (4, 3)
    assert summary["cut_letter_example"].startswith(f"{topic}-0-")
    found = {dict(each.headers())["barnabas.source"].decode(): each for each in cluster.read(letters)}
    assert sorted(found) == [f"{topic}-0-{offset}" for offset in (0, 1, 3, 4)]
    assert len(cluster.read(letters)) == 4
    assert (found[f"{topic}-0-0"].key(), found[f"{topic}-0-0"].value()) == (f"{topic}-0-0".encode(), b"no json")
    cut = found[f"{topic}-0-1"]
    assert huge.startswith(cut.value())
    assert int(dict(cut.headers())["barnabas.cut"]) == len(huge) - len(cut.value())
    assert (records[3][0] or b"").startswith(found[f"{topic}-0-3"].key())
    assert found[f"{topic}-0-4"].value() == b"headers"

    # The micro-batch breaks after its letters were written.
    shutil.rmtree(tmp_path / "state" / "bad-rows" / "commits")
    run_on(spark, flow)
    assert len(cluster.read(letters)) == 4

    # Any value fits now. The source's topic takes less than it did, and its first records are gone.
    text = FLOW.format(**values, type="text", column='value = "string"').replace(', columns = { value = "string" }', "")
    corrected = spec.parse(text, file=str(tmp_path / "flow.toml"))
    set_config(cluster, topic, "max.message.bytes", "100000")
    replayed = replay_dead_letters(spark, corrected, corrected.source)
    assert (replayed.sent, replayed.still_bad, replayed.cut, replayed.refused) == (2, 1, 0, 1), replayed
    back = cluster.read(topic)[5:]
    assert [(each.key(), each.value()) for each in back] == [(None, b"no json"), (b"h", b"headers")]
    assert back[1].headers()[:-1] == repeated
    again = {dict(each.headers())["barnabas.source"].decode(): each for each in cluster.read(letters)[4:]}
    assert sorted(again) == [f"{topic}-0-1", f"{topic}-0-3"]
    assert b"its topic refuses the record" in dict(again[f"{topic}-0-1"].headers())["barnabas.reason"]

    cluster.delete_records(topic, 2)
    set_config(cluster, topic, "max.message.bytes", "2000000")
    replayed = replay_dead_letters(spark, corrected, corrected.source)
    assert (replayed.sent, replayed.still_bad, replayed.cut, replayed.refused) == (0, 1, 1, 0), replayed


def test_letters_of_a_topic_that_is_gone_are_kept_and_those_of_a_new_one_are_all_read(
    spark: Any, cluster: Any, tmp_path: Path
) -> None:
    """A replay neither loses letters nor stops at them, and takes no position in a topic that
    was made again for its own."""
    topic, letters = cluster.topic(1), cluster.topic(1)
    values = {"topic": topic, "letters": letters, "bootstrap": cluster.bootstrap, "type": "json"}
    flow = spec.parse(FLOW.format(**values, column='id = "int"'), file=str(tmp_path / "flow.toml"))
    cluster.produce(topic, [(None, b"1"), (None, b"2")])
    run_on(spark, flow)
    assert replay_dead_letters(spark, flow, flow.source).still_bad == 2
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.delete_topics([topic])[topic].result(60)
    for _ in range(2):
        assert replay_dead_letters(spark, flow, flow.source, value="'{}'").kept == 2
    held = [(each.key(), each.value(), each.headers()) for each in cluster.read(letters)][-2:]
    cluster.make_again(letters)
    for _ in range(4):
        for key, value, headers in held:
            cluster.produce(letters, [(key, value)], headers=headers)
    assert replay_dead_letters(spark, flow, flow.source).kept == 2
