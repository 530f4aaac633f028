"""``barnabas dump-log``: print and verify a log's files, as Kafka's DumpLogSegments
does, in the same words.

Reads ``.log``, ``.index``, ``.timeindex``, ``.snapshot`` and ``.txnindex`` files of any broker.
Contents go to standard output; what is wrong with an index goes to standard error, after all
files. ``--output json`` prints a document for each batch, record or entry, with the names of the
fields as they stand in the text.
"""

import argparse
import json
import os
import struct
import sys
from collections.abc import Callable, Iterator
from typing import NamedTuple

from crc32c import crc32c

from barnabas.base.errors import BarnabasError, CorruptDataError
from barnabas.base.files import File, OsFiles
from barnabas.cli.options.tool_parser import ToolParser, add_output_option
from barnabas.cli.output.standard_streams import in_blocks
from barnabas.cli.output.terminal import print, print_document
from barnabas.log.names import INDEX, LOG, SNAPSHOT, TIME_INDEX, TXN_INDEX
from barnabas.log.producer_state import decode_snapshot
from barnabas.log.segment.batches import locate
from barnabas.log.segment.transaction_index import decode_transactions
from barnabas.log.settings import CODECS
from barnabas.wire.kafka.errors import KafkaError
from barnabas.wire.kafka.records.batch_header import HEADER, HEADER_BYTES, LOG_OVERHEAD_BYTES, BatchHeader
from barnabas.wire.kafka.records.control import read_end_marker
from barnabas.wire.kafka.records.records import Record, read_records

__all__ = ["main"]

_MAX_INT = (1 << 31) - 1
_LEAST_LENGTH = 14
_UP_TO_MAGIC_BYTES = 17
_OFFSET_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")
_OPTIONAL = frozenset(("deleteHorizonMs", "currentTxnFirstOffset"))
"""Fields that Kafka's tool prints as OptionalLong."""
_DECODED = tuple[str | None, str | None]
_Decoder = Callable[[Record], _DECODED]


class _Findings:
    """What is wrong, by file, in the order in which Kafka's tool reports it."""

    def __init__(self) -> None:
        self.index_mismatches: dict[str, list[tuple[int, int]]] = {}
        self.time_mismatches: dict[str, list[tuple[int, int]]] = {}
        self.times_out_of_order: dict[str, list[tuple[int, int]]] = {}
        self.offsets_not_found: dict[str, list[tuple[int, int]]] = {}
        self.gaps: dict[str, list[tuple[int, int]]] = {}

    def print(self) -> None:
        for path, pairs in self.index_mismatches.items():
            _complain(f"Mismatches in :{path}")
            for index_offset, log_offset in reversed(pairs):
                _complain(f"  Index offset: {index_offset}, log offset: {log_offset}")
        for path, pairs in self.time_mismatches.items():
            _complain(f"Found timestamp mismatch in :{path}")
            for index_time, log_time in pairs:
                _complain(f"  Index timestamp: {index_time}, log timestamp: {log_time}")
        for path, pairs in self.times_out_of_order.items():
            _complain(f"Found out of order timestamp in :{path}")
            for index_time, previous in pairs:
                _complain(f"  Index timestamp: {index_time}, Previously indexed timestamp: {previous}")
        for pairs in self.offsets_not_found.values():
            _complain("The following indexed offsets are not found in the log.")
            for index_offset, log_offset in pairs:
                _complain(f"Indexed offset: {index_offset}, found log offset: {log_offset}")
        for path, pairs in self.gaps.items():
            _complain(f"Non-consecutive offsets in {path}")
            for first, second in reversed(pairs):
                _complain(f"  {first} is followed by {second}")


def _complain(text: str) -> None:
    print(text, file=sys.stderr)


class _Batch(NamedTuple):
    position: int
    header: BatchHeader
    data: bytes

    @property
    def is_valid(self) -> bool:
        return len(self.data) >= HEADER_BYTES and crc32c(memoryview(self.data)[21:]) == self.header.crc


