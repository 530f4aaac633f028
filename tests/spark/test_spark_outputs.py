"""Every output of a flow, filled by one run on Spark, and the same rows in all of them."""

import json
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
duckdb = pytest.importorskip("duckdb")
deltalake = pytest.importorskip("deltalake")

from barnabas.base.errors import BarnabasError  # noqa: E402
from barnabas.base.ids import TopicPartition  # noqa: E402
from barnabas.pipelines.checkpoints.checkpoint import Checkpoint  # noqa: E402
from barnabas.pipelines.checks.analysis import find_problems  # noqa: E402
from barnabas.pipelines.outputs.declared import SearchSink  # noqa: E402
from barnabas.pipelines.outputs.search import search_index  # noqa: E402
from barnabas.pipelines.running.run import run_on  # noqa: E402
from barnabas.pipelines.specification import spec  # noqa: E402
from barnabas.pipelines.specification.spec import FunctionSink  # noqa: E402

HEAD = """\
name = "{topic}"
checkpoint = "{kind}"

[source]
bootstrap_servers = "{bootstrap}"
topics = ["{topic}"]
max_offsets_per_trigger = {limit}

[source.format]
type = "json"
columns = {{ id = "bigint", at = "timestamp", message = "string" }}
"""
HOURS = """
[aggregate]
time = "at"
window = "1 hour"
watermark = "2 days"
compute = {{ events = "count(*)", ids = "collect_list(id)" }}
"""
SQL = 'SELECT window_start, events, "ids" FROM t ORDER BY window_start'


def run(spark: Any, folder: Path, text: str) -> dict[str, Any]:
    """The flow on the session of all tests, until all that is in its topic is done."""
    from barnabas.pipelines.running.run import run_on

    return run_on(spark, spec.parse(text, file=str(folder / "flow.toml")))


def sinks(**kinds: str) -> str:
    return "".join(f'\n[[sinks]]\ntype = "{kind}"\n{fields}\n' for kind, fields in kinds.items())


def test_all_outputs_hold_the_same_rows_with_the_same_times(cluster: Any, spark: Any, tmp_path: Path) -> None:
    """An aggregate in databases, a Delta table and a topic; rows in Parquet and an index.

    A second checkpoint adds nothing."""
    topic, target = cluster.topic(2), cluster.topic(1)
    events = [
        {"id": n, "at": f"2013-01-01T0{n % 3}:30:00.25Z", "message": f"event {n} of {n % 3} disks"} for n in range(20)
    ]
    cluster.produce(topic, [(str(each["id"]).encode(), json.dumps(each).encode()) for each in events])
    outputs = sinks(
        sqlite='path = "sqlite"\ntable = "t"',
        duckdb='path = "duckdb"\ntable = "t"',
        delta='path = "delta"',
        topic=f'topic = "{target}"',
    )
    for kind, limit in (("first", 12), ("second", 1000)):
        text = (HEAD + HOURS).format(topic=topic, bootstrap=cluster.bootstrap, kind=kind, limit=limit)
        run(spark, tmp_path, text + outputs)
    with sqlite3.connect(tmp_path / "sqlite") as connection:
        texts = connection.execute(SQL).fetchall()
    connection.close()
    assert [(at, events) for at, events, _ in texts] == [
        ("2013-01-01T00:00:00.000000Z", 7),
        ("2013-01-01T01:00:00.000000Z", 7),
        ("2013-01-01T02:00:00.000000Z", 6),
    ]
    values = {each.key(): json.loads(each.value()) for each in cluster.read(target)}.values()
    assert (
        sorted(
            (each["window_start"], each["events"], json.dumps(each["ids"], separators=(",", ":"))) for each in values
        )
        == texts
    )
    with duckdb.connect(str(tmp_path / "duckdb")) as connection:
        columns = "strftime(window_start, '%Y-%m-%dT%H:%M:%S.%fZ'), events, \"ids\""
        connection.execute("SET TimeZone = 'UTC'")
        assert connection.execute(f"SELECT {columns} FROM t ORDER BY 1").fetchall() == texts
    stored = deltalake.DeltaTable(str(tmp_path / "delta")).to_pyarrow_table().sort_by("window_start")
    assert [f"{each:%Y-%m-%dT%H:%M:%S.%fZ}" for each in stored["window_start"].to_pylist()] == [row[0] for row in texts]

    rows = sinks(parquet='path = "parquet"', search='path = "search"\ntable = "t"\ntext = ["message"]')
    run(spark, tmp_path, HEAD.format(topic=topic, bootstrap=cluster.bootstrap, kind="rows", limit=12) + rows)
    with duckdb.connect() as connection:
        found = connection.execute(f"SELECT id, message FROM '{tmp_path}/parquet/*.parquet' ORDER BY id").fetchall()
    assert found == [(each["id"], each["message"]) for each in events]
    assert spark.read.parquet(str(tmp_path / "parquet")).count() == 20
    index = SearchSink(str(tmp_path / "search"), "t", ("message",), spec.POSITION)
    assert {hit.row["id"] for hit in search_index(index, '"2 disks"', limit=100)} == set(range(2, 20, 3))


