"""The consoles with a schema registry: values go in as JSON and come out as JSON."""

import io
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from barnabas.cli.main import main
from barnabas.client import Producer, SchemaRegistry
from barnabas.testing import Cluster

pytestmark = [pytest.mark.interop]

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "item", "type": "string"},
        {"name": "table", "type": ["null", "int"], "default": None},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}, "default": 0},
    ],
}
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A broker and a registry."""
    with Cluster(registry=True) as running:
        yield running


@pytest.fixture
def run(cluster: Cluster, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Runs a command in this process, fed with a text: its code, output and errors."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))

    def call(*args: object, text: str = "", servers: bool = True) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        capfd.readouterr()
        where = ["--bootstrap-server", cluster.bootstrap_servers] if servers else []
        code = main([str(args[0]), *where, *map(str, args[1:])])
        return code, *capfd.readouterr()

    return call


def send(cluster: Cluster, topic: str, value: Any, serializer: Any) -> None:
    with Producer({"bootstrap.servers": cluster.bootstrap_servers}, serializer=serializer) as producer:
        producer.send(topic, value).result(60)


def test_lines_become_avro_and_every_console_shows_them(cluster: Cluster, run: Run) -> None:
    """Beside a value without a schema, which stays as it is."""
    cluster.create_topic("cli-avro")
    url = cluster.registry.url
    lines = '{"item": "espresso", "table": {"int": 7}, "day": 1}\n{"item": "tea", "table": null, "day": 0}\n'
    schema = ["--property", f"schema.registry.url={url}", "--property", f"value.schema={json.dumps(ORDER)}"]
    assert run("console-producer", "--topic", "cli-avro", *schema, text=lines) == (0, "", "")
    send(cluster, "cli-avro", "no schema", None)
    assert SchemaRegistry(url).latest("cli-avro-value")["version"] == 1
    shown = [
        '{"item":"espresso","table":7,"day":"1970-01-02"}',
        '{"item":"tea","table":null,"day":"1970-01-01"}',
        "no schema",
    ]
    consumed = ["--topic", "cli-avro", "--from-beginning", "--max-messages", 3]
    for args in (["--schema-registry", url], ["--property", f"schema.registry.url={url}"]):
        code, out, _ = run("console-consumer", *consumed, *args)
        assert (code, out.splitlines()) == (0, shown)
    code, out, _ = run("cat", "-t", "cli-avro", "-C", "-e", "-r", url)
    assert (code, out.splitlines()) == (0, shown)
    code, out, _ = run("tail", "cli-avro", "--no-follow", "--schema-registry", url, "--filter", "espresso")
    assert code == 0
    assert out.strip().endswith(shown[0])
    code, out, _ = run("tail", "cli-avro", "--no-follow", "--schema-registry", url, "--output", "json", "--last", 3)
    assert [json.loads(line)["value"] for line in out.splitlines()] == shown


def test_a_context_names_the_registry(cluster: Cluster, run: Run) -> None:
    """As a property of its clients."""
    cluster.create_topic("cli-context")
    send(cluster, "cli-context", 7, SchemaRegistry(cluster.registry.url).avro("cli-context-value", '"int"'))
    added = ["--bootstrap-servers", cluster.bootstrap_servers]
    assert (
        run(
            "context", "add", "here", *added, "--property", f"schema.registry.url={cluster.registry.url}", servers=False
        )[0]
        == 0
    )
    code, out, err = run("tail", "cli-context", "--no-follow", servers=False)
    assert (code, out.split()[-1], err) == (0, "7", "")
    code, out, err = run(
        "console-consumer", "--topic", "cli-context", "--from-beginning", "--max-messages", 1, servers=False
    )
    assert (code, out) == (0, "7\n")


def test_protobuf_is_shown_as_json(cluster: Cluster, run: Run) -> None:
    """Without its class: the registry has its file."""
    file = descriptor_pb2.FileDescriptorProto(name="cli.proto", package="cli", syntax="proto3")
    file.message_type.add(name="Tea").field.add(name="green_leaf", number=1, type=9, label=1)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    tea = message_factory.GetMessageClassesForFiles([file.name], pool)["cli.Tea"]
    cluster.create_topic("cli-proto")
    codec = SchemaRegistry(cluster.registry.url).protobuf("cli-proto-value", tea)
    send(cluster, "cli-proto", tea(green_leaf="Größe"), codec)
    code, out, _ = run("cat", "-t", "cli-proto", "-C", "-e", "-r", cluster.registry.url)
    assert (code, json.loads(out)) == (0, {"green_leaf": "Größe"})


@pytest.mark.parametrize(
    ("properties", "line", "wrong"),
    [
        (["value.schema={}"], "", "value.schema needs a registry"),
        (["schema.registry.url=URL"], "", "a registry is given, and no schema"),
        (["schema.registry.url=URL", "value.schema={}", "value.schema.type=xml"], "", "avro and json are expected"),
        (["schema.registry.url=URL", f"value.schema={json.dumps(ORDER)}"], '{"itme": 1}', "does not fit the schema"),
        (["schema.registry.url=URL", f"value.schema={json.dumps(ORDER)}"], "espresso", "does not fit the schema"),
    ],
)
def test_what_cannot_be_written_is_said(
    cluster: Cluster, run: Run, properties: list[str], line: str, wrong: str
) -> None:
    """With the line or the property."""
    cluster.create_topic(topic := f"cli-wrong-{len(' '.join([*properties, line]))}")
    args = [part for each in properties for part in ("--property", each.replace("URL", cluster.registry.url))]
    code, _, err = run("console-producer", "--topic", topic, *args, text=f"{line}\n")
    assert code == 1
    assert wrong in err


def test_a_value_that_its_schema_does_not_fit_ends_the_console(cluster: Cluster, run: Run) -> None:
    """It would be shown as something else."""
    cluster.create_topic("cli-damaged")
    codec = SchemaRegistry(cluster.registry.url).avro("cli-damaged-value", '"string"')
    data = codec.encode("espresso")
    assert data
    send(cluster, "cli-damaged", data[:-3], None)
    code, _, err = run("cat", "-t", "cli-damaged", "-C", "-e", "-r", cluster.registry.url)
    assert code == 1
    assert "the value of cli-damaged-0 offset 0 cannot be read" in err
