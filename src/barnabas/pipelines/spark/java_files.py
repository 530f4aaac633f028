"""The text of a file with arguments that would otherwise be on Java's command line. No I/O.

Kafka has no counterpart: this is the syntax of the java command's ``@argfiles``.
"""

from collections.abc import Iterator

__all__ = ["argument_file"]

_ESCAPES = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"}


def argument_file(options: str) -> str:
    """The options, as Spark's script would split them, one a line, for ``java @FILE``."""
    return "".join(f'"{_quoted(each)}"\n' for each in _split(options))


def _quoted(word: str) -> str:
    escapes = {**_ESCAPES, '"': '\\"'}
    return "".join(escapes.get(each, each) for each in word)


def _split(options: str) -> Iterator[str]:
    """As Spark's launcher splits them: quotes of both kinds group, a backslash takes
    the next letter as it is."""
    word, quote, has_word, escaped = "", "", False, False
    for letter in options:
        if escaped:
            word, escaped = word + letter, False
        elif letter == "\\" and quote != "'":
            escaped = has_word = True
        elif quote and letter == quote:
            quote = ""
        elif quote:
            word += letter
        elif letter in "\"'":
            quote, has_word = letter, True
        elif letter.isspace():
            if has_word:
                yield word
            word, has_word = "", False
        else:
            word, has_word = word + letter, True
    if has_word:
        yield word
