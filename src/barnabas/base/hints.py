"""What a person may have meant by a name that is not known."""

from collections.abc import Iterable

__all__ = ["did_you_mean"]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """``; did you mean NAME?`` with the nearest of the known names, for the end of an error.

    Empty if none is near."""
    from difflib import get_close_matches  # only where something is wrong already

    close = get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""
