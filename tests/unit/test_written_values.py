"""What is written to a file, or composed of values, is read back equal, whatever
characters the values have."""

import os
import shlex
import subprocess
import sys
import tomllib
import urllib.parse
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from barnabas.base.errors import BarnabasError, ConfigError
from barnabas.base.settings import (
    Definitions,
    Kind,
    Setting,
    edited_properties,
    list_text,
    properties_text,
    read_properties,
)
from barnabas.cli.commands import by_script
from barnabas.cli.connection.contexts import Context, load_contexts, save_contexts
from barnabas.cli.connection.properties import properties_file, read_properties_file
from barnabas.cli.local.cluster_plan import plan_cluster
from barnabas.cli.local.options import up_parser
from barnabas.cli.main import main
from barnabas.client.errors import ConfigurationError
from barnabas.client.librdkafka.clients import FREE_TEXT
from barnabas.client.properties.translation import plan_consumer, renamed_for_all
from barnabas.client.registry.web import split_login
from barnabas.pipelines.specification.templates import flow_template
from barnabas.security.jaas import LoginModule, jaas_text, login_module
from barnabas.testing.cluster import Cluster
from barnabas.testing.security import ClusterSecurity
from support.needs import needs

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
AWKWARD = st.text(alphabet=" \t\n\r\f\\:=#!\"';{},/aZ\u00fc\u20ac\U0001f600", max_size=12)
ANY = TEXT | AWKWARD
PROPERTIES = st.dictionaries(ANY, ANY, max_size=5)


@given(PROPERTIES)
def test_a_properties_text_is_ascii_and_read_back_equal(properties: dict[str, str]) -> None:
    """In whatever encoding the file is read, then."""
    text = properties_text(properties)
    assert text.isascii()
    assert read_properties(text) == properties


def test_addresses_are_written_as_people_write_them() -> None:
    """The library would escape colons and equals signs, too."""
    text = properties_text({"listeners": "PLAINTEXT://h:1", "a=b": "=c", "p": r"C:\:d", "q": "  \u00fc "})
    assert text == "listeners=PLAINTEXT://h:1\na\\=b==c\np=C:\\\\:d\nq=\\  \\u00fc \n"


@given(
    PROPERTIES,
    st.dictionaries(ANY, st.none() | ANY, max_size=5),
    st.sampled_from(["", "\n", "\\", "\\\\", "\nx = y \\"]),
)
def test_an_edited_text_has_the_changes_and_all_else(
    before: dict[str, str], changes: dict[str, str | None], end: str
) -> None:
    """Comments stay, and a last line without an end takes nothing in."""
    text = "# note\n" + properties_text(before).removesuffix("\n") + end
    edited = edited_properties(text, changes)
    kept = {name: value for name, value in read_properties(text).items() if name not in changes}
    assert read_properties(edited) == kept | {name: value for name, value in changes.items() if value is not None}
    assert edited.startswith("# note\n")


@given(st.lists(ANY, min_size=1, max_size=4))
def test_a_list_is_read_back_equal_or_refused(items: list[str]) -> None:
    """Kafka's lists have no quoting."""
    definitions = Definitions([Setting("log.dirs", Kind.LIST, "")])
    try:
        text = list_text("log.dirs", items)
    except ConfigError:
        assert any("," in item or item.strip() != item or not item for item in items)
    else:
        assert definitions.parse({"log.dirs": text})["log.dirs"] == items


@given(st.dictionaries(ANY, ANY, max_size=4))
def test_a_login_module_is_read_back_equal(options: dict[str, str]) -> None:
    """Users and passwords, also through a properties file."""
    module = LoginModule("org.apache.kafka.common.security.plain.PlainLoginModule", "required", options)
    text = read_properties(properties_text({"sasl.jaas.config": jaas_text(module)}))["sasl.jaas.config"]
    assert "\n" not in text
    assert login_module(text, "x") == module