def errors_of_dry_run(spark: Any, flow: spec.Flow) -> list[str]:
    """The first words of each error."""
    from barnabas.pipelines.checks.trial import try_flow

    return [each.message.split(",")[0] for each in try_flow(spark, flow) if each.state == "error"]


def test_records_that_become_several_rows_need_a_key(cluster: Any, spark: Any, tmp_path: Path) -> None:
    """Their position would keep one of them.

    A topic that was made again since the last run is noticed, too."""
    topic = cluster.topic(1)
    cluster.produce(topic, [(b"k", b'{"id": 1, "message": "a b"}'), (b"k", b'{"id": 2, "message": "c"}')])
    head = HEAD.format(topic=topic, bootstrap=cluster.bootstrap, kind="state", limit=5)
    words = head.replace("[source.format]", 'record_columns = ["key", "headers"]\n[source.format]') + (
        '[transform]\nselect = ["source_key", "source_headers", "explode(split(message, \' \')) as word"]\n'
    )
    text = words + sinks(sqlite='path = "out.db"\ntable = "t"')
    (problem,) = find_problems(spark, spec.parse(text))
    assert (problem.field, problem.message[:40]) == ("sinks[0].key", "is missing: explode makes several rows o")
    with pytest.raises(BarnabasError, match="3 rows come from 2 records.*several rows, as by explode"):
        run(spark, tmp_path, text)
    keyed = text + 'key = ["source_topic", "source_partition", "source_offset", "word"]\n'
    keyed = keyed.replace("out.db", "keyed.db").replace('checkpoint = "state"', 'checkpoint = "keyed"')
    run(spark, tmp_path, keyed)
    with sqlite3.connect(tmp_path / "keyed.db") as connection:
        found = connection.execute("SELECT source_key, source_headers, word FROM t ORDER BY word").fetchall()
    connection.close()
    assert found == [("k", "{}", "a"), ("k", "{}", "b"), ("k", "{}", "c")]
    cluster.make_again(topic)
    cluster.produce(topic, [(b"k", b'{"id": 3, "message": "d"}')] * 5)
    with pytest.raises(BarnabasError, match=f"topic {topic} was deleted and made again since the last run"):
        run(spark, tmp_path, keyed)


def test_a_micro_batch_that_was_planned_before_its_topic_was_made_again_is_lost_and_counted(
    cluster: Any, spark: Any, tmp_path: Path
) -> None:
    """A flow was killed in the midst of it, and may lose records: the next run counts them,
    and reads the new topic."""
    topic = cluster.topic(1)
    text = HEAD.format(topic=topic, bootstrap=cluster.bootstrap, kind="state", limit=5).replace(
        "[source.format]", "fail_on_data_loss = false\n[source.format]"
    ) + sinks(sqlite='path = "out.db"\ntable = "t"')
    cluster.produce(topic, [(None, b'{"id": %d}' % number) for number in range(7)])
    run(spark, tmp_path, text)
    for each in (tmp_path / "state" / "main" / "commits").glob("*1*"):
        each.unlink()
    cluster.make_again(topic)
    cluster.produce(topic, [(None, b'{"id": %d}' % number) for number in range(20, 29)])
    summary = run(spark, tmp_path, text)
    assert (summary["rows"], summary["lost_records"], summary["lost"]) == (9, 2, {f"{topic}-0": 2})


