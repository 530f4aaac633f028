"""Passwords in a flow's file and its variables: they reach their server as they are, and no error,
figure or file shows a part of them."""

import json
import string
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.pipelines.checkpoints.checkpoint import Checkpoint, compare_flows, describe_flow
from barnabas.pipelines.errors import PipelineError, secrets_hidden
from barnabas.pipelines.flow_file.addresses import expand_keywords, expand_text, local_path, postgres_problem
from barnabas.pipelines.flow_file.fields import SpecError
from barnabas.pipelines.specification import spec

FLOW = """
name = "flow"
checkpoint = "state"
[source]
bootstrap_servers = "h:1"
topics = ["t"]
format = { type = "json", columns = { k = "string" } }
"""
SQLITE = """
[[sinks]]
type = "sqlite"
path = "out"
table = "t"
"""
POSTGRESQL = """
[[sinks]]
type = "postgresql"
url = "%s"
table = "t"
key = ["k"]
"""
_PASSWORDS = st.text(string.ascii_letters + string.digits + string.punctuation + " é\U0001f600", min_size=1)


def parse(text: str, environ: Mapping[str, str] | None = None) -> spec.Flow:
    return spec.parse(FLOW + text, environ=environ)


@given(_PASSWORDS, _PASSWORDS)
def test_any_user_and_password_from_variables_are_the_same_behind_the_address(user: str, password: str) -> None:
    """Also where one variable holds both; the host and the name of the database stay
    what they are."""
    values = {"U": user, "P": password, "HOST": "db.example:5432"}
    url = expand_text("postgresql://${U}:${P}@${HOST}/reports", values.__getitem__)
    assert postgres_problem(url) is None
    parts = urlsplit(url)
    assert (unquote(parts.username or ""), unquote(parts.password or "")) == (user, password)
    assert (parts.hostname, parts.port, parts.path) == ("db.example", 5432, "/reports")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("http://${LOGIN}@host", "http://ann:p%40w@host"),
        ("postgresql://host/${NAME}?password=${ODD}", "postgresql://host/a%20b?password=%2F%40%26"),
        ("postgresql://host/db?${OPTIONS}", "postgresql://host/db?sslmode=require&a=b"),
        ("${ADDRESS}", "http://ann:pw@host/a b"),
        ("k8s://https://${PLACE}", "k8s://https://host:443"),
        ("spark://${PLACE}", "spark://host:443"),
        ("SELECT '${ODD}'", "SELECT '/@&'"),
        ("jdbc:mysql://host/db?user=a&password=${ODD}", "jdbc:mysql://host/db?user=a&password=%2F%40%26"),
    ],
)
def test_a_value_is_encoded_where_it_stands_in_an_address(text: str, expected: str) -> None:
    """But not as its host, as several of its parts, or in another text."""
    values = {"LOGIN": "ann:p@w", "NAME": "a b", "ODD": "/@&", "OPTIONS": "sslmode=require&a=b"}
    values |= {"ADDRESS": "http://ann:pw@host/a b", "PLACE": "host:443"}
    assert expand_text(text, values.__getitem__) == expected


@given(_PASSWORDS)
def test_any_password_from_a_variable_is_the_same_behind_keywords(password: str) -> None:
    """As libpq reads them."""
    psycopg = pytest.importorskip("psycopg")
    text = expand_keywords("host=db user=ann password=${P} port=1", lambda _: password)
    assert postgres_problem(text) is None
    assert psycopg.conninfo.conninfo_to_dict(text) == {"host": "db", "user": "ann", "password": password, "port": "1"}


@pytest.mark.parametrize(
    "url",
    [
        *("postgresql://ann:geheim%zz@h/db", "postgresql://ann:a@geheim@h/db", "postgresql://ann:12/geheim@h/db"),
        *("postgresql://ann:geheim", "postgresql://h:geheim/db", "postgresql://h/db?password=a@geheim"),
        *("mysql://ann:geheim@h/db", "postgresql//ann:geheim@h/db", "ann:geheim@postgresql://h", "pg:geheim"),
        *("postgresql://ann:1/x?y=geheim@h/db", "postgresql://ann:1/x?geheim@h", "postgresql://h?a=b@geheim@c"),
        *("postgresql://h/db?application_name=a@b&sslpassword=a@geheim",),
        *("host=db password=a geheim", "host=db password='geheim", "postgresql:/ann:geheim@h/db"),
    ],
)
def test_an_address_that_libpq_could_not_read_is_refused_without_a_part_of_the_password(url: str) -> None:
    """libpq would quote it, or ask a name server for it."""
    with pytest.raises(SpecError, match=r"sinks\[0\].url") as refused:
        parse(POSTGRESQL % url)
    assert "geheim" not in str(refused.value)
    table = f'[tables.x]\ntype = "postgresql"\nurl = "{url}"\ntable = "t"\ncolumns = {{ a = "int" }}\n{SQLITE}'
    with pytest.raises(SpecError, match=r"tables.x.url") as refused:
        parse(table)
    assert "geheim" not in str(refused.value)


