"""When the records of a produced batch are checked: at once, or in a thread first if that takes
long. Kafka: LogValidator.

An append is given one of three: `AT_ONCE` checks whatever comes. `SHORT_CHECKS` checks what takes
some milliseconds at most, and raises `LongCheckError` for the rest: many records or headers, large
compressed batches, and those that grow. Its caller runs the error's check in a thread and appends
again, with the third: a `DeferredCheck` that has run. That may raise `LongCheckError` once more, if
the topic has another configuration by then. Apache's brokers need no such choice: there each
request has a thread.

How long a check takes follows from the number of records and headers, and from the bytes that are
unpacked and compressed again. How many headers there are, and what a compressed batch holds, is
only known by looking, so that stops at a limit. No more than two batches are unpacked at a time: a
few hundred bytes may hold megabytes, and the threads of a broker are many.
"""

from collections.abc import Callable, Mapping
from typing import Protocol

from barnabas.base.errors import BarnabasError, CorruptDataError
from barnabas.base.files import Buffer
from barnabas.base.threads import AtMost
from barnabas.log.append_checks import unpacked_limit_bytes
from barnabas.log.conversion import (
    convert_unpacked,
    is_body_checked,
    packed_records,
    refusal_of,
    validate_and_convert,
    validate_records,
)
from barnabas.log.settings import LogConfig
from barnabas.wire.kafka.errors import KafkaError
from barnabas.wire.kafka.records.batch_header import COMPRESSION_MASK, BatchHeader, HeaderFields
from barnabas.wire.kafka.records.compression import CompressionType, TooLargeError, decompress_produced
from barnabas.wire.kafka.records.contents import TooManyObjectsError, check_body
from barnabas.wire.kafka.records.packed_contents import check_packed

__all__ = ["AT_ONCE", "SHORT_CHECKS", "DeferredCheck", "LongCheckError", "RecordValidator"]

_MANY_RECORDS = 4_096
"""Some 3 ms, if each has to be looked at."""
_MANY_OBJECTS = 8_192
"""Records and headers: some 4 ms."""
_MANY_BYTES = 32 * 1024
"""Some 2 ms for gzip, 7 for the highest levels; headers that fill it take 3."""
_LARGE_BODY_BYTES = 1 << 20
_LARGE_BYTES: Mapping[int, int] = {
    CompressionType.GZIP: 32 * 1024,
    CompressionType.SNAPPY: _LARGE_BODY_BYTES,
    CompressionType.LZ4: _LARGE_BODY_BYTES,
    CompressionType.ZSTD: 128 * 1024,
}
"""Unpacking this many bytes of a codec takes 0.5 ms. Through a thread it would take as long, and
twice the processor's time."""
_MANY_BLOCKS = 256
"""Some 0.3 ms."""

_unpackings = AtMost(2)


class RecordValidator(Protocol):
    """How an append checks records.

    See the functions of the same names in `barnabas.log.conversion`."""

    def validate_records(self, batch: Buffer, fields: HeaderFields, config: LogConfig) -> None: ...

    def validate_and_convert(self, batch: Buffer, fields: HeaderFields, config: LogConfig, now_ms: int) -> Buffer: ...


