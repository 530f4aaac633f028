"""What the ZooKeeper shell prints: zkCli's text for people, or a JSON document in
one line for each command."""

import base64
import contextlib
import json
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from barnabas.base.record_times import time_in_zone
from barnabas.cli.output.terminal import print, print_document, print_lines
from barnabas.wire.jute.records import Stat

__all__ = ["JsonOutput", "ShellOutput", "TextOutput"]


class ShellOutput(ABC):
    """Standard output.

    Watch events come from another thread at any time, and are lines of their own."""

    def __init__(self) -> None:
        self._printing = threading.Lock()

    @abstractmethod
    def show(self, text: str | Sequence[str], fields: Mapping[str, Any]) -> None:
        """A result: as a line or several, and as fields of a document."""

    @abstractmethod
    def path(self, path: str) -> None:
        """The node that a command was about, which text does not repeat."""

    @abstractmethod
    def data(self, data: bytes | None, form: str = "") -> None:
        """A node's data: as they are, with ``form`` "b" in base64, with "x" as
        hexadecimal digits."""

    @abstractmethod
    def stat(self, stat: Stat) -> None:
        """A stat, with zkCli's names."""

    @abstractmethod
    def remark(self, text: str) -> None:
        """What only people want to know, such as the first connection of a session."""

    @abstractmethod
    def end(self, command: str) -> None:
        """The command has done what it should."""

    def fail(self, command: str, *lines: str, code: str | None = None) -> None:
        """It has not: the message, in lines, is on standard error; ``code`` is the
        service's error."""
        del command, code
        print(*lines, sep="\n", file=sys.stderr)

    @abstractmethod
    def event(self, state: str, kind: str | None, path: str | None) -> None:
        """A watch event, or with ``kind`` None a change of the session."""

    def _print_event(self, *lines: str) -> None:
        # Only the main thread ends where nothing can be printed, not the one that receives events.
        with contextlib.suppress(OSError), self._printing:
            print(*lines, sep="\n")


class TextOutput(ShellOutput):
    """zkCli's text."""

    def show(self, text: str | Sequence[str], fields: Mapping[str, Any]) -> None:
        del fields
        lines = [text] if isinstance(text, str) else text
        print(*lines, sep="\n")

    def path(self, path: str) -> None:
        pass

    def data(self, data: bytes | None, form: str = "") -> None:
        if form == "b":
            print(base64.b64encode(data or b"null").decode())
        elif form == "x":
            print_lines(_hex_dump(data or b"null"))
        else:
            sys.stdout.flush()
            sys.stdout.buffer.write((b"null" if data is None else data) + b"\n")
            sys.stdout.buffer.flush()

    def stat(self, stat: Stat) -> None:
        for name, value in {**_stat_fields(stat), "ctime": _date(stat.ctime), "mtime": _date(stat.mtime)}.items():
            print(f"{name} = {value}")

    def remark(self, text: str) -> None:
        print(text)

    def end(self, command: str) -> None:
        pass

    def event(self, state: str, kind: str | None, path: str | None) -> None:
        self._print_event(
            "", "WATCHER::", "", f"WatchedEvent state:{state} type:{kind or 'None'} path:{path or 'null'}"
        )


class JsonOutput(ShellOutput):
    """What a command shows is collected, and printed as one line when the command has ended."""

    def __init__(self) -> None:
        super().__init__()
        self._document: dict[str, Any] = {}

    def show(self, text: str | Sequence[str], fields: Mapping[str, Any]) -> None:
        del text
        self._document.update(fields)

    def path(self, path: str) -> None:
        self._document["path"] = path

    def data(self, data: bytes | None, form: str = "") -> None:
        self._document.update(_data_fields(data, form))

    def stat(self, stat: Stat) -> None:
        self._document["stat"] = _stat_fields(stat)

    def remark(self, text: str) -> None:
        pass

    def end(self, command: str) -> None:
        self._print_document({"command": command, **self._document})

    def fail(self, command: str, *lines: str, code: str | None = None) -> None:
        super().fail(command, *lines, code=code)
        self._print_document({"command": command, "error": "\n".join(lines), "code": code})

    def event(self, state: str, kind: str | None, path: str | None) -> None:
        self._print_event(_line({"event": kind, "state": state, "path": path}))

    def _print_document(self, document: dict[str, Any]) -> None:
        self._document = {}
        with self._printing:
            print_document(_line(document))


def _line(document: dict[str, Any]) -> str:
    return json.dumps(document, ensure_ascii=False)


def _stat_fields(stat: Stat) -> dict[str, int | str]:
    """Zxids and session ids are texts: they are too large for the numbers of many JSON readers."""
    return {
        "cZxid": f"0x{stat.czxid:x}",
        "ctime": stat.ctime,
        "mZxid": f"0x{stat.mzxid:x}",
        "mtime": stat.mtime,
        "pZxid": f"0x{stat.pzxid:x}",
        "cversion": stat.cversion,
        "dataVersion": stat.version,
        "aclVersion": stat.aversion,
        "ephemeralOwner": f"0x{stat.ephemeral_owner & 0xFFFFFFFFFFFFFFFF:x}",
        "dataLength": stat.data_length,
        "numChildren": stat.num_children,
    }


def _data_fields(data: bytes | None, form: str) -> dict[str, str | None]:
    """``data`` as text; bytes that are no UTF-8, and those that are asked for so,
    under another name."""
    if data is None:
        return {"data": None}
    if form == "x":
        return {"data_hex": data.hex()}
    if form != "b":
        with contextlib.suppress(UnicodeDecodeError):
            return {"data": data.decode()}
    return {"data_base64": base64.b64encode(data).decode()}


def _hex_dump(data: bytes) -> str:
    rows = []
    for start in range(0, len(data), 16):
        row = data[start : start + 16]
        shown = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        rows.append(f"{start:08x}  {row.hex(' '):<47}  {shown}")
    return "\n".join(rows)


def _date(timestamp_ms: int) -> str:
    """As Java's Date prints it: Thu Jan 01 00:00:00 UTC 1970.

    Python has no year after 9999; then the milliseconds."""
    moment = time_in_zone(timestamp_ms)
    return f"{timestamp_ms} ms" if moment is None else f"{moment:%a %b %d %H:%M:%S %Z %Y}"