@given(ANY.filter(lambda text: text and not {"\0", "\n"} & {*text}))
def test_a_brokers_file_has_the_password_of_a_user(password: str) -> None:
    """As a broker reads its file."""
    security = ClusterSecurity("SASL_PLAINTEXT", {"j\u00fcrgen": password})
    texts = read_properties(properties_text(security.broker_properties()).encode("ascii").decode("latin-1"))
    entry = login_module(texts["listener.name.sasl_plaintext.plain.sasl.jaas.config"], "x")
    assert entry.options["user_j\u00fcrgen"] == password
    client = properties_text(security.client_properties(java=True))
    assert login_module(read_properties(client)["sasl.jaas.config"], "x").options["password"] == password


@given(ANY, ANY)
def test_names_and_passwords_reach_clients_as_they_are(name: str, password: str) -> None:
    """Blanks at the ends belong to them, and to no other value; a group that librdkafka
    would change is refused."""
    given_properties = {"bootstrap.servers": "h:1", "security.protocol": " SASL_PLAINTEXT ", "sasl.mechanism": "PLAIN"}
    given_properties |= {"group.id": name, "sasl.username": name, "sasl.password": password}
    if name.startswith((" ", "\t", "\n", "\v", "\f", "\r")):
        with pytest.raises(ConfigurationError, match=r"group\.id begins with whitespace, which librdkafka drops"):
            plan_consumer(given_properties)
        given_properties["group.id"] = "g"
    plan = plan_consumer(given_properties)
    assert [plan.librdkafka[each] for each in ("sasl.username", "sasl.password")] == [name, password]
    assert plan.librdkafka["group.id"] == given_properties["group.id"]
    texts = renamed_for_all(given_properties)
    assert (texts["sasl.username"], texts["sasl.password"]) == (name, password)
    assert texts["security.protocol"] == "SASL_PLAINTEXT"


def test_every_free_text_is_kept_by_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With a warning, for Java's clients take such blanks away."""
    path = tmp_path / "client.properties"
    path.write_text(properties_text({**dict.fromkeys(FREE_TEXT, " x "), "acks": "all "}))
    assert {name: properties_file(str(path))[name] for name in FREE_TEXT} == dict.fromkeys(FREE_TEXT, " x ")
    warned = capsys.readouterr().err
    assert f"warning: {path}: group.id begins or ends with a blank, which belongs to the value here" in warned
    assert "acks" not in warned


@pytest.mark.parametrize(
    ("data", "value", "warned"),
    [
        ("a=Z\u00fcrich".encode(), "Z\u00c3\u00bcrich", ["a"]),
        ("a=Z\u00fcrich".encode("latin-1"), "Z\u00fcrich", []),
        (b"a=Z\\u00fcrich", "Z\u00fcrich", []),
        ("# Z\u00fcrich\na=b".encode(), "b", []),
    ],
)
def test_a_file_is_read_as_java_reads_it(tmp_path: Path, data: bytes, value: str, warned: list[str]) -> None:
    """As ISO-8859-1, with a line for what is in UTF-8."""
    path = tmp_path / "server.properties"
    path.write_bytes(data)
    lines: list[str] = []
    assert read_properties_file(path, lines.append) == {"a": value}
    assert lines == [
        f"{path}: {name} has characters in UTF-8, and .properties files are read as ISO-8859-1, as Java reads them: write "
        "characters beyond ASCII as escapes, such as \\u00fc for \u00fc"
        for name in warned
    ]


@pytest.mark.parametrize("name", ["plain", "j\u00fcrgen", r"a\b", "a b ", "#a", "a=b:c", "a\nb"])
def test_a_zoo_cfg_names_the_folder_of_its_data(tmp_path: Path, name: str) -> None:
    """Whatever characters the folder has."""
    folder = tmp_path / name
    folder.mkdir()
    coordination = plan_cluster(up_parser().parse_args([]), folder).coordination
    ((_, path),) = coordination.write()
    assert read_properties(path.read_bytes().decode("latin-1"))["dataDir"] == str(folder / "zookeeper")