class DeferredCheck:
    """The check of one batch apart from its append. `run` it in any thread, then append the batch
    with it.

    If something else is to be checked by then, because the topic's configuration has changed, it
    checks as `SHORT_CHECKS`.
    """

    def __init__(
        self, check: Callable[[], Buffer | None], config: LogConfig | None = None, *, unpacks: bool = False
    ) -> None:
        """``check`` has the converted batch, for ``config``, as its result.

        None for a batch that is stored as it came. ``unpacks`` says that it unpacks one.
        """
        self._check = check
        self._config = config
        self._unpacks = unpacks or config is not None
        self._converted: Buffer | None = None
        self._refusal: tuple[type[KafkaError], tuple[object, ...], dict[str, object]] | None = None
        """An error's class, arguments and attributes. The error itself would keep the frames that
        it passes, and in them what the records were unpacked to."""

    def run(self) -> None:
        """Check the records. The append shows the outcome."""
        try:
            self._converted = _unpackings.run(self._check) if self._unpacks else self._check()
        except KafkaError as error:
            self._refusal = type(error), error.args, error.__dict__

    def validate_records(self, batch: Buffer, fields: HeaderFields, config: LogConfig) -> None:
        if self._config is not None:
            SHORT_CHECKS.validate_records(batch, fields, config)
        else:
            self._refuse()

    def _refuse(self) -> None:
        """Raise the error that the check has found, if any."""
        if self._refusal is not None:
            raise self._new_error(*self._refusal)

    @staticmethod
    def _new_error(kind: type[KafkaError], arguments: tuple[object, ...], attributes: dict[str, object]) -> KafkaError:
        """Another one for each time.

        A function of its own: in the frame that raises it, it would be in a cycle."""
        error = kind.__new__(kind, *arguments)
        error.__dict__.update(attributes)
        return error

    def validate_and_convert(self, batch: Buffer, fields: HeaderFields, config: LogConfig, now_ms: int) -> Buffer:
        if config is not self._config:
            return SHORT_CHECKS.validate_and_convert(batch, fields, config, now_ms)
        self._refuse()
        assert self._converted is not None
        return self._converted


class LongCheckError(BarnabasError):
    """Nothing was appended: run a check in a thread, and append the batch with it."""

    def __init__(self, check_of: Callable[[Buffer], DeferredCheck]) -> None:
        """``check_of`` makes the check of the batch, wherever its bytes are by then."""
        super().__init__("the records of a batch take long to check")
        self.check_of = check_of


class _AtOnce:
    def validate_records(self, batch: Buffer, fields: HeaderFields, config: LogConfig) -> None:
        validate_records(batch, fields, config)

    def validate_and_convert(self, batch: Buffer, fields: HeaderFields, config: LogConfig, now_ms: int) -> Buffer:
        return validate_and_convert(batch, fields, config, now_ms)


class _ShortChecks:
    def validate_records(self, batch: Buffer, fields: HeaderFields, config: LogConfig) -> None:
        kind, count = fields[5] & COMPRESSION_MASK, fields[12]
        if kind and not is_body_checked(fields, config):
            return
        if count < _MANY_RECORDS:
            try:
                if not kind:
                    check_body(packed_records(batch, fields), count, _MANY_OBJECTS, may_copy=True)
                    return
                if fields[1] <= _LARGE_BYTES[kind]:
                    limit = min(_LARGE_BODY_BYTES, unpacked_limit_bytes(config))
                    body = packed_records(batch, fields)
                    check_packed(CompressionType(kind), body, count, limit, _MANY_BLOCKS, _MANY_OBJECTS)
                    return
            except (TooLargeError, TooManyObjectsError):
                pass  # the long check says whether it is too large
            except CorruptDataError as error:
                raise refusal_of(error) from None
        raise LongCheckError(
            lambda batch: DeferredCheck(lambda: validate_records(batch, fields, config), unpacks=bool(kind))
        )

    def validate_and_convert(self, batch: Buffer, fields: HeaderFields, config: LogConfig, now_ms: int) -> Buffer:
        header = BatchHeader._make(fields)
        if header.record_count < _MANY_RECORDS and header.length <= _MANY_BYTES:
            limit = min(_MANY_BYTES, unpacked_limit_bytes(config))
            try:
                body = decompress_produced(header.compression, packed_records(batch, fields), limit, _MANY_BLOCKS)
            except CorruptDataError:
                pass  # it is too large, or damaged: the long check distinguishes
            else:
                return convert_unpacked(batch, header, body, config, now_ms)
        raise LongCheckError(
            lambda batch: DeferredCheck(lambda: validate_and_convert(batch, fields, config, now_ms), config)
        )


AT_ONCE: RecordValidator = _AtOnce()
SHORT_CHECKS: RecordValidator = _ShortChecks()