@pytest.mark.parametrize(
    "url",
    [
        *(
            "postgresql://db.example/reports",
            "postgres://ann:a%40b@h1:1,[::1]:2/db?sslmode=require",
            "postgresql:///db",
        ),
        *(
            "host=db user=ann password='a b'",
            "host = db dbname=x",
            "postgresql://%2Fvar%2Frun/db",
            "postgresql://u:a#b?c@h/d",
            "postgresql://h/db?application_name=a@b",
            "postgresql://u:p@h?sslmode=require&application_name=a@b@c",
            "postgresql:///db?host=/var/run&application_name=a@b",
        ),
    ],
)
def test_addresses_that_libpq_reads_are_taken(url: str) -> None:
    """All forms."""
    assert postgres_problem(url) is None


@pytest.mark.parametrize(
    "field",
    [
        'kafka = { "sasl.password" = 4711471147 }',
        'kafka = { "ssl.key.password" = { a = "4711471147" } }',
        'bootstrap_servers = "ann:4711471147@h"',
        'topics = "http://ann:4711471147@h"',
    ],
)
def test_a_value_of_another_type_is_not_quoted_if_it_may_be_a_password(field: str) -> None:
    """A password of digits needs quotes in TOML, too."""
    name = field.partition(" ")[0]
    text = "\n".join(line for line in FLOW.splitlines() if not line.startswith(name))
    with pytest.raises(SpecError, match=rf"source\.{name}") as refused:
        spec.parse(f"{text}\n{field}\n{SQLITE}")
    assert "4711471147" not in str(refused.value)


@pytest.mark.parametrize(
    "sink",
    [
        'type = "opensearch"\nurl = "ftp://ann:geheim@h"\nindex = "i"',
        'type = "opensearch"\nurl = "http://ann:12/geheim@h"\nindex = "i"',
        'type = "opensearch"\nurl = "http://h:geheim"\nindex = "i"',
        'type = "delta"\npath = "s3://ann:geheim@bucket/x"',
    ],
)
def test_a_wrong_address_of_any_sink_is_refused_without_its_password(sink: str) -> None:
    """It is shown as far as it is none."""
    with pytest.raises(SpecError) as refused:
        parse(f'[[sinks]]\n{sink}\nkey = ["k"]')
    assert "geheim" not in str(refused.value)


def test_a_secret_of_a_variable_or_a_setting_is_hidden_in_what_is_said_of_the_flow() -> None:
    """By a library, by Spark, by a database."""
    text = "[transform]\nderive = { d = \"aes_decrypt(k, '${AES_KEY}')\" }\n"
    text += '[resources.spark]\n"spark.hadoop.fs.s3a.secret.key" = "from the file"\n'
    flow = parse(
        text + POSTGRESQL % "postgresql://ann:${DB_PASSWORD}@h/db", {"AES_KEY": "k\\ey'1", "DB_PASSWORD": "p%w@rd"}
    )
    said = "no such: aes_decrypt(k, 'k\\ey'1') with p%w@rd, p%25w%40rd and from the file"
    assert flow.hide(said) == "no such: aes_decrypt(k, '${AES_KEY}') with ${DB_PASSWORD}, ${DB_PASSWORD} and ***"
    assert "p%25w" not in str(flow.places.error("sinks[0].url", "is p%25w%40rd"))
    with pytest.raises(PipelineError) as raised, secrets_hidden(flow.hide):
        raise PipelineError(said)
    assert "p%w@rd" not in str(raised.value)


def test_a_password_is_hidden_though_the_address_has_another_at_sign() -> None:
    """In the query, where it may stand as it is."""
    flow = parse(POSTGRESQL % "postgresql://ann:geheim@h/db?application_name=a@b")
    assert flow.hide("password geheim is wrong") == "password *** is wrong"


