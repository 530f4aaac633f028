"""Texts of files that Java reads: properties, and arguments that would otherwise be on its command line. No I/O.

Kafka has no counterpart: this is the syntax of java.util.Properties and of the java command's ``@argfiles``.
"""

from collections.abc import Iterator, Mapping

__all__ = ["argument_file", "properties_text"]

_ESCAPES = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"}


def properties_text(values: Mapping[str, str]) -> str:
    """A file of properties with these names and values, in ASCII."""
    return "".join(f"{_property(name, ' =:#!')}={_property(value, ' #!')}\n" for name, value in values.items())


def _property(text: str, special: str) -> str:
    return "".join(_escaped(each, special) for each in text)


def _escaped(letter: str, special: str) -> str:
    if letter in _ESCAPES:
        return _ESCAPES[letter]
    if letter in special:
        return f"\\{letter}"
    if " " <= letter <= "~":
        return letter
    units = letter.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def argument_file(options: str) -> str:
    """The options, as Spark's script would split them, one a line, for ``java @FILE``."""
    return "".join(f'"{_quoted(each)}"\n' for each in _split(options))


def _quoted(word: str) -> str:
    escapes = {**_ESCAPES, '"': '\\"'}
    return "".join(escapes.get(each, each) for each in word)


def _split(options: str) -> Iterator[str]:
    """As Spark's launcher splits them: quotes of both kinds group, a backslash takes the next letter as it is."""
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
