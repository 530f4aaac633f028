"""What a server makes of a zoo.cfg, compared with the recorded verdicts of Apache's
QuorumPeerConfig."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.base.errors import ConfigError
from barnabas.base.files import OsFiles
from barnabas.cli.main import main
from barnabas.coordination.quorum.configuration import QuorumConfiguration
from barnabas.coordination.quorum.configuration_files import ConfigurationFiles, read_zoo_cfg
from barnabas.coordination.quorum.members import HostAndPort
from barnabas.coordination.server.peer_config import PeerConfig, configuration_warnings, read_peer_config
from barnabas.coordination.server.server import CoordinationServer
from barnabas.coordination.server.settings import ineffective_lines, parse_settings, session_timeouts_ms
from support.ports import free_ports
from support.zoo_cfg import ZooCfg
from support.zoo_cfg_table import FILES


def verdict(path: Path) -> str:
    """In the words of `ZooCfgProbe.java`."""
    files = OsFiles()
    try:
        settings = parse_settings(read_zoo_cfg(files.read, str(path)))
        config = read_peer_config(settings, files)
    except ConfigError:
        return "refused"
    low, high = session_timeouts_ms(settings)
    secure = settings["secureClientPort"]
    secure_address = HostAndPort(settings["secureClientPortAddress"] or "0.0.0.0", secure) if secure else None
    purge = f"{max(settings['autopurge.snapRetainCount'], 3)}/{settings['autopurge.purgeInterval']}"
    words = [
        _role(config),
        f"client={config.client or 'none'}",
        f"secure={secure_address or 'none'}",
        f"id={-1 if config.my_id is None else config.my_id}",
        f"tick={settings['tickTime']}",
        f"sessions={low}-{high}",
        f"limits={settings['initLimit']}/{settings['syncLimit']}",
        f"connections={settings['maxClientCnxns']}",
        f"purge={purge}",
        f"dataDir={settings['dataDir'].replace(str(path.parent), '{dir}')}",
    ]
    return " ".join(words)


def _role(config: PeerConfig) -> str:
    ensemble = config.ensemble
    if ensemble is None:
        return "alone"
    if config.my_id not in ensemble.servers:
        return "not-a-member"
    role = "observer" if config.my_id in ensemble.observers else "participant"
    counts = f"voters={len(ensemble.voters)} observers={len(ensemble.observers)}"
    return f"{role} {counts} version={ensemble.version:x}"


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_a_zoo_cfg_makes_the_server_that_apache_zookeeper_makes_of_it(file: ZooCfg, tmp_path: Path) -> None:
    """Alone or a member, its id, the ports that answer, and the settings; or the
    start is refused."""
    expected = file.ours or file.apache
    found = verdict(file.write(tmp_path / "conf"))
    assert found == (expected if not expected.startswith("refused") else "refused")


@pytest.mark.parametrize(
    "file", [file for file in FILES if (file.ours or file.apache).startswith("refused")], ids=lambda file: file.name
)
def test_a_refused_zoo_cfg_ends_the_start_with_2_and_one_line(
    file: ZooCfg, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The status is that of Apache's server for a file that it cannot use."""
    path = file.write(tmp_path / "conf")
    assert main(["zookeeper-server-start", str(path)]) == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("zookeeper-server-start: ")]
    assert len(lines) == 1


IMAGE = next(file for file in FILES if file.name == "the file of the container image")


@pytest.mark.parametrize("standalone", ["true", "false"])
def test_the_zoo_cfg_of_the_container_image_serves_on_the_port_of_its_server_line(
    standalone: str, tmp_path: Path
) -> None:
    """Alone, and as an ensemble of one."""
    quorum, election, client = free_ports(3)
    path = IMAGE.write(tmp_path / "conf")
    text = path.read_text().replace("localhost:2888:3888;2181", f"localhost:{quorum}:{election};{client}")
    path.write_text(text.replace("standaloneEnabled=true", f"standaloneEnabled={standalone}"))
    settings = parse_settings(read_zoo_cfg(OsFiles().read, str(path)))

    async def ask() -> bytes:
        server = CoordinationServer(settings)
        await server.start()
        try:
            assert server.port == client
            reader, writer = await asyncio.open_connection("127.0.0.1", client)
            writer.write(b"srvr")
            answer = await reader.read()
            writer.close()
            return answer
        finally:
            await server.close()

    assert asyncio.run(ask()).startswith((b"Zookeeper version", b"This ZooKeeper instance is not currently serving"))


