"""Names that a person, a file system or a database may take for another one."""

import unicodedata
from urllib.parse import quote

__all__ = ["NAMES", "lookalikes"]

NAMES = ("orders-Espresso.2024", "\u00c5ngstr\u00f6m", "shop_a-o.payments", "caf\u00e9-\ufb01ne", "\u30ab\u30d5\u30a7")
_WIDE = {code: code + 0xFEE0 for code in range(0x21, 0x7F)}
_ALIKE = {
    "a": "\u0430\u00e0\u1d43",
    "e": "\u0435\u00e9",
    "o": "\u043e\u03bf0",
    "p": "\u0440",
    "s": "\u0455\u017f",
    "n": "\u0578\u207f",
    "-": "\u2010\u2212_.",
    ".": "\u3002_",
}
_UNSEEN = " \t\n\r\0\u00a0\u00ad\u200b\u200d\u202e\u2060\ufeff\u0301/%*"


def lookalikes(name: str) -> set[str]:
    """In case, width, normal form, letters of other scripts, and characters that are not seen."""
    found = {name.upper(), name.lower(), name.title(), name.casefold(), name.translate(_WIDE)}
    found |= {unicodedata.normalize(form, name) for form in ("NFC", "NFD", "NFKC", "NFKD")}
    for number, each in enumerate(name):
        others = {each.swapcase(), each.translate(_WIDE), *_ALIKE.get(each.lower(), "")}
        found |= {name[:number] + other + name[number + 1 :] for other in others}
    found |= {name[:number] + other + name[number:] for number in range(len(name) + 1) for other in _UNSEEN}
    return (found | {name[:-1], name[1:], name * 2, "", f"{quote(name, safe='')}%20", f'"{name}"'}) - {name}
