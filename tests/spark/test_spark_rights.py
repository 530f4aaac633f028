"""The rights that flows need: the table of the documentation is what was recorded, and each works
with exactly these."""

import json
from collections.abc import Callable, Mapping
from itertools import count
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]
pytest.importorskip("pyspark")

from barnabas.base.errors import BarnabasError  # noqa: E402
from barnabas.client import Admin, Producer  # noqa: E402
from barnabas.pipelines.dead_letters.replay import replay_dead_letters  # noqa: E402
from barnabas.pipelines.running.run import run_on  # noqa: E402
from barnabas.pipelines.specification import spec  # noqa: E402
from barnabas.testing import Cluster  # noqa: E402
from support.command_rights import Call, needed_rights, recorded_rights, rights_text  # noqa: E402
from support.pages import DOCS  # noqa: E402

FLOW = """\
name = "till"
checkpoint = "state"
[source]
bootstrap_servers = "{bootstrap}"
topics = ["sold"]
bad_rows_topic = "letters"
format = {{ {format} }}
[source.kafka]
{kafka}
[[sinks]]
{sink}
"""
JSON = 'type = "json", columns = { id = "int" }'
TO_TOPIC = 'type = "topic"\ntopic = "paid"\nkey = ["id"]'
TO_TABLE = 'type = "sqlite"\npath = "out.db"\ntable = "t"'
TOPICS = ("sold", "letters", "paid")


def test_the_table_of_flows_is_what_they_need(spark: Any, tmp_path: Path) -> None:
    """Its source, its dead letters and a topic as its sink, on the driver and the workers; and a
    replay."""
    numbers = count()

    def flow(properties: Mapping[str, str], form: str = JSON, sink: str = TO_TOPIC) -> Any:
        own = {name: text for name, text in properties.items() if name != "bootstrap.servers"}
        kafka = "\n".join(f"{json.dumps(name)} = {json.dumps(text)}" for name, text in own.items())
        text = FLOW.format(bootstrap=properties["bootstrap.servers"], kafka=kafka, format=form, sink=sink)
        folder = tmp_path / f"flow-{next(numbers)}"
        folder.mkdir()
        return spec.parse(text, file=str(folder / "flow.toml"))

    def attempt(work: Callable[[], object]) -> object:
        try:
            return work()
        except BarnabasError:
            raise
        except Exception as error:  # Spark's
            raise BarnabasError(str(error)) from error

    def run(properties: Mapping[str, str]) -> object:
        summary = attempt(lambda: run_on(spark, flow(properties)))
        assert isinstance(summary, Mapping)
        return summary["bad_rows"]

    def replay(properties: Mapping[str, str]) -> object:
        return attempt(lambda: _replayed(spark, flow(properties, 'type = "text"', TO_TABLE)))

    def prepare_letters(cluster: Cluster, admin: Admin) -> None:
        _prepare(cluster, admin)
        run_on(spark, flow(cluster.client_properties("admin")))

    uses = (Call("pipeline run", run, _prepare), Call("pipeline replay", replay, prepare_letters))
    needed = needed_rights(uses, recorded_rights(uses, tmp_path), tmp_path)
    table = "| flow | needs |\n|---|---|\n"
    table += "".join(f"| `{shown}` | {rights_text(acls)} |\n" for shown, acls in needed.items())
    page = DOCS / "how-to" / "pipelines.md"
    assert table in page.read_text(), f"{page} must have\n\n{table}"


def _replayed(spark: Any, flow: Any) -> object:
    done = replay_dead_letters(spark, flow, flow.source)
    return done.sent, done.still_bad


def _prepare(cluster: Cluster, admin: Admin) -> None:
    """New topics, with a good row and a bad one."""
    there = [name for name in TOPICS if name in admin.list_topics()]
    if there:
        admin.delete_topics(there)
    for name in TOPICS:
        cluster.create_topic(name)
    with Producer(cluster.client_properties("admin")) as producer:
        for value in ('{"id": 1}', "no json"):
            producer.send("sold", value)
