"""Files with secrets, which only their owner can read at any moment.

Kafka has no counterpart.
"""

import os
from pathlib import Path

__all__ = ["write_private"]


def write_private(path: Path, data: bytes) -> None:
    """Write a file of mode 0600 in the place of what is there."""
    written = path.with_name(f"{path.name}.new")
    written.unlink(missing_ok=True)
    with os.fdopen(os.open(written, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)
    written.replace(path)