def test_a_reconfiguration_keeps_the_encoding_of_zoo_cfg(tmp_path: Path) -> None:
    """A comment in Latin-1 stands in the file as it did."""
    path = tmp_path / "zoo.cfg"
    path.write_bytes("# f\u00fcr \u0085\r\ntickTime=2000\r\nserver.1=a:1:2\r\n".encode("latin-1"))
    files = ConfigurationFiles(OsFiles(), str(path))
    files.back_up()
    files.activate(QuorumConfiguration.parse({"server.1": "a:1:2", "version": "1f"}), keeps_client_port=True)
    written = path.read_bytes().decode("latin-1")
    assert written == f"# f\u00fcr \u0085\r\ntickTime=2000\r\ndynamicConfigFile={path}.dynamic.1f\n"


@pytest.mark.parametrize(
    ("lines", "my_id", "warned"),
    [
        (1, "1", []),
        (2, "1", ["No server failure will be tolerated"]),
        (3, "1", []),
        (4, "1", ["Non-optimal configuration"]),
    ],
)
def test_seldom_meant_sizes_of_an_ensemble_are_warned_of(
    lines: int, my_id: str, warned: list[str], tmp_path: Path
) -> None:
    """Two voters, and an even number of them, as by Apache's server; the file of a
    server alone has no warning."""
    text = IMAGE.text.partition("server.1")[0] if isinstance(IMAGE.text, str) else ""
    text += "".join(f"server.{number}=zoo{number}:2888:3888;2181\n" for number in range(1, lines + 1))
    found = _warnings(ZooCfg("", text, "", my_id=my_id).write(tmp_path / "conf"))
    assert [line[: len(start)] for line, start in zip(found, warned, strict=True)] == warned


def _warnings(path: Path) -> list[str]:
    settings = parse_settings(read_zoo_cfg(OsFiles().read, str(path)))
    config = read_peer_config(settings, OsFiles())
    return [*ineffective_lines(settings), *configuration_warnings(settings, config)]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("peerType=observer\n", "peerType is observer, and the line server.1 says participant"),
        ("autopurge.snapRetainCount=1\n", "autopurge.snapRetainCount=1 is below 3"),
        ("dataLogDir=logs\n", "dataLogDir=logs is relative"),
    ],
)
def test_a_value_that_is_not_used_as_it_stands_is_warned_of(text: str, what: str, tmp_path: Path) -> None:
    """Each in one line with its name."""
    servers = "".join(f"server.{number}=zoo{number}:2888:3888\n" for number in (1, 2, 3))
    path = ZooCfg("", "dataDir={dir}/data\nclientPort=2181\ninitLimit=5\nsyncLimit=2\n" + servers + text, "").write(
        tmp_path / "conf"
    )
    (line,) = _warnings(path)
    assert line.startswith(what)


def test_one_setting_under_two_names_with_two_values_is_refused() -> None:
    """The name with zookeeper. and without it mean the same; neither wins."""
    texts = {"dataDir": "/d", "clientPort": "1", "skipACL": "no", "zookeeper.skipACL": "yes"}
    with pytest.raises(ConfigError, match="skipACL and zookeeper.skipACL are one setting"):
        parse_settings(texts)


def test_the_lines_of_a_log_name_the_server_and_the_first_is_no_warning(tmp_path: Path) -> None:
    """Behind the file myid, as in the log of Apache's server.

    An id that no line has ends the start with 1, as there."""
    text = "dataDir={dir}/data\nclientPort=2181\ninitLimit=5\nsyncLimit=2\nserver.1=a:1:2\nserver.2=b:1:2\n"
    path = ZooCfg("", text, "", my_id="7").write(tmp_path / "conf")
    command = [sys.executable, "-m", "barnabas", "zookeeper-server-start", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    first, warning, error = done.stderr.splitlines()
    assert f"INFO Reading configuration from: {path}" in first
    assert "] [myid:7] WARNING No server failure will be tolerated" in warning
    assert error.endswith("has the id 7, and there is no line server.7")
    assert done.returncode == 1


def test_a_server_that_starts_does_not_report_its_own_start(tmp_path: Path) -> None:
    """Every line until it serves is of the level INFO."""
    (port,) = free_ports(1)
    path = ZooCfg("", f"dataDir={{dir}}/data\nclientPort={port}\nclientPortAddress=127.0.0.1\n", "").write(
        tmp_path / "c"
    )
    command = [sys.executable, "-m", "barnabas", "zookeeper-server-start", str(path)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        lines = []
        for line in process.stderr:
            lines.append(line)
            if "Serving on port" in line:
                break
        process.terminate()
    assert lines
    assert [line for line in lines if " INFO " not in line or "event loop" in line] == []