class _Printer:
    """Prints what a file holds, in the words of Kafka's tool or as JSON."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        self.path = ""
        """The file that is dumped."""

    def say(self, line: str) -> None:
        """A line for people."""
        if not self.as_json:
            print(line)

    def show(self, kind: str, fields: dict[str, object]) -> None:
        """A batch, a record or an entry."""
        if self.as_json:
            print_document(json.dumps({"file": self.path, "kind": kind, **fields}, ensure_ascii=False))
        else:
            print(_text(kind, fields))


def _text(kind: str, fields: dict[str, object]) -> str:
    """A line of Kafka's tool, with its blanks."""
    text = " ".join(f"{name}: {_value_text(name, value)}" for name, value in fields.items())
    if kind == "record" and fields:
        return (" " if next(iter(fields)) == "payload" else "| ") + text
    return text + " " if kind == "producer" and "firstSequence" not in fields else text


def _value_text(name: str, value: object) -> str:
    if name in _OPTIONAL:
        return "OptionalLong.empty" if value is None else f"OptionalLong[{value}]"
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"[{','.join(value)}]" if isinstance(value, list) else str(value)


def main(argv: list[str]) -> int:
    """Dump the files; 0 when they could be read (findings about indexes included, as
    in Kafka's tool)."""
    parser = _parser()
    arguments = parser.parse_args(argv)
    paths = [path for group in (*arguments.files, *arguments.more_files) for path in group.split(",") if path]
    if not paths:
        parser.error("--files names no file")
    findings = _Findings()
    try:
        printer = _Printer(as_json=arguments.output == "json")
        decode = _decoder(arguments, printer)
        with in_blocks():
            for path in paths:
                printer.path = path
                _dump(path, arguments, decode, findings, printer)
    except BrokenPipeError:
        raise
    except (BarnabasError, OSError) as error:
        _complain(str(error))
        return 1
    findings.print()
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = ToolParser(
        "dump-log", "Print the contents of log segments, indexes, producer snapshots and transaction indexes."
    )
    parser.add_argument("--files", nargs="+", required=True, metavar="FILE", help="the files, by commas or spaces")
    parser.add_argument("more_files", nargs="*", default=[], help=argparse.SUPPRESS)
    parser.add_argument("--print-data-log", action="store_true", help="print keys and values")
    parser.add_argument("--deep-iteration", action="store_true", help="print every record, not only every batch")
    parser.add_argument("--verify-index-only", action="store_true", help="check indexes against the log, silently")
    parser.add_argument("--index-sanity-check", action="store_true", help="make the checks of a broker's start only")
    parser.add_argument("--max-message-size", type=int, default=5 << 20, metavar="BYTES", help="of the largest batch")
    parser.add_argument("--max-bytes", type=int, default=_MAX_INT, metavar="BYTES", help="read so much of each .log")
    parser.add_argument("--skip-record-metadata", action="store_true", help="print keys and values only")
    parser.add_argument("--key-decoder-class", nargs="?", const="", metavar="CLASS", help="StringDecoder by default")
    parser.add_argument("--value-decoder-class", nargs="?", const="", metavar="CLASS", help="StringDecoder by default")
    parser.add_argument("--offsets-decoder", action="store_true", help="the records are __consumer_offsets'")
    parser.add_argument("--transaction-log-decoder", action="store_true", help="the records are __transaction_state's")
    add_output_option(parser)
    return parser


# ---- decoders


def _decoder(arguments: argparse.Namespace, printer: _Printer) -> _Decoder | None:
    """How keys and values are printed; None when they are not."""
    if arguments.offsets_decoder:
        from barnabas.cli.log_files.decoders import decode_offsets_record

        return decode_offsets_record
    if arguments.transaction_log_decoder:
        from barnabas.cli.log_files.decoders import decode_transaction_record

        return decode_transaction_record
    is_wanted = arguments.print_data_log or arguments.key_decoder_class is not None
    if not (is_wanted or arguments.value_decoder_class is not None):
        return None
    key = _class_decoder(arguments.key_decoder_class, printer)
    value = _class_decoder(arguments.value_decoder_class, printer)

    def decode(record: Record) -> _DECODED:
        return (
            None if record.key is None else key(record.key),
            None if record.value is None else value(record.value),
        )

    return decode


