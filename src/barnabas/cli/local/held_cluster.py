"""What a data dir holds of earlier starts of ``barnabas up``: the file of each server,
which says how it is started.

The files are read again, so a cluster starts as it was, with all of its servers, and with what was
edited by hand. A server whose data is there counts, although its file is gone. The file ``up.json``
has the data dir's own path: paths in the files follow a data dir that was moved or copied, which
else would use the data in the former location.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from barnabas.base.errors import BarnabasError
from barnabas.cli.connection.properties import read_properties_file
from barnabas.cli.machine.server_names import (
    COORDINATION_NAME,
    SERVICES,
    broker_config,
    broker_log_dir,
    coordination_config,
    server_of,
)

__all__ = ["HeldCluster", "missing_file", "read_held", "record_location", "refuse_other_data", "split_connect"]

_LOCATION_FILE = "up.json"
_LOG_DIR = re.compile(r"kafka-logs([1-9]\d*)?", re.ASCII)
_COORDINATION_DIR = re.compile(rf"{COORDINATION_NAME}[1-9]?", re.ASCII)
_OTHERS = {"meta.properties": "log dir of a broker", "version-2": "data directory of a coordination server"}


@dataclass(frozen=True, slots=True)
class HeldCluster:
    """The servers of a data dir; the texts of one whose file is gone are empty."""

    brokers: Mapping[int, Mapping[str, str]]
    """By their numbers, from 0 on without a gap."""
    coordination: Mapping[str, Mapping[str, str]]
    """By their names, each with what its zoo.cfg says."""
    services: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By their names, such as ``registry``."""

    @property
    def zookeeper_connect(self) -> tuple[str, str]:
        """The servers that the brokers use, and their chroot, as `split_connect` returns them."""
        return split_connect(next((texts for texts in self.brokers.values() if "zookeeper.connect" in texts), {}))


def split_connect(texts: Mapping[str, str]) -> tuple[str, str]:
    """The servers in a broker's zookeeper.connect, and the chroot with its slash.

    Empty where there is none."""
    servers, slash, chroot = texts.get("zookeeper.connect", "").partition("/")
    return servers.strip(), slash + chroot


def refuse_other_data(directory: Path) -> None:
    """Raise `BarnabasError` for a folder that is itself the data of one server: a new
    cluster beside it is not meant."""
    names = _names(directory)
    if any(server_of(name) is not None for name in names):
        return
    for name, what in _OTHERS.items():
        if name in names:
            command = "server-start" if name == "meta.properties" else "zookeeper-server-start"
            raise BarnabasError(
                f"{directory} is the {what} ({name} is in it), and barnabas up keeps such in folders of its data dir: start the "
                f"server with barnabas {command} and a file of settings, or choose another folder with --data-dir"
            )


def read_held(directory: Path, warn: Callable[[str], None]) -> HeldCluster:
    """Read the files of all servers. Raises `BarnabasError`."""
    found: dict[str, dict[str, str]] = {}
    for name in _names(directory):
        if (server := server_of(name)) is not None:
            found[server] = _read(directory / name, warn)
        elif match := _LOG_DIR.fullmatch(name):
            if (directory / name / "meta.properties").exists():
                found.setdefault(match[1] or "0", {})
        elif _COORDINATION_DIR.fullmatch(name) and (directory / name / "version-2").exists():
            found.setdefault(name, {})
    coordination = {name: texts for name, texts in sorted(found.items()) if name.startswith(COORDINATION_NAME)}
    services = {name: texts for name, texts in found.items() if name in SERVICES}
    numbers = [int(name) for name in found if name not in coordination and name not in services]
    brokers = {number: found.get(str(number), {}) for number in range(max(numbers, default=-1) + 1)}
    former = _former_location(directory, brokers)
    held = HeldCluster(
        {number: _moved(texts, former, directory) for number, texts in brokers.items()},
        {name: _moved(texts, former, directory) for name, texts in coordination.items()},
        {name: _moved(texts, former, directory) for name, texts in services.items()},
    )
    _refuse_unnamed(directory, held, warn)
    return held


def _refuse_unnamed(directory: Path, held: HeldCluster, warn: Callable[[str], None]) -> None:
    """Raise `BarnabasError` for data of a broker or a coordination server that no file names, as
    Apache's may be laid out."""
    named = {str(directory / broker_log_dir(number)) for number in held.brokers}
    named.update(path.strip() for texts in held.brokers.values() for path in texts.get("log.dirs", "").split(","))
    ids = {texts.get("broker.id", str(number)) for number, texts in held.brokers.items() if texts}
    for meta in sorted(directory.glob("*/meta.properties")):
        if str(meta.parent) in named:
            continue
        broker_id = _read(meta, warn).get("broker.id", "")
        message = f"{meta.parent} is the log dir of broker {broker_id or '(of KRaft mode)'}, and no file in {directory} names it"
        if broker_id not in ids:
            raise BarnabasError(
                f"{message}: name it in log.dirs of {broker_config(0)} or of another broker's file there, or choose another folder "
                "with --data-dir"
            )
        warn(message)
    for data in sorted(directory.glob("*/version-2")):
        if not held.coordination:
            raise BarnabasError(
                f"{data.parent} is the data directory of a coordination server, and no file in {directory} names it: name it in "
                f"dataDir of {coordination_config(COORDINATION_NAME)} there, or choose another folder with --data-dir"
            )


def record_location(directory: Path) -> None:
    """Record where the data dir is now."""
    (directory / _LOCATION_FILE).write_text(json.dumps({"data_dir": str(directory)}), encoding="utf-8")


def _names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def _read(path: Path, warn: Callable[[str], None]) -> dict[str, str]:
    try:
        return read_properties_file(path, warn)
    except ValueError as error:
        raise BarnabasError(f"{path} is not a properties file: {error}") from None


def _former_location(directory: Path, brokers: Mapping[int, Mapping[str, str]]) -> Path:
    """Where the data dir was at the last start.

    Before it was recorded, every start wrote it to the files."""
    try:
        return Path(json.loads((directory / _LOCATION_FILE).read_text(encoding="utf-8"))["data_dir"])
    except FileNotFoundError:
        for number, texts in brokers.items():
            log_dir = Path(texts.get("log.dirs", ""))
            if log_dir.name == broker_log_dir(number):
                return log_dir.parent
    except (ValueError, KeyError, TypeError):
        pass
    return directory


def _moved(texts: Mapping[str, str], former: Path, directory: Path) -> dict[str, str]:
    """The texts with paths in the present data dir for those in the former one,
    unless the data stayed there."""
    if former == directory:
        return dict(texts)

    def moved(path: str) -> str:
        try:
            present = directory / Path(path.strip()).relative_to(former)
        except ValueError:
            return path
        return path if Path(path.strip()).exists() and not present.exists() else str(present)

    return {name: ",".join(map(moved, text.split(","))) for name, text in texts.items()}


def missing_file(directory: Path, name: str) -> BarnabasError:
    """The error for a server that cannot be started without its file, which is gone."""
    file = coordination_config(name) if name.startswith(COORDINATION_NAME) else broker_config(int(name))
    return BarnabasError(f"{directory / file} is gone, and the data of the server is there: put the file back")