def test_a_checkpoint_keeps_no_secret_and_knows_the_flow_again(tmp_path: Path) -> None:
    """Also one that was made when the texts were kept as they are, and after the
    secret has changed."""
    text = f"""
[[steps]]
name = "s"
sql = "SELECT k, aes_decrypt(k, '${{AES_KEY}}') AS d FROM source"
[aggregate]
group_by = ["k"]
compute = {{ n = "count(aes_decrypt(k, '${{AES_KEY}}'))" }}
{SQLITE}"""

    def flow(secret: str) -> spec.Flow:
        return spec.parse(FLOW + text, file=str(tmp_path / "flow.toml"), environ={"AES_KEY": secret})

    described: dict[str, Any] = describe_flow(flow("the first key"))
    assert "the first key" not in json.dumps(described)
    as_before = json.loads(json.dumps(described).replace("${AES_KEY}", "the first key"))
    del as_before["digests"]
    assert compare_flows(as_before, flow("the first key")) == []
    assert compare_flows(described, flow("the other key")) == []
    checkpoint = Checkpoint(flow("the first key"))
    checkpoint.folder.mkdir()
    checkpoint.note_flow(operations=["count(aes_decrypt(k, 'the first key'))"], version="4")
    assert "the first key" not in (checkpoint.folder / "flow.json").read_text()


GROUPED = """
[[steps]]
name = "s"
sql = "SELECT orders AS texts FROM source"
[aggregate]
group_by = ["%s"]
compute = { n = "count(%s)" }
"""


@pytest.mark.parametrize("secret", ["orders", "texts", "aggregate", "digests", "group_by", "version", "count"])
def test_a_checkpoint_fits_whatever_word_a_password_is_and_after_it_has_changed(secret: str, tmp_path: Path) -> None:
    """A password of a database may be the name of a column, or of what the
    checkpoint's own file has."""
    sink = (POSTGRESQL % "postgresql://ann:${DB_PASSWORD}@h/db").replace('key = ["k"]', "")

    def flow(password: str, column: str = "orders") -> spec.Flow:
        text = FLOW + GROUPED % (column, column) + sink
        return spec.parse(text, file=str(tmp_path / "flow.toml"), environ={"DB_PASSWORD": password})

    def noted(flow: spec.Flow) -> Checkpoint:
        checkpoint = Checkpoint(flow)
        (checkpoint.folder / "main/offsets").mkdir(parents=True, exist_ok=True)
        (checkpoint.folder / "main/offsets/0").touch()
        checkpoint.note_flow(operations=["Aggregate [orders], [count(texts)]"], version="4")
        return checkpoint

    noted(flow(secret))
    for password in (secret, "something else"):
        after = Checkpoint(flow(password))
        assert after.changes() == []
        assert after.state_problem(["Aggregate [orders], [count(texts)]"], "4") == ""
        assert "was made by" in after.state_problem(["Aggregate [user], [count(texts)]"], "4")
        assert "was made by" in after.state_problem([], "4")
        assert [each.field for each in Checkpoint(flow(password, "k")).changes()] == [
            "aggregate.compute",
            "aggregate.group_by",
        ]


def test_state_is_other_state_though_it_is_the_same_without_secrets() -> None:
    """A password and the column of its name, another password and the column of its name."""
    sink = POSTGRESQL.replace('key = ["k"]', "")
    before = describe_flow(parse(GROUPED % ("orders", "k") + sink % "postgresql://ann:orders@h/db"))
    now = parse(GROUPED % ("users", "k") + sink % "postgresql://ann:users@h/db")
    assert before["state"] == describe_flow(now)["state"]
    assert [each.field for each in compare_flows(before, now)] == ["aggregate.group_by"]


def test_state_changes_with_a_variable_that_is_no_secret_and_not_with_one_that_is() -> None:
    """Each in a field of its own, and both in one."""
    text = "\n".join(
        (
            "[aggregate]",
            'group_by = ["${COLUMN}"]',
            "compute = { n = \"count(aes_decrypt(${COLUMN}, '${AES_KEY}'))\" }",
            SQLITE,
        )
    )
    before = describe_flow(parse(text, {"COLUMN": "a", "AES_KEY": "the first"}))
    assert compare_flows(before, parse(text, {"COLUMN": "a", "AES_KEY": "the other"})) == []
    changes = compare_flows(before, parse(text, {"COLUMN": "b", "AES_KEY": "the first"}))
    assert [each.field for each in changes] == ["aggregate.compute", "aggregate.group_by"]