def _class_decoder(name: str | None, printer: _Printer) -> Callable[[bytes], str]:
    kinds: dict[str, Callable[[bytes], str]] = {
        "StringDecoder": lambda data: data.decode("utf-8", "replace"),
        "LongDecoder": lambda data: str(int.from_bytes(data, "big", signed=True)),
        "IntegerDecoder": lambda data: str(int.from_bytes(data, "big", signed=True)),
    }
    package, _, kind = (name or "org.apache.kafka.tools.api.StringDecoder").rpartition(".")
    if package not in ("org.apache.kafka.tools.api", "kafka.serializer", "") or kind not in kinds:
        raise BarnabasError(
            f"The decoder {name} is a Java class that cannot be loaded here. "
            f"There are: {', '.join(f'org.apache.kafka.tools.api.{known}' for known in kinds)}"
        )
    if package == "kafka.serializer":
        printer.say(f"{name} is deprecated. Please use org.apache.kafka.tools.api.{kind} instead")
    return kinds[kind]


# ---- files


def _dump(
    path: str, arguments: argparse.Namespace, decode: _Decoder | None, findings: _Findings, printer: _Printer
) -> None:
    printer.say(f"Dumping {path}")
    if not os.path.exists(path):
        raise BarnabasError(f"{path}: there is no such file")
    suffix = os.path.splitext(path)[1]
    if suffix == LOG:
        _dump_log(path, arguments, decode, findings, printer)
    elif suffix == INDEX:
        _dump_index(path, arguments, findings, printer)
    elif suffix == TIME_INDEX:
        _dump_time_index(path, arguments, findings, printer)
    elif suffix == SNAPSHOT:
        _dump_snapshot(path, printer)
    elif suffix == TXN_INDEX:
        for entry in decode_transactions(OsFiles().read(path)):
            printer.show(
                "abortedTransaction",
                {
                    "version": 0,
                    "producerId": entry.producer_id,
                    "firstOffset": entry.first_offset,
                    "lastOffset": entry.last_offset,
                    "lastStableOffset": entry.last_stable_offset,
                },
            )
    else:
        sys.stdout.flush()
        _complain(f"Ignoring unknown file {path}")


def _base_offset(path: str) -> int:
    stem = os.path.basename(path).split(".")[0]
    if not stem.isdigit():
        raise BarnabasError(f"{path}: a segment's file is named by its base offset in 20 digits")
    return int(stem)


def _beside(path: str, suffix: str) -> File:
    """The segment's other file."""
    stem = os.path.basename(path).split(".")[0]
    return OsFiles().open(os.path.join(os.path.dirname(path), stem + suffix), read_only=True)


def _batches(file: File, end: int) -> Iterator[_Batch]:
    """Whole batches; stops at the first that is cut off or cannot be one."""
    position = 0
    while position < end - _UP_TO_MAGIC_BYTES:
        length = int.from_bytes(file.read_at(position + 8, 4), "big", signed=True)
        size = length + LOG_OVERHEAD_BYTES
        if length < _LEAST_LENGTH or position + size > end:
            return
        data = file.read_at(position, size)
        if data[16] < 2:
            raise BarnabasError(f"position {position}: message format {data[16]} is not read, only 2 is")
        if size < HEADER_BYTES:
            return
        yield _Batch(position, BatchHeader._make(HEADER.unpack_from(data)), data)
        position += size


def _dump_log(
    path: str, arguments: argparse.Namespace, decode: _Decoder | None, findings: _Findings, printer: _Printer
) -> None:
    printer.say(f"Log starting offset: {_base_offset(path)}")
    file = OsFiles().open(path, read_only=True)
    size = min(file.size(), arguments.max_bytes)
    is_deep = arguments.deep_iteration or decode is not None
    valid_bytes, last_offset = 0, -1
    for batch in _batches(file, size):
        printer.show("batch", _batch_fields(batch))
        if is_deep:
            for record in _records(path, batch):
                if last_offset != -1 and record.offset != last_offset + 1:
                    findings.gaps.setdefault(os.path.abspath(path), []).append((last_offset, record.offset))
                last_offset = record.offset
                printer.show("record", _record_fields(batch, record, decode, arguments.skip_record_metadata))
        valid_bytes += len(batch.data)
    if size > valid_bytes and arguments.max_bytes == _MAX_INT:
        if printer.as_json:
            printer.show("invalidBytes", {"position": valid_bytes, "size": size - valid_bytes})
        else:
            print(f"Found {size - valid_bytes} invalid bytes at the end of {os.path.basename(path)}")
    file.close()


