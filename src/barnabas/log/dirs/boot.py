"""Whether the log dirs may hold less than the broker's last life acknowledged.

A killed process leaves all that it wrote in the page cache. After a power failure, or with a
replaced disk, everything that was not synced is gone. Such a broker must not come back as if
nothing had happened: while the registration of its last life exists, its replicas count as in
sync, and one that leads could continue to lead, in the same leader epoch, without records that
the other replicas have.

So each log dir holds a note of the operating system's boot id. If it names another boot, or is
missing, the broker waits until the registration of its last life ends. Then the controller removes
the broker from the in-sync sets, and only after that the broker registers. Where the system has no
boot id (outside Linux) nothing can be known, and the broker does not wait. Kafka has no counterpart
in ZooKeeper mode; KIP-966 closes the same gap in KRaft mode.
"""

from collections.abc import Sequence

from barnabas.base.files import Files

__all__ = ["has_kept_its_pages", "note_boot"]

_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_NOTE = ".barnabas_boot_id"


def _read(files: Files, path: str) -> bytes | None:
    try:
        return bytes(files.read(path)).strip()
    except OSError:
        return None


def has_kept_its_pages(files: Files, log_dirs: Sequence[str]) -> bool:
    """Whether the system has run without a break since the broker's last life used
    each of the log dirs."""
    boot_id = _read(files, _BOOT_ID)
    return boot_id is None or all(_read(files, f"{path}/{_NOTE}") == boot_id for path in log_dirs)


def note_boot(files: Files, log_dirs: Sequence[str]) -> None:
    """Write the current boot id to the log dirs. A dir that cannot be written is skipped.

    The note is not synced: it must not survive a power failure either.
    """
    boot_id = _read(files, _BOOT_ID)
    if boot_id is None:
        return
    for path in log_dirs:
        if _read(files, f"{path}/{_NOTE}") != boot_id:
            try:
                files.write_atomically(f"{path}/{_NOTE}", boot_id, sync=False)
            except OSError:
                continue  # that log dir is already offline, or goes offline with its next write
