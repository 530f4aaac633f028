"""A broker knows whether its machine was restarted since its last life."""

from random import Random

import pytest

from barnabas.log.dirs.boot import has_kept_its_pages, note_boot
from barnabas.testing.simulation.disk import Disk, SimulatedFiles
from barnabas.testing.simulation.loop import SimulatedClock, SimulatedLoop

BOOT_ID = "/proc/sys/kernel/random/boot_id"
DIRS = ["/logs", "/more"]


@pytest.fixture
def files() -> SimulatedFiles:
    loop = SimulatedLoop()
    loop.close()
    files = SimulatedFiles(Disk(Random(1), SimulatedClock(loop)))
    for path in DIRS:
        files.make_dirs(path)
    return files


def test_a_first_start_counts_as_a_loss(files: SimulatedFiles) -> None:
    """An empty disk looks the same as one that was replaced."""
    assert not has_kept_its_pages(files, DIRS)


def test_a_process_that_starts_again_finds_its_own_note(files: SimulatedFiles) -> None:
    """It was killed, and the page cache has all that it wrote."""
    note_boot(files, DIRS)
    assert has_kept_its_pages(files, DIRS)


def test_another_boot_counts_as_a_loss_until_it_is_noted(files: SimulatedFiles) -> None:
    """What was not synced is gone."""
    note_boot(files, DIRS)
    files.write_atomically(BOOT_ID, b"two\n")
    assert not has_kept_its_pages(files, DIRS)
    note_boot(files, DIRS)
    assert has_kept_its_pages(files, DIRS)


def test_one_replaced_disk_of_several_counts_as_a_loss(files: SimulatedFiles) -> None:
    """Its replicas are gone, whatever the others kept."""
    note_boot(files, DIRS)
    files.remove_tree("/more")
    files.make_dirs("/more")
    assert not has_kept_its_pages(files, DIRS)


def test_a_system_without_a_boot_id_does_not_count_as_a_loss(files: SimulatedFiles) -> None:
    """Nothing can be known there, and nothing is noted."""
    files.remove(BOOT_ID)
    note_boot(files, DIRS)
    assert has_kept_its_pages(files, DIRS)
    assert files.list("/logs") == []