def _records(path: str, batch: _Batch) -> Iterator[Record]:
    try:
        yield from read_records(batch.data)
    except (CorruptDataError, KafkaError) as error:
        raise CorruptDataError(f"{path}: the batch at position {batch.position} cannot be read: {error}") from error


def _timestamp_type(header: BatchHeader) -> str:
    return "LogAppendTime" if header.is_log_append_time else "CreateTime"


def _batch_fields(batch: _Batch) -> dict[str, object]:
    header = batch.header
    codec = header.attributes & 7
    return {
        "baseOffset": header.base_offset,
        "lastOffset": header.last_offset,
        "count": header.record_count,
        "baseSequence": header.base_sequence,
        "lastSequence": header.last_sequence,
        "producerId": header.producer_id,
        "producerEpoch": header.producer_epoch,
        "partitionLeaderEpoch": header.leader_epoch,
        "isTransactional": header.is_transactional,
        "isControl": header.is_control,
        "deleteHorizonMs": header.delete_horizon_ms,
        "position": batch.position,
        _timestamp_type(header): header.max_timestamp,
        "size": len(batch.data),
        "magic": header.magic,
        "compresscodec": CODECS[codec] if codec < len(CODECS) else codec,
        "crc": header.crc,
        "isvalid": batch.is_valid,
    }


def _record_fields(batch: _Batch, record: Record, decode: _Decoder | None, skip_metadata: bool) -> dict[str, object]:
    header = batch.header
    fields: dict[str, object] = {}
    if not skip_metadata:
        sequence = -1
        if header.base_sequence != -1:
            sequence = (header.base_sequence + record.offset - header.base_offset) & _MAX_INT
        fields = {
            "offset": record.offset,
            _timestamp_type(header): record.timestamp,
            "keySize": -1 if record.key is None else len(record.key),
            "valueSize": -1 if record.value is None else len(record.value),
            "sequence": sequence,
            "headerKeys": [key for key, _ in record.headers],
        }
        if header.is_control:
            fields |= _control_fields(batch, record)
    if decode is not None and not header.is_control:
        key, value = decode(record)
        if key is not None:
            fields["key"] = key
        if value is not None:
            fields["payload"] = value
    return fields


def _control_fields(batch: _Batch, record: Record) -> dict[str, object]:
    marker = read_end_marker(batch.data)
    if marker is None:
        kind = int.from_bytes((record.key or b"\0\0\0\0")[2:4], "big", signed=True)
        return {"controlType": f"UNKNOWN({kind})"}
    return {"endTxnMarker": "ABORT" if marker.is_abort else "COMMIT", "coordinatorEpoch": marker.coordinator_epoch}


def _dump_snapshot(path: str, printer: _Printer) -> None:
    try:
        entries = decode_snapshot(OsFiles().read(path))
    except CorruptDataError as error:
        sys.stdout.flush()
        _complain(str(error))
        return
    for entry in entries:
        first = None if entry.transaction_first_offset < 0 else entry.transaction_first_offset
        fields: dict[str, object] = {
            "producerId": entry.producer_id,
            "producerEpoch": entry.epoch,
            "coordinatorEpoch": entry.coordinator_epoch,
            "currentTxnFirstOffset": first,
            "lastTimestamp": entry.timestamp_ms,
        }
        if entry.batches:
            batch = entry.batches[0]
            fields |= {
                "firstSequence": batch.first_sequence,
                "lastSequence": batch.last_sequence,
                "lastOffset": batch.last_offset,
                "offsetDelta": batch.offset_delta,
                "timestamp": batch.timestamp_ms,
            }
        printer.show("producer", fields)


