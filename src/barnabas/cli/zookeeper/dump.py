"""``barnabas zookeeper-dump FILE ...``: what is in a snapshot or a transaction log,
ours or Apache ZooKeeper's.

In ZooKeeper: SnapshotFormatter and TxnLogToolkit (LogFormatter). Files are read and never changed.
"""

import base64
import dataclasses
import json
from collections.abc import Iterable, Iterator
from typing import Any

from barnabas.base.errors import BarnabasError
from barnabas.base.files import OsFiles
from barnabas.cli.options.tool_parser import ToolParser, add_output_option
from barnabas.cli.output.standard_streams import in_blocks
from barnabas.cli.output.terminal import print, print_document
from barnabas.coordination.storage.snapshot import SNAPSHOT_MAGIC, read_snapshot
from barnabas.coordination.storage.transaction_log import LOG_MAGIC, read_transaction_log, zxid_of_name
from barnabas.wire.jute.codec import MalformedRecordError, decode
from barnabas.wire.jute.opcodes import OpCode
from barnabas.wire.jute.transactions import TRANSACTION_TYPES, MultiTxn, Transaction, decode_transaction

__all__ = ["main"]

Item = dict[str, Any]


def main(argv: list[str]) -> int:
    """Print the files; an error for one that is damaged, after what could be read."""
    parser = ToolParser(
        "zookeeper-dump", "Show the contents of snapshots and transaction logs of a coordination server."
    )
    parser.add_argument("files", nargs="+", metavar="FILE", help="snapshot.ZXID or log.ZXID files")
    add_output_option(parser)
    arguments = parser.parse_args(argv)
    for path in arguments.files:
        kind, items = _contents(path)
        if arguments.output == "json":
            _print_json(path, kind, items)
        else:
            _print_text(path, kind, items)
    return 0


def _print_text(path: str, kind: str, items: Iterable[Item]) -> None:
    with in_blocks():
        print(f"{path}: {kind}")
        for item in items:
            print("  " + " ".join(f"{name}={_shown(value)}" for name, value in item.items()))


def _print_json(path: str, kind: str, items: Iterable[Item]) -> None:
    """One document for each file, written as it is read."""
    with in_blocks():
        print(f'{{"file": {json.dumps(path)}, "kind": {json.dumps(kind)}, "items": [', end="")
        for number, item in enumerate(items):
            print_document((",\n" if number else "\n") + json.dumps(item, ensure_ascii=False), end="")
        print("", "]}", sep="\n")


def _shown(value: object) -> str:
    return value if isinstance(value, str) and value.isprintable() else json.dumps(value, ensure_ascii=False)


def _contents(path: str) -> tuple[str, Iterator[Item]]:
    files = OsFiles()
    name = path.rpartition("/")[2]
    try:
        with open(path, "rb") as file:
            magic = int.from_bytes(file.read(4), "big")
    except OSError as error:
        raise BarnabasError(f"cannot read {path}: {error.strerror}") from None
    if magic == LOG_MAGIC:
        return "transaction log", _transactions(files, path)
    if magic == SNAPSHOT_MAGIC or name.endswith((".gz", ".snappy")):
        return "snapshot", _snapshot(files.read(path), path, zxid_of_name(name, "snapshot") or 0)
    raise BarnabasError(f"{path} is neither a snapshot nor a transaction log: it does not begin with ZKSN or ZKLG")


def _transactions(files: OsFiles, path: str) -> Iterator[Item]:
    for payload in read_transaction_log(files, path, repair=False):
        try:
            header, txn, digest = decode_transaction(payload)
        except MalformedRecordError as error:
            raise BarnabasError(f"{path} holds a transaction that cannot be read: {error}") from None
        item: Item = {
            "zxid": f"0x{header.zxid:x}",
            "time_ms": header.time_ms,
            "session": f"0x{header.client_id & (1 << 64) - 1:x}",
            "cxid": header.cxid,
            "type": _type_name(header.type),
            **(_fields(txn) if txn is not None else {}),
        }
        if digest is not None:
            item["digest"] = digest.tree_digest
        yield item


def _type_name(number: int) -> str:
    try:
        return OpCode(number).name.lower()
    except ValueError:
        return str(number)


def _fields(txn: Transaction) -> Item:
    if isinstance(txn, MultiTxn):
        parts = []
        for part in txn.txns:
            record = decode(TRANSACTION_TYPES[part.type], part.data or b"") if part.type in TRANSACTION_TYPES else None
            parts.append({"type": _type_name(part.type), **(_fields(record) if record is not None else {})})
        return {"parts": parts}
    found: Item = {}
    for field in dataclasses.fields(txn):
        found |= _field(field.name, getattr(txn, field.name))
    return found


def _field(name: str, value: Any) -> Item:
    """Data as text where it is text, else in base64 under another name."""
    if isinstance(value, bytes):
        try:
            return {name: value.decode()}
        except UnicodeDecodeError:
            return {f"{name}_base64": base64.b64encode(value).decode("ascii")}
    if name == "acl" and value is not None:
        return {name: [{"perms": perms, "scheme": identity.scheme, "id": identity.id} for perms, identity in value]}
    return {name: value}


def _snapshot(data: bytes, path: str, zxid: int) -> Iterator[Item]:
    database = read_snapshot(data, path, zxid)
    for session_id, timeout_ms in sorted(database.session_timeouts_ms.items()):
        yield {"session": f"0x{session_id & (1 << 64) - 1:x}", "timeout_ms": timeout_ms}
    for node_path, node in sorted(database.tree.nodes.items()):
        stat = node.stat()
        yield {
            "path": node_path,
            **_field("data", node.data),
            **_field("acl", node.acl),
            **{field.name: getattr(stat, field.name) for field in dataclasses.fields(stat)},
        }