def test_a_folder_that_log_dirs_cannot_name_is_refused_before_it_is_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A comma would make two folders of it, and the records would be in neither."""
    folder = tmp_path / "a,b"
    assert main(["up", "--data-dir", str(folder)]) == 1
    shown = capsys.readouterr().err
    assert f"{folder} cannot hold a cluster: log.dirs, which names the folders of the records, separates them" in shown
    assert not folder.exists()
    with pytest.raises(BarnabasError, match=r"cannot be one of log\.dirs"), Cluster(data_dir=folder):
        pass


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(ANY.filter(bool), ANY, min_size=1, max_size=3), PROPERTIES)
def test_contexts_are_read_back_equal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: dict[str, str], properties: dict[str, str]
) -> None:
    """Names, servers, and properties with passwords."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    contexts = {name: Context(name, servers or "h:1", properties=properties) for name, servers in names.items()}
    save_contexts(contexts, next(iter(contexts)))
    assert load_contexts() == (contexts, next(iter(contexts)))


@given(ANY.filter(bool), ANY)
def test_the_user_of_an_address_is_read_back_equal(user: str, password: str) -> None:
    """Percent signs stand for what an address cannot hold."""
    login = f"{urllib.parse.quote(user, safe='')}:{urllib.parse.quote(password, safe='')}"
    assert split_login(f"http://{login}@registry:8081/x") == ("http://registry:8081/x", user, password)


def test_a_script_runs_an_interpreter_of_any_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shell would divide and expand its path."""
    folder = tmp_path / "it's $HOME \u00fc"
    folder.mkdir()
    interpreter = folder / "python *"
    interpreter.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    interpreter.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(interpreter))
    assert main(["shims", str(tmp_path / "shims")]) == 0
    for name, command in (("kafka-topics.sh", "topics"), ("zkCli.sh", "zookeeper-shell")):
        done = subprocess.run([tmp_path / "shims" / name, "a b"], capture_output=True, text=True, check=True)
        assert done.stdout.splitlines() == ["-m", "barnabas", command, "a b"]
    assert by_script()["kafka-topics"] == "topics"


def test_a_folder_that_path_cannot_name_gets_no_scripts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """PATH has no quoting."""
    folder = tmp_path / f"a{os.pathsep}b"
    assert main(["shims", str(folder)]) == 1
    assert f"{folder} cannot be in PATH" in capsys.readouterr().err
    assert not folder.exists()


@needs("bash")
def test_bash_completes_a_name_as_one_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blanks, quotes and patterns in the names of contexts; a name with a line feed
    is not offered."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    names = ["a b ", "*", "it's $HOME", "j\u00fcrgen", "p\\q"]
    save_contexts({name: Context(name, "h:1") for name in [*names, "two\nlines"]}, None)
    barnabas = tmp_path / "bin" / "barnabas"
    barnabas.parent.mkdir()
    barnabas.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m barnabas "$@"\n')
    barnabas.chmod(0o755)
    script = (
        'eval "$(barnabas completion bash)"; COMP_WORDS=(barnabas context use ""); COMP_CWORD=3; _barnabas; '
        'eval "words=(${COMPREPLY[*]})"; printf "%s\\n" "${words[@]}"'
    )
    environment = {**os.environ, "PATH": f"{barnabas.parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "--norc", "-c", script], capture_output=True, text=True, check=True, env=environment, cwd=tmp_path
    )
    assert sorted(done.stdout.splitlines()) == sorted(names)


@given(ANY)
def test_a_template_of_a_flow_has_the_topic_that_was_given(topic: str) -> None:
    """In quotation marks, as TOML reads them."""
    text = flow_template("orders", "orders.toml", "orders.test.toml", "json", "sqlite", "localhost:9092", topic)
    assert tomllib.loads(text)["source"]["topics"] == [topic]
