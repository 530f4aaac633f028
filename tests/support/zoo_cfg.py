"""One file zoo.cfg of the table of `support.zoo_cfg_table`, and the texts that many
of them begin with."""

from dataclasses import dataclass
from pathlib import Path

__all__ = ["ALONE", "DATA", "IMAGE", "IMAGE_THREE", "LIMITS", "MEMBER", "ONE", "THREE", "TWO", "ZooCfg"]


@dataclass(frozen=True, slots=True)
class ZooCfg:
    """A zoo.cfg with the files around it."""

    name: str
    text: str | bytes
    apache: str
    """What Apache's server makes of it."""
    my_id: str | None = "1"
    """The content of the file myid; None without one."""
    dynamic: str | None = None
    """The content of the file ``{dir}/zoo.cfg.dynamic``, or of ``dynamic_name``."""
    dynamic_name: str = "zoo.cfg.dynamic"
    ours: str | None = None
    """What this version makes of it, where that differs."""
    why: str = ""
    """Why it differs."""

    def write(self, folder: Path) -> Path:
        """Write the files; the path of zoo.cfg."""
        folder.mkdir()
        (folder / "data").mkdir()
        if self.my_id is not None:
            (folder / "data" / "myid").write_text(self.my_id)
        if self.dynamic is not None:
            (folder / self.dynamic_name).write_text(self.dynamic.replace("{dir}", str(folder)))
        path = folder / "zoo.cfg"
        text = self.text.encode() if isinstance(self.text, str) else self.text
        path.write_bytes(text.replace(b"{dir}", str(folder).encode()))
        return path


DATA = "dataDir={dir}/data\n"
LIMITS = "initLimit=5\nsyncLimit=2\n"
ALONE = DATA + "clientPort=2181\n"
MEMBER = ALONE + LIMITS
ONE = "server.1=localhost:2888:3888;2181\n"
TWO = "server.1=a.invalid:2888:3888\nserver.2=b.invalid:2888:3888\n"
THREE = TWO + "server.3=c.invalid:2888:3888\n"
IMAGE = (
    "dataDir={dir}/data\ndataLogDir={dir}/datalog\ntickTime=2000\ninitLimit=5\nsyncLimit=2\nautopurge.snapRetainCount=3\n"
    "autopurge.purgeInterval=0\nmaxClientCnxns=60\nstandaloneEnabled=true\nadmin.enableServer=true\n"
)
IMAGE_THREE = "server.1=zoo1:2888:3888;2181 server.2=zoo2:2888:3888;2181 server.3=zoo3:2888:3888;2181\n".replace(
    " ", "\n"
)