def test_a_flow_whose_table_is_gone_refuses_until_it_is_filled_again(cluster: Any, spark: Any, tmp_path: Path) -> None:
    """It would go on from its checkpoint otherwise, with an empty table.

    A restored copy is fine, and so is a rewind."""
    topic = cluster.topic(1)
    text = HEAD.format(topic=topic, bootstrap=cluster.bootstrap, kind="state", limit=5) + sinks(
        sqlite='path = "out.db"\ntable = "t"'
    )
    flow = spec.parse(text, file=str(tmp_path / "flow.toml"))

    def add(*numbers: int) -> None:
        cluster.produce(topic, [(None, b'{"id": %d}' % each) for each in numbers])

    def ids() -> list[int]:
        with sqlite3.connect(tmp_path / "out.db") as connection:
            found = connection.execute("SELECT id FROM t ORDER BY id").fetchall()
        connection.close()
        return [each[0] for each in found]

    add(1, 2)
    run(spark, tmp_path, text)
    (tmp_path / "out.db").rename(tmp_path / "copy.db")
    add(3)
    for _ in range(2):
        with pytest.raises(BarnabasError, match="sqlite table t holds nothing that this flow wrote") as refused:
            run(spark, tmp_path, text)
        assert "flow.toml --to earliest --yes" in str(refused.value)
    assert errors_of_dry_run(spark, flow) == ["sqlite table t holds nothing that this flow wrote"]
    (tmp_path / "copy.db").rename(tmp_path / "out.db")
    run(spark, tmp_path, text)
    assert ids() == [1, 2, 3]
    wider = spec.parse(text + '[transform]\nderive = { twice = "2 * id" }\n', file=str(tmp_path / "flow.toml"))
    assert errors_of_dry_run(spark, wider) == ["table t is there already and has no column twice; add it"]
    (tmp_path / "out.db").unlink()
    Checkpoint(flow).rewind([{TopicPartition(topic, 0): 0}])
    run(spark, tmp_path, text)
    assert ids() == [1, 2, 3]


MODEL = """
[model]
path = "model"
type = "logistic_regression"
label = "late"
numbers = ["hour"]
categories = ["carrier"]
test = "id % 4 = 0"
score = "late_probability"

[[sinks]]
type = "sqlite"
path = "scored"
table = "t"
key = ["id"]
"""
FLIGHTS = HEAD.replace('at = "timestamp", message = "string"', 'hour = "int", carrier = "string", late = "boolean"')


def test_a_model_is_trained_scores_the_stream_and_is_replaced_while_the_flow_runs(
    cluster: Any, spark: Any, tmp_path: Path
) -> None:
    """Scores of the stream are those of the batch.

    A replayed micro-batch keeps its version; a null feature has no score. It is trained again and
    replaced beside the first micro-batch of a run, which the second one takes up.
    """
    from barnabas.pipelines.models.registry import ModelError, ModelFolder
    from barnabas.pipelines.models.run import train_on
    from barnabas.pipelines.models.scoring import Scorer

    topic = cluster.topic(1)
    flights = [
        {"id": n, "hour": n % 24, "carrier": "ABC"[n % 3], "late": n % 24 + 6 * (n % 3) + n % 5 > 16}
        for n in range(400)
    ]
    cluster.produce(topic, [(None, json.dumps(each).encode()) for each in flights])
    text = (FLIGHTS + MODEL).format(topic=topic, bootstrap=cluster.bootstrap, kind="first", limit=250)
    flow = spec.parse(text, file=str(tmp_path / "flow.toml"))
    with pytest.raises(ModelError, match="run barnabas pipeline train"):
        run(spark, tmp_path, text)
    version = train_on(spark, flow)
    assert (version.version, version.rows_trained, version.rows_tested) == (1, 300, 100)
    assert version.metrics["auc"] > 0.9
    assert version.offsets == {topic: {"0": 400}}
    folder = ModelFolder(str(tmp_path / "model"))
    folder.use(1)
    run(spark, tmp_path, text)

    cluster.produce(topic, [(None, b'{"id": 400, "hour": null, "carrier": "A"}'), (None, b'{"id": 401, "hour": 23}')])

    def retrain(rows: Any, number: int) -> None:  # the sink's signature
        if folder.current() == 1:
            folder.use(train_on(spark, flow).version)

    said: list[str] = []
    beside = FunctionSink(retrain, ("id",))
    one_by_one = replace(flow, source=replace(flow.source, max_offsets_per_trigger=1), sinks=(*flow.sinks, beside))
    assert run_on(spark, one_by_one, say=said.append)["batches"] == 2
    assert [each for each in said if each.startswith("scoring with version 2 of the model from micro-batch ")]
    with sqlite3.connect(tmp_path / "scored") as connection:
        found = connection.execute("SELECT id, late_probability, model_version FROM t ORDER BY id").fetchall()
    connection.close()
    assert [row[2] for row in found] == [1] * 401 + [2]
    assert found[400][1] is None
    assert found[401][1] is not None, "a category that training did not see"

    assert flow.model is not None
    batch = spark.createDataFrame([(5, 5, "C", None)], "id int, hour int, carrier string, late boolean")
    scorer = Scorer(flow.model, tmp_path)
    assert scorer.score(batch, "query", 0).first()["model_version"] == 2
    folder.use(1)
    again = Scorer(flow.model, tmp_path)
    assert again.score(batch, "query", 0).first()["model_version"] == 2, "the micro-batch runs again"
    row = again.score(batch, "query", 1).first()
    assert (row["model_version"], row["late_probability"]) == (1, pytest.approx(found[5][1]))
