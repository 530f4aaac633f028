"""Fuzz target: request headers and every message of the Kafka protocol.

``fuzz`` takes any bytes: the first three choose an API, a direction and a version, the rest is what
a peer sent. It returns for whatever is read or malformed; anything else that it raises is a bug.
Run by tests/fuzz/test_fuzz_kafka.py for a moment, by hand for as long as you like:
``python tests/fuzz/fuzz_kafka_messages.py [SEED]``.
"""

import contextlib
import sys
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parents[1]))

from barnabas.wire.kafka.codec import decode, encode
from barnabas.wire.kafka.errors import MalformedMessageError
from barnabas.wire.kafka.frames import decode_request_header, decode_response_header
from support.kafka_messages import all_messages, arbitrary
from support.mutations import forever, mutated

MESSAGES = all_messages()


def fuzz(data: bytes) -> None:
    """Read the bytes as a header, and as the message that their first three choose."""
    with contextlib.suppress(MalformedMessageError):
        decode_request_header(data)
    with contextlib.suppress(MalformedMessageError):
        decode_response_header(data, 3, 12)
    if len(data) < 3:
        return
    kind = MESSAGES[(data[0] << 8 | data[1]) % len(MESSAGES)]
    first, last = kind.VERSIONS
    version = first + data[2] % (last - first + 1)
    with contextlib.suppress(MalformedMessageError):
        message = decode(kind, version, data[3:])
        assert decode(kind, version, bytes(encode(message, version))) == message


def seed_input(random: Random) -> bytes:
    """A sound message, damaged in a few places."""
    number = random.randrange(len(MESSAGES))
    kind = MESSAGES[number]
    first, last = kind.VERSIONS
    choice = random.randrange(last - first + 1)
    encoded = encode(arbitrary(kind, first + choice, random), first + choice)
    return bytes([number >> 8, number & 255, choice]) + mutated(bytes(encoded), random)


if __name__ == "__main__":
    forever(fuzz, seed_input)
