"""The files of an ensemble's configuration beside zoo.cfg, which a reconfiguration writes.

    zoo.cfg                   the settings of this server alone, and
                              dynamicConfigFile=PATH/zoo.cfg.dynamic.VERSION
    zoo.cfg.dynamic.VERSION   the configuration in force: server, group and weight lines;
                              the version is in the name
    zoo.cfg.dynamic.next      a configuration that was proposed and may not be in
                              force, with its version
    zoo.cfg.bak               zoo.cfg as it was before its lines moved to a dynamic file

A proposed configuration is on stable storage before the proposal is acknowledged, and one in force
before zoo.cfg names it: a server that restarts asks both for a quorum, until it learns the outcome.

In ZooKeeper: `QuorumPeerConfig.writeDynamicConfig` and `editStaticConfig`. Apache's server drops
the comments of zoo.cfg and the order of its lines, which stay here.
"""

from collections.abc import Callable, Mapping

from barnabas.base.errors import ConfigError
from barnabas.base.files import Files
from barnabas.base.settings import edited_properties, properties_text, read_properties, utf8_warnings
from barnabas.coordination.quorum.configuration import QuorumConfiguration, is_dynamic, parse_dynamic_text

__all__ = ["ConfigurationFiles", "merge_dynamic_texts", "read_zoo_cfg", "with_dynamic_file"]

_CLIENT = ("clientPort", "clientPortAddress")
_ENCODING = "latin-1"


def merge_dynamic_texts(texts: Mapping[str, str], file_name: str, file_texts: Mapping[str, str]) -> dict[str, str]:
    """The texts of zoo.cfg together with those of its dynamic file.

    Raises `ConfigError` for a line in the wrong file. The version is the last part of the file's
    name, as in ``zoo.cfg.dynamic.100000000``.
    """
    for name in texts:
        if is_dynamic(name):
            raise ConfigError(f"{name} must be in the file that dynamicConfigFile names ({file_name}), not beside it")
    for name in file_texts:
        if name == "version":
            raise ConfigError(f"{file_name} sets version: the version of such a file is the last part of its name")
        if not is_dynamic(name):
            raise ConfigError(f"{file_name} sets {name}: such a file may have server, group and weight lines only")
    suffix = file_name.rpartition(".")[2]
    is_version = 0 < len(suffix) <= 16 and all(digit in "0123456789abcdef" for digit in suffix.lower())
    return {**texts, **file_texts, **({"version": suffix} if is_version else {})}


def read_zoo_cfg(
    read: Callable[[str], bytes],
    path: str,
    overrides: Mapping[str, str] | None = None,
    warn: Callable[[str], None] = lambda _: None,
) -> dict[str, str]:
    """The texts of a zoo.cfg, and of the dynamic file that it names.

    ``read`` reads one file, and raises OSError. Names and values are without the blanks around
    them, as ZooKeeper's server takes them. ``warn`` gets a line for each value in UTF-8, for the
    files are read as ISO-8859-1, as Java reads them. Raises `ConfigError`.
    """
    return with_dynamic_file(_read_texts(read, path, warn) | dict(overrides or {}), read, warn)


def with_dynamic_file(
    texts: Mapping[str, str], read: Callable[[str], bytes], warn: Callable[[str], None] = lambda _: None
) -> dict[str, str]:
    """The texts of zoo.cfg and of the dynamic file that they name, as `read_zoo_cfg` reads it.

    Raises `ConfigError`."""
    path = texts.get("dynamicConfigFile", "").strip()
    return merge_dynamic_texts(texts, path, _read_texts(read, path, warn)) if path else dict(texts)


def _read_texts(read: Callable[[str], bytes], path: str, warn: Callable[[str], None]) -> dict[str, str]:
    try:
        text = read(path).decode(_ENCODING)
        texts = read_properties(text)
    except OSError as error:
        raise ConfigError(f"the configuration {path} cannot be read: {error.strerror or error}") from None
    except ValueError as error:
        raise ConfigError(f"the configuration {path} is not a properties file: {error}") from None
    for line in utf8_warnings(path, text):
        warn(line)
    return {name.strip(): text.strip() for name, text in texts.items()}


class ConfigurationFiles:
    """See the module."""

    def __init__(self, files: Files, path: str) -> None:
        """``path`` is the absolute path of zoo.cfg."""
        self._files = files
        self._path = path
        self._next_path = f"{path}.dynamic.next"

    def read_next(self) -> QuorumConfiguration | None:
        """The configuration that was proposed last, if it may not be in force.

        Raises `ConfigError`."""
        if not self._files.exists(self._next_path):
            return None
        try:
            return parse_dynamic_text(self._files.read(self._next_path).decode())
        except (ConfigError, UnicodeDecodeError) as error:
            raise ConfigError(f"{self._next_path} cannot be read: {error}. Remove it, or restore it") from None

    def write_next(self, configuration: QuorumConfiguration) -> None:
        """Keep a configuration that is proposed. Durable at return."""
        self._files.write_atomically(self._next_path, configuration.next_file_text().encode())

    def remove_next(self) -> None:
        """The last configuration that was proposed is in force, or given up."""
        if self._files.exists(self._next_path):
            self._files.remove(self._next_path)

    def back_up(self) -> None:
        """Copy zoo.cfg, unless its lines are in a dynamic file already."""
        text = self._files.read(self._path)
        if "dynamicConfigFile" not in read_properties(text.decode(_ENCODING)):
            self._files.write_atomically(f"{self._path}.bak", text)

    def activate(self, configuration: QuorumConfiguration, *, keeps_client_port: bool) -> None:
        """Write a configuration that is in force, and let zoo.cfg name it. Durable at return."""
        dynamic_path = f"{self._path}.dynamic.{configuration.version:x}"
        self._files.write_atomically(dynamic_path, configuration.file_text().encode())
        text = self._files.read(self._path).decode(_ENCODING)
        text = _edited(text, dynamic_path, keeps_client_port=keeps_client_port)
        self._files.write_atomically(self._path, text.encode(_ENCODING))


def _edited(text: str, dynamic_path: str, *, keeps_client_port: bool) -> str:
    """zoo.cfg without what the dynamic file says, and with its name."""
    dropped = {"dynamicConfigFile", "peerType", *(() if keeps_client_port else _CLIENT)}
    removed = {name: None for name in read_properties(text) if name in dropped or is_dynamic(name)}
    return edited_properties(text, removed) + properties_text({"dynamicConfigFile": dynamic_path})
