"""Damage for fuzz targets, from a seed."""

import sys
from collections.abc import Callable
from random import Random

BAD_NUMBERS = [value.to_bytes(4, "big") for value in (0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0xFFFFFFFE, 20_000_000)]
BAD_VARINTS = [b"\xff" * 4 + b"\x07", b"\xff" * 4 + b"\x0f", b"\xff" * 9 + b"\x01", b"\x80" * 6]


def mutated(data: bytes, random: Random) -> bytes:
    """The data with up to four bits, bytes, numbers or pieces changed."""
    out = bytearray(data)
    for _ in range(random.randint(0, 4)):
        at = random.randrange(len(out) + 1)
        kind = random.randrange(6)
        if kind == 0 and at < len(out):
            out[at] ^= 1 << random.randrange(8)
        elif kind == 1 and at < len(out):
            out[at] = random.randrange(256)
        elif kind == 2:
            out[at : at + 4] = random.choice(BAD_NUMBERS)
        elif kind == 3:
            out[at : at + 1] = random.choice(BAD_VARINTS)
        elif kind == 4:
            del out[at:]
        else:
            out[at:at] = out[: random.randrange(20)]
    return bytes(out)


def forever(fuzz: Callable[[bytes], None], seed_input: Callable[[Random], bytes]) -> None:
    """Run a target with the seed given as the first argument, then the next, and so on.

    Print the one that fails."""
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else 0
    while True:
        try:
            fuzz(seed_input(Random(seed)))
        except BaseException:
            print(f"seed {seed}", file=sys.stderr)
            raise
        seed += 1