def test_operations_are_the_same_after_a_secret_in_an_expression_has_changed(tmp_path: Path) -> None:
    """Spark's texts have its value."""
    text = "[aggregate]\ngroup_by = ['k']\n" + "compute = { n = \"count(aes_decrypt(k, '${AES_KEY}'))\" }" + SQLITE

    def checkpoint(secret: str) -> Checkpoint:
        return Checkpoint(spec.parse(FLOW + text, file=str(tmp_path / "flow.toml"), environ={"AES_KEY": secret}))

    first = checkpoint("the first key")
    (first.folder / "main/offsets").mkdir(parents=True)
    (first.folder / "main/offsets/0").touch()
    first.note_flow(operations=["Aggregate aes_decrypt(k, the first key)"], version="4")
    assert checkpoint("the other key").state_problem(["Aggregate aes_decrypt(k, the other key)"], "4") == ""
    problem = checkpoint("the other key").state_problem(["Aggregate aes_encrypt(k, the other key)"], "4")
    assert "key" not in problem
    assert "aes_encrypt" in problem


@pytest.mark.parametrize(
    "place",
    [
        *(
            "s3://bucket/x",
            "s3a://bucket/x",
            "hdfs:/x",
            "gs://b/x",
            "abfss://c@a.dfs.core.windows.net/x",
            "https://h/x",
            "file://h/x",
        ),
        *("sqlite:///x.db", ":memory:", "file:x.db?mode=ro", "S3://bucket/x", "dbfs:/x", "file://x"),
    ],
)
@pytest.mark.parametrize("kind", ["sqlite", "duckdb", "parquet", "delta", "search"])
def test_an_address_is_refused_as_the_path_of_a_sink(place: str, kind: str) -> None:
    """It would become a folder of that name."""
    sink = f'[[sinks]]\ntype = "{kind}"\npath = "{place}"\n'
    sink += {"sqlite": 'table = "t"', "duckdb": 'table = "t"', "search": 'table = "t"\ntext = ["k"]'}.get(kind, "")
    with pytest.raises(SpecError, match=r"sinks\[0\].path: is .*(file or folder of this machine|three slashes)"):
        parse(sink)


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("checkpoint", 'checkpoint = "s3://b/x"'),
        ("source.format.schema_file", 'format = { type = "avro", schema_file = "s3://b/x" }'),
        ("tables.x.path", '[tables.x]\ntype = "csv"\npath = "s3://b/x"\ncolumns = { a = "int" }'),
        ("resources.py_files", '[resources]\npy_files = ["s3://b/x.py"]'),
        ("steps[0].function", '[[steps]]\nfunction = "s3://b/x.py:f"\nname = "f"'),
        ("model.path", '[model]\npath = "s3://b/x"\nlabel = "k"\nnumbers = ["k"]'),
    ],
)
def test_an_address_is_refused_in_every_other_field_with_a_path(field: str, text: str) -> None:
    """None of them is read by Spark."""
    name = text.partition(" ")[0]
    kept = "\n".join(line for line in FLOW.splitlines() if not line.startswith(name))
    given = f"{text}\n{kept}" if name == "checkpoint" else f"{kept}\n{text}"
    with pytest.raises(SpecError) as refused:
        spec.parse(f"{given}\n{SQLITE}")
    assert f"{field}: " in str(refused.value)
    assert "s3://b/x" in str(refused.value)


def test_a_delta_table_may_be_given_as_an_address_of_this_machine() -> None:
    """It is looked for there after it was made."""
    flow = parse('[[sinks]]\ntype = "delta"\npath = "file:///data/lake%20one"\n')
    assert flow.sinks[0].path == "/data/lake one"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ("file:///data/a%20b", "/data/a b"),
        ("file:/data/x", "/data/x"),
        ("file://localhost/data/x/", "/data/x"),
        ("x:y.db", "/here/x:y.db"),
        ("a/b", "/here/a/b"),
        ("/a", "/a"),
    ],
)
def test_files_of_this_machine_are_taken_as_paths_or_addresses(given: str, path: str) -> None:
    """A colon alone makes no address."""
    assert local_path(given, Path("/here")) == path
