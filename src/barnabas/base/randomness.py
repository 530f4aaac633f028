"""The seam to randomness: a `Random` is injected, so that a seed replays every choice."""

import random
from random import Random

from barnabas.base.ids import Uuid

__all__ = ["Random", "new_random", "random_uuid"]


def new_random() -> Random:
    """A generator seeded by the operating system, for real servers."""
    return random.SystemRandom()


def random_uuid(rng: Random) -> Uuid:
    """A version 4 UUID as Kafka makes topic ids: never a leading ``-`` in base64."""
    while True:
        raw = bytearray(rng.randbytes(16))
        raw[6] = raw[6] & 0x0F | 0x40
        raw[8] = raw[8] & 0x3F | 0x80
        # A printed id must not start with a dash, which tools would read as an option
        # (KIP-516): base64's digit 62.
        if raw[0] >> 2 != 62:
            return Uuid(bytes(raw))
