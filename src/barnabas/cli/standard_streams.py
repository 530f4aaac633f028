"""Standard input, output and error, whatever the caller left of them: closed ones, and encodings without all letters."""

import codecs
import io
import os
import sys

__all__ = ["prepare_streams"]

_ESCAPES = "barnabas.escapes"


def prepare_streams() -> None:
    """Open those that are closed on nothing; write letters that the encoding lacks as escapes, which JSON readers know."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:  # the next socket or file would take the place, and receive what is printed
            os.open(os.devnull, os.O_RDWR)
    sys.stdin = sys.stdin or open(0, encoding="utf-8", closefd=False)  # noqa: SIM115  # they stay open until the end
    sys.stdout = sys.stdout or open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    codecs.register_error(_ESCAPES, _escaped)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors=_ESCAPES)


def _escaped(error: UnicodeError) -> tuple[str, int]:
    """The letters that cannot be encoded as JSON writes them."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    units = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass")
    pairs = (units[at : at + 2].hex() for at in range(0, len(units), 2))
    return "".join(f"\\u{pair}" for pair in pairs), error.end
