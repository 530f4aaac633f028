"""Answers with very many names of children, encoded in slices: other clients are served between two
of them.

What is read is read at once, so the answer is of one moment; only its encoding takes long.

ZooKeeper has no counterpart: its connections have threads.
"""

from collections.abc import Generator

from barnabas.wire.jute.codec import encode, encode_into
from barnabas.wire.jute.frames import MultiPart, encode_multi_part
from barnabas.wire.jute.records import GetChildren2Response, GetChildrenResponse

__all__ = ["MANY_NAMES", "EncodingInSlices", "encode_children", "encode_parts"]

MANY_NAMES = 5000
"""They take a millisecond to encode."""
_LIST_HEAD_BYTES = 4

EncodingInSlices = Generator[None, None, bytearray]
"""Yields wherever other clients may be served, and returns the body of a reply."""


def _append_names(out: bytearray, names: list[str], at: int) -> Generator[None, None, None]:
    """Append names behind an empty list, whose count is at an offset."""
    out[at : at + _LIST_HEAD_BYTES] = len(names).to_bytes(_LIST_HEAD_BYTES, "big")
    for start in range(0, len(names), MANY_NAMES):
        out += memoryview(encode(GetChildrenResponse(names[start : start + MANY_NAMES])))[_LIST_HEAD_BYTES:]
        yield


def encode_children(answer: GetChildrenResponse | GetChildren2Response) -> EncodingInSlices:
    """The answer of getChildren or getChildren2."""
    out = bytearray(_LIST_HEAD_BYTES)
    yield from _append_names(out, answer.children, 0)
    if isinstance(answer, GetChildren2Response):
        encode_into(out, answer.stat)
    return out


def encode_parts(parts: list[MultiPart]) -> EncodingInSlices:
    """The results of a multiRead."""
    out = bytearray()
    left = MANY_NAMES
    for part in parts:
        opcode, record = part
        if isinstance(record, GetChildrenResponse) and len(record.children) > left:
            encode_multi_part(out, (opcode, GetChildrenResponse([])))
            yield from _append_names(out, record.children, len(out) - _LIST_HEAD_BYTES)
            left = MANY_NAMES
        else:
            left -= len(record.children) if isinstance(record, GetChildrenResponse) else 1
            encode_multi_part(out, part)
    encode_multi_part(out, None)
    return out
