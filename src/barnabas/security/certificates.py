"""What a certificate says of itself: its subject, and from when until when it is valid.

Only these fields are read, of certificates that a server showed and that are not verified. The
layout (RFC 5280, in DER) is nested values of a tag, a length and the contents::

    Certificate: TBSCertificate: [0] version (optional), serial number, algorithm, issuer,
        validity: notBefore, notAfter; subject: names, each a set with one or more pairs of an
        object identifier and a text; and what follows

In Kafka: `java.security.cert.X509Certificate`.
"""

from collections.abc import Iterator
from typing import NamedTuple

from barnabas.base.errors import CorruptDataError
from barnabas.base.record_times import instant_ms

__all__ = ["CertificateFields", "read_certificate"]

_UTC_TIME, _VERSION = 0x17, 0xA0
_COMMON_NAME = bytes.fromhex("550403")
_MAX_SUBJECT = 200


class CertificateFields(NamedTuple):
    """Times in ms since the epoch. The subject is its common name; "" where it has none."""

    subject: str
    not_before_ms: int
    not_after_ms: int


def read_certificate(der: bytes) -> CertificateFields:
    """Raises `CorruptDataError` for what is not a certificate."""
    try:
        (_, whole), *_ = _values(der)
        (_, to_be_signed), *_ = _values(whole)
        fields = list(_values(to_be_signed))
        if fields[0][0] == _VERSION:
            del fields[0]
        _, _, _, (_, validity), (_, subject), *_ = fields
        (first_tag, first), (last_tag, last) = _values(validity)
        return CertificateFields(_common_name(subject), _time_ms(first_tag, first), _time_ms(last_tag, last))
    except (IndexError, ValueError) as error:
        raise CorruptDataError(f"not a certificate: {error}") from None


def _values(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The tag and the contents of each value."""
    position = 0
    while position < len(data):
        tag, length = data[position], data[position + 1]
        position += 2
        if length & 0x80:
            size = length & 0x7F
            if not 0 < size <= 4:
                raise ValueError("a length of another form than DER's")
            length = int.from_bytes(data[position : position + size], "big")
            position += size
        if position + length > len(data):
            raise ValueError("a value that is cut off")
        yield tag, data[position : position + length]
        position += length


def _common_name(subject: bytes) -> str:
    for _, names in _values(subject):
        for _, pair in _values(names):
            (_, identifier), (_, text) = _values(pair)
            if identifier == _COMMON_NAME:
                return text.decode("utf-8", "replace")[:_MAX_SUBJECT]
    return ""


def _time_ms(tag: int, text: bytes) -> int:
    """UTCTime has two digits for the year, of 1950 to 2049."""
    digits = text.decode("ascii")
    if tag == _UTC_TIME:
        digits = ("19" if digits[:2] >= "50" else "20") + digits
    if len(digits) != len("YYYYMMDDhhmmssZ") or digits[-1] != "Z" or not digits[:-1].isdecimal():
        raise ValueError("a time of another form than RFC 5280 has")
    date, time = (digits[:4], digits[4:6], digits[6:8]), (digits[8:10], digits[10:12], digits[12:14])
    return instant_ms(f"{'-'.join(date)}T{':'.join(time)}Z")
