"""How Spark's JVM is started, with a script in its place.

The connection itself is tested with Spark."""

import os
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("pyspark")

from barnabas.base.errors import BarnabasError
from barnabas.pipelines.running import run
from barnabas.pipelines.spark.callback_auth import authenticate_callbacks
from barnabas.pipelines.spark.gateway import JvmEndedError, SparkJvm
from barnabas.pipelines.spark.protection import OPEN_CALLBACKS
from barnabas.pipelines.specification import spec

FLOW = """
name = "flow"
checkpoint = "state"
[source]
bootstrap_servers = "h:1"
topics = ["t"]
format = { type = "json", columns = { k = "string" } }
[[sinks]]
type = "sqlite"
path = "out"
table = "t"
"""

SCRIPT = """#!/bin/sh
printf "<%s>" "$SPARK_HOME" "$JAVA_HOME" "$1" "$3" "$4" "$5" "$6"
stat -c "%a" "$2"
cat "$2"
cat "$(sed -n 's/^spark.driver.extraJavaOptions="@\\(.*\\)"$/\\1/p' "$2")"
exit 3
"""


def test_a_jvm_that_ends_before_it_can_be_connected_to_is_reported_and_leaves_its_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user's arguments are passed on, and the settings in files that no other user can
    read; nothing of it stays."""
    script = tmp_path / "spark" / "bin" / "spark-submit"
    script.parent.mkdir(parents=True)
    script.write_text(SCRIPT)
    script.chmod(0o755)
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--name 'my flow' pyspark-shell")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = dict(os.environ)
    settings = {"spark.a": " b\\c\u00e9", "spark.driver.extraJavaOptions": '-Dx=\'a b\' -Dy="c\\""'}
    log = tmp_path / "log"
    with log.open("wb") as file:
        jvm = SparkJvm(tmp_path / "spark", settings, {"JAVA_HOME": "/java"}, file.fileno())
    with pytest.raises(JvmEndedError, match="ended with 3"):
        jvm.connect()
    assert not jvm.end()
    words = [str(tmp_path / "spark"), "/java", "--properties-file", "--load-spark-defaults", "--name", "my flow"]
    first, *properties = log.read_text().splitlines()
    assert first == "".join(f"<{each}>" for each in [*words, "pyspark-shell"]) + "600"
    assert properties[0] == r"spark.a=\ b\\c\u00e9"
    assert properties[2:] == ['"-Dx=a b"', r'"-Dy=c\""']
    assert not list(tmp_path.glob("barnabas-jvm-*"))
    assert dict(os.environ) == before


@pytest.mark.parametrize("option", ["--properties-file {}", "--properties-file={}", "--properties-file other {0}"])
def test_a_users_file_of_properties_is_read_below_the_settings(
    option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark would take the last file only, and with it another master and no secret."""
    theirs = tmp_path / "their own.conf"
    theirs.write_text("spark.master yarn\nspark.authenticate=false\nspark.theirs  \u00fc\n", encoding="utf-8")
    script = tmp_path / "spark" / "bin" / "spark-submit"
    script.parent.mkdir(parents=True)
    script.write_text('#!/bin/sh\nprintf "%s\\n" "$#" "$1" "$3" "$4" "$5"\ncat "$2"\n')
    script.chmod(0o755)
    words = option.replace(" {0}", " --properties-file {0}").format(f"'{theirs}'")
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", f"--name x {words} pyspark-shell")
    log = tmp_path / "log"
    with log.open("wb") as file:
        jvm = SparkJvm(tmp_path / "spark", {"spark.master": "local", "spark.authenticate": "true"}, {}, file.fileno())
    assert jvm.process.wait(30) == 0
    assert jvm.end()
    assert log.read_text().splitlines() == [
        *("5", "--properties-file", "--name", "x", "pyspark-shell"),
        *("spark.master=local", "spark.authenticate=true", r"spark.theirs=\u00fc"),
    ]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ("--properties-file none.conf pyspark-shell", "cannot read --properties-file none.conf: No such file"),
        ("pyspark-shell --properties-file", "--properties-file needs a file"),
        ("--name 'x pyspark-shell", "PYSPARK_SUBMIT_ARGS cannot be read: No closing quotation"),
    ],
)
def test_arguments_that_cannot_be_read_are_refused_by_the_name_of_their_variable(
    arguments: str, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before a JVM is started; the folder of its settings goes."""
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", arguments)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(BarnabasError, match=problem):
        SparkJvm(tmp_path / "spark", {}, {}, 1)
    assert os.listdir(tmp_path) == []


def test_a_gateway_that_is_not_the_known_one_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By what it is, and by what it lacks; the JVM's owner can see it."""
    from py4j.clientserver import ClientServer
    from pyspark import java_gateway

    class Other(ClientServer):
        """Of another version."""

        java_parameters = SimpleNamespace()

        def __init__(self) -> None:
            pass

    for gateway in (SimpleNamespace(), Other()):
        assert not authenticate_callbacks(gateway)
    script = tmp_path / "spark" / "bin" / "spark-submit"
    script.parent.mkdir(parents=True)
    script.write_text(
        "#!/bin/sh\nprintf '\\0\\0\\0\\1\\0\\0\\0\\1s' > new; mv new $_PYSPARK_DRIVER_CONN_INFO_PATH; read -r end"
    )
    script.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(java_gateway, "launch_gateway", SimpleNamespace)
    with (tmp_path / "log").open("wb") as file:
        jvm = SparkJvm(tmp_path / "spark", {}, {}, file.fileno())
    jvm.connect()
    assert jvm.has_open_callbacks
    jvm.end()


@pytest.mark.parametrize("is_open", [True, False])
def test_a_flow_warns_if_other_processes_can_call_it(
    is_open: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it does for a cluster without a secret."""
    session = SimpleNamespace(spark=None, jvm=SimpleNamespace(has_open_callbacks=is_open), close=lambda *_: None)
    monkeypatch.setattr(run, "open_flow_session", lambda *_, **__: session)
    monkeypatch.setattr(run, "_Run", lambda *_: SimpleNamespace(run=lambda **_: {"status": "stopped"}))
    flow = spec.parse(FLOW, file=str(tmp_path / "flow.toml"))
    said: list[str] = []
    run.run_flow(flow, say=said.append)
    assert [each for each in said if each.startswith("warning")] == ([f"warning: {OPEN_CALLBACKS}"] if is_open else [])
