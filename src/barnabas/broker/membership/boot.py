"""Whether a broker that starts may have less on its disks than its last life had.

A killed process leaves all that it wrote in the page cache. A machine that lost its power, or a disk that was replaced,
does not: what was not synced is gone. Such a broker must not come back as if nothing had happened: while the
registration of its last life stands, its replicas count as in sync, and one that leads could go on leading, in the same
leader epoch, without records that the others have.

So each log dir holds a note of the operating system's boot id. Where it names another boot, or is missing, the broker
waits for the end of the registration that its last life left, whereupon the controller takes it from the in-sync sets,
and only then registers itself. Where the system has no boot id (outside Linux) nothing is known, and nobody waits.
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
    """Whether the system has run without a break since the broker's last life used each of the log dirs."""
    boot_id = _read(files, _BOOT_ID)
    return boot_id is None or all(_read(files, f"{path}/{_NOTE}") == boot_id for path in log_dirs)


def note_boot(files: Files, log_dirs: Sequence[str]) -> None:
    """Write down under which boot the log dirs are used from now on; a dir that cannot be written is left alone.

    Nothing is synced: a note that is lost with the power has done its work.
    """
    boot_id = _read(files, _BOOT_ID)
    if boot_id is None:
        return
    for path in log_dirs:
        if _read(files, f"{path}/{_NOTE}") != boot_id:
            try:
                files.write_atomically(f"{path}/{_NOTE}", boot_id, sync=False)
            except OSError:
                continue  # that dir is given up elsewhere, or will be
