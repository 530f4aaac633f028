"""The folder that holds a partition's files. Kafka: LocalLog's dir.

All components of a log share one `Folder`, so a rename of the folder is one call.
"""

from barnabas.base.files import Files

__all__ = ["Folder"]


class Folder:
    """A folder on a file system, wherever it is renamed to."""

    __slots__ = ("directory", "files", "parent")

    def __init__(self, files: Files, directory: str) -> None:
        self.files = files
        self.move_to(directory)

    def path(self, name: str) -> str:
        """The path of a file in the folder."""
        return f"{self.directory}/{name}"

    def move_to(self, directory: str) -> None:
        """The folder was renamed."""
        self.directory = directory
        self.parent = directory.rpartition("/")[0]
        """The folder that holds it."""