# ---- indexes


def _dump_index(path: str, arguments: argparse.Namespace, findings: _Findings, printer: _Printer) -> None:
    base_offset = _base_offset(path)
    log = _beside(path, LOG)
    data = OsFiles().read(path)
    entries = list(_OFFSET_ENTRY.iter_unpack(data[: len(data) // 8 * 8]))
    if not entries:
        printer.say(f"{path} is empty.")
        return
    if arguments.index_sanity_check:
        if entries[-1][0] < 0:
            raise CorruptDataError(f"Corrupt index found, index file {path}: its last offset is below the base offset")
        if len(data) % 8:
            raise CorruptDataError(f"Index file {path} is corrupt, found {len(data)} bytes, no multiple of 8")
        printer.say(f"{path} passed sanity check.")
        return
    for number, (relative, position) in enumerate(entries):
        if relative == 0 and number:
            return  # zeros that a crash left
        offset = base_offset + relative
        found = _last_offset_at(log, position, arguments.max_message_size)
        if found != offset:
            findings.index_mismatches.setdefault(os.path.abspath(path), []).append((offset, found))
        if not arguments.verify_index_only:
            printer.show("indexEntry", {"offset": offset, "position": position})


def _last_offset_at(log: File, position: int, max_message_bytes: int) -> int:
    data = log.read_at(position, HEADER_BYTES) if position >= 0 else b""
    if len(data) < HEADER_BYTES:
        return -1
    header = BatchHeader._make(HEADER.unpack(data))
    return header.last_offset if header.size_bytes <= max_message_bytes else -1


def _dump_time_index(path: str, arguments: argparse.Namespace, findings: _Findings, printer: _Printer) -> None:
    base_offset = _base_offset(path)
    log, index_file = _beside(path, LOG), _beside(path, INDEX)
    data = OsFiles().read(path)
    entries = list(_TIME_ENTRY.iter_unpack(data[: len(data) // 12 * 12]))
    if arguments.index_sanity_check:
        if entries and (entries[-1][0] < entries[0][0] or entries[-1][1] < 0):
            raise CorruptDataError(
                f"Corrupt time index found, time index file {path}: its last entry is below its first"
            )
        if len(data) % 12:
            raise CorruptDataError(f"Time index file {path} is corrupt, found {len(data)} bytes, no multiple of 12")
        printer.say(f"{path} passed sanity check.")
        return
    index_data = index_file.read_at(0, index_file.size() // 8 * 8)
    index = list(_OFFSET_ENTRY.iter_unpack(index_data))
    name = os.path.abspath(path)
    previous = -1
    for number, (timestamp, relative) in enumerate(entries):
        if relative == 0 and number:
            return  # zeros that a crash left
        offset = base_offset + relative
        _check_time(log, index, base_offset, offset, timestamp, previous, name, findings)
        if not arguments.verify_index_only:
            printer.show("timeIndexEntry", {"timestamp": timestamp, "offset": offset})
        previous = timestamp


def _check_time(
    log: File,
    index: list[tuple[int, ...]],
    base_offset: int,
    offset: int,
    timestamp: int,
    previous: int,
    name: str,
    findings: _Findings,
) -> None:
    position = max((entry[1] for entry in index if base_offset + entry[0] <= offset), default=0)
    found = locate(log, position, log.size(), offset)
    if found is None:
        findings.offsets_not_found.setdefault(name, []).append((offset, -1))
        return
    data = log.read_at(found.position, found.size)
    header = BatchHeader._make(HEADER.unpack_from(data))
    if header.last_offset != offset:
        findings.offsets_not_found.setdefault(name, []).append((offset, header.last_offset))
        return
    batch = _Batch(found.position, header, data)
    largest = max((record.timestamp for record in _records(name, batch)), default=-1)
    if largest != timestamp:
        findings.time_mismatches.setdefault(name, []).append((timestamp, largest))
    if previous >= timestamp:
        findings.times_out_of_order.setdefault(name, []).append((timestamp, previous))
