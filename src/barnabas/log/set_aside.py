"""Files that do not belong to a log, or hold damaged data, keep their bytes under another
name: nothing is thrown away.

``NAME.aside`` in the partition's folder, with a number when that is taken. No broker reads such a
file, Apache's neither; it goes when the partition is deleted, or when an operator removes it
(docs/how-to/recover-a-disk.md). Kafka: no counterpart.
"""

from barnabas.base.files import Files

__all__ = ["ASIDE", "keep_bytes", "set_aside"]

ASIDE = ".aside"
_CHUNK_BYTES = 1 << 20


def set_aside(files: Files, path: str) -> str:
    """Rename a file; returns its new path. Raises `OSError`."""
    kept = _free_path(files, path)
    files.rename(path, kept)
    return kept


def keep_bytes(files: Files, path: str, position: int, size: int) -> str:
    """Copy the bytes of a file from a position to ``size``, before they are cut off.

    Returns the copy's path. Raises `OSError`."""
    kept = _free_path(files, f"{path}.{position}")
    source = files.open(path, read_only=True)
    try:
        copy = files.open(kept, create=True)
        try:
            while position < size and (chunk := source.read_at(position, min(_CHUNK_BYTES, size - position))):
                copy.append([chunk])
                position += len(chunk)
            copy.sync()
        finally:
            copy.close()
    finally:
        source.close()
    return kept


def _free_path(files: Files, path: str) -> str:
    kept, number = path + ASIDE, 1
    while files.exists(kept):
        kept, number = f"{path}{ASIDE}.{number}", number + 1
    return kept
