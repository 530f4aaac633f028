"""Files zoo.cfg, and what Apache ZooKeeper's `QuorumPeerConfig` makes of each.

The verdicts are those that `ZooCfgProbe.java` printed on ZooKeeper 3.8.4; ``tests/interop/test_zoo_cfg_apache.py`` asks it again.
In the texts, ``{dir}`` is the folder of the file. Where this version decides otherwise, the row says so with a reason.
"""

from dataclasses import dataclass
from pathlib import Path

__all__ = ["FILES", "ZooCfg"]


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


_DATA = "dataDir={dir}/data\n"
_LIMITS = "initLimit=5\nsyncLimit=2\n"
_ALONE = _DATA + "clientPort=2181\n"
_MEMBER = _ALONE + _LIMITS
_ONE = "server.1=localhost:2888:3888;2181\n"
_TWO = "server.1=a.invalid:2888:3888\nserver.2=b.invalid:2888:3888\n"
_THREE = _TWO + "server.3=c.invalid:2888:3888\n"
_IMAGE = (
    "dataDir={dir}/data\ndataLogDir={dir}/datalog\ntickTime=2000\ninitLimit=5\nsyncLimit=2\nautopurge.snapRetainCount=3\n"
    "autopurge.purgeInterval=0\nmaxClientCnxns=60\nstandaloneEnabled=true\nadmin.enableServer=true\n"
)
_IMAGE_THREE = "server.1=zoo1:2888:3888;2181 server.2=zoo2:2888:3888;2181 server.3=zoo3:2888:3888;2181\n".replace(
    " ", "\n"
)

FILES = [
    ZooCfg(
        "the file of the container image",
        _IMAGE + _ONE,
        "alone client=0.0.0.0:2181 secure=none id=1 tick=2000 sessions=4000-40000 limits=5/2 connections=60 purge=3/0 dataDir={dir}/data",
    ),
    ZooCfg(
        "the file of the container image, without myid",
        _IMAGE + _ONE,
        "alone client=none secure=none id=-1 tick=2000 sessions=4000-40000 limits=5/2 connections=60 purge=3/0 dataDir={dir}/data",
        my_id=None,
        ours="refused",
        why="no client could connect",
    ),
    ZooCfg(
        "the file of the container image, three servers",
        _IMAGE + _IMAGE_THREE,
        "participant voters=3 observers=0 version=0 client=0.0.0.0:2181 secure=none id=2 tick=2000 sessions=4000-40000 limits=5/2 connections=60 purge=3/0 dataDir={dir}/data",
        my_id="2",
    ),
    ZooCfg(
        "the file of the container image, in replicated mode of one",
        _IMAGE.replace("standaloneEnabled=true", "standaloneEnabled=false") + _ONE,
        "participant voters=1 observers=0 version=0 client=0.0.0.0:2181 secure=none id=1 tick=2000 sessions=4000-40000 limits=5/2 connections=60 purge=3/0 dataDir={dir}/data",
    ),
    ZooCfg(
        "a server alone with clientPort",
        _ALONE,
        "alone client=0.0.0.0:2181 secure=none id=-1 tick=3000 sessions=6000-60000 limits=0/0 connections=60 purge=3/0 dataDir={dir}/data",
        my_id=None,
    ),
    ZooCfg(
        "a server alone with clientPort and a file myid",
        _ALONE,
        "alone client=0.0.0.0:2181 secure=none id=1 tick=3000 sessions=6000-60000 limits=0/0 connections=60 purge=3/0 dataDir={dir}/data",
    ),
    ZooCfg(
        "no port for clients",
        _DATA,
        "alone client=none secure=none id=-1 tick=3000 sessions=6000-60000 limits=0/0 connections=60 purge=3/0 dataDir={dir}/data",
        my_id=None,
        ours="refused",
        why="no client could connect",
    ),
    ZooCfg(
        "no port for clients, and a server line without one",
        _DATA + "server.1=localhost:2888:3888\n",
        "alone client=none secure=none id=1 tick=3000 sessions=6000-60000 limits=0/0 connections=60 purge=3/0 dataDir={dir}/data",
        ours="refused",
        why="no client could connect",
    ),
    ZooCfg(
        "clientPort equal to that of the line, alone",
        _ALONE + _ONE,
        "alone client=0.0.0.0:2181 secure=none id=1 tick=3000 sessions=6000-60000 limits=0/0 connections=60 purge=3/0 dataDir={dir}/data",
    ),
    ZooCfg(
        "clientPort unlike that of the line, alone",
        _DATA + "clientPort=2182\n" + _ONE,
        "refused client address for this server (id = 1) in static config file is 0.0.0.0/0.0.0.0:2182 is different from client address found in dynamic file: /0.0.0.0:2181",
    ),
    ZooCfg(
        "clientPort unlike that of the line, alone, without myid",
        _DATA + "clientPort=2182\n" + _ONE,
        "alone client=0.0.0.0:2182 secure=none id=-1 tick=3000 sessions=6000-60000 limits=0/0 connections=60 purge=3/0 dataDir={dir}/data",
        my_id=None,
    ),
    ZooCfg(
        "clientPort unlike that of the line of another id, alone",
        _DATA + "clientPort=2182\n" + _ONE,
        "alone client=0.0.0.0:2182 secure=none id=2 tick=3000 sessions=6000-60000 limits=0/0 connections=60 purge=3/0 dataDir={dir}/data",
        my_id="2",
    ),
    ZooCfg(
        "only the line of another id names a port, alone",
        _DATA + _ONE,
        "alone client=none secure=none id=2 tick=3000 sessions=6000-60000 limits=0/0 connections=60 purge=3/0 dataDir={dir}/data",
        my_id="2",
        ours="refused",
        why="no client could connect",
    ),
    ZooCfg(
        "clientPort unlike that of the line, member",
        _DATA + _LIMITS + "clientPort=2182\n" + _IMAGE_THREE,
        "refused client address for this server (id = 1) in static config file is 0.0.0.0/0.0.0.0:2182 is different from client address found in dynamic file: /0.0.0.0:2181",
    ),
    ZooCfg(
        "clientPort unlike that of another member's line",
        _DATA + _LIMITS + "clientPort=2182\n" + _THREE.replace("b.invalid:2888:3888", "b.invalid:2888:3888;2181"),
        "participant voters=3 observers=0 version=0 client=0.0.0.0:2182 secure=none id=1 tick=3000 sessions=6000-60000 limits=5/2 connections=60 purge=3/0 dataDir={dir}/data",
    ),
    ZooCfg(
        "clientPort with the port of the line on an address",
        _DATA + "clientPort=2181\nserver.1=localhost:2888:3888;127.0.0.1:2181\n",
        "alone client=127.0.0.1:2181 secure=none id=1 tick=3000 sessions=6000-60000 limits=0/0 connections=60 purge=3/0 dataDir={dir}/data",
    ),
    ZooCfg(
        "clientPort on an address with the port of the line on all",
        _DATA + "clientPort=2181\nclientPortAddress=127.0.0.1\n" + _ONE,
        "refused client address for this server (id = 1) in static config file is /127.0.0.1:2181 is different from client address found in dynamic file: /0.0.0.0:2181",
    ),
    ZooCfg(
        "clientPort on an address equal to the line's",
        _DATA + "clientPort=2181\nclientPortAddress=127.0.0.1\nserver.1=localhost:2888:3888;127.0.0.1:2181\n",
        "alone client=127.0.0.1:2181 secure=none id=1 tick=3000 sessions=6000-60000 limits=0/0 connections=60 purge=3/0 dataDir={dir}/data",
    ),
    ZooCfg(
        "clientPort on a name equal to the line's address",
        _DATA + "clientPort=2181\nclientPortAddress=localhost\nserver.1=localhost:2888:3888;127.0.0.1:2181\n",
        "alone client=127.0.0.1:2181 secure=none id=1 tick=3000 sessions=6000-60000 limits=0/0 connections=60 purge=3/0 dataDir={dir}/data",
        ours="refused",
        why="names are not resolved before the server starts",
    ),
    ZooCfg(
        "clientPortAddress without clientPort",
        _DATA + "clientPortAddress=127.0.0.1\n",
        "refused clientPortAddress is set but clientPort is not set",
    ),
    ZooCfg(
        "clientPortAddress without clientPort, and a line with a port",
        _DATA + "clientPortAddress=127.0.0.1\n" + _ONE,
        "refused clientPortAddress is set but clientPort is not set",
    ),
    ZooCfg(
        "clientPortAddress of an address",
        _ALONE + "clientPortAddress=127.0.0.1\n",
        "alone client=127.0.0.1:2181 secure=none id=1 tick=3000 sessions=6000-60000 limits=0/0 connections=60 purge=3/0 dataDir={dir}/data",
    ),
    ZooCfg("clientPort that is no number", _DATA + "clientPort=x\n", 'refused For input string: "x"'),
    ZooCfg("clientPort of nothing", _DATA + "clientPort=\n", 'refused For input string: ""'),
    ZooCfg("clientPort beyond the last port", _DATA + "clientPort=65536\n", "refused port out of range:65536"),
    ZooCfg("clientPort below the first port", _DATA + "clientPort=-1\n", "refused port out of range:-1"),
    ZooCfg(
        "clientPort with a plus sign",
        _DATA + "clientPort=+2181\n",
        "alone client=0.0.0.0:2181 secure=none id=1 tick=3000 sessions=6000-60000 limits=0/0 connections=60 purge=3/0 dataDir={dir}/data",
    ),
    ZooCfg(
        "clientPort with a comment behind it",
        _DATA + "clientPort=2181 # for clients\n",
        'refused For input string: "2181 # for clients"',
    ),
    ZooCfg(
        "secureClientPort alone",
        _DATA + "secureClientPort=2281\n",
        "alone client=none secure=0.0.0.0:2281 id=1 tick=3000 sessions=6000-60000 limits=0/0 connections=60 purge=3/0 dataDir={dir}/data",
    ),
    ZooCfg(
        "secureClientPort beside clientPort",
        _ALONE + "secureClientPort=2281\nsecureClientPortAddress=127.0.0.1\n",
        "alone client=0.0.0.0:2181 secure=127.0.0.1:2281 id=1 tick=3000 sessions=6000-60000 limits=0/0 connections=60 purge=3/0 dataDir={dir}/data",
    ),
    ZooCfg(
        "secureClientPortAddress without secureClientPort",
        _ALONE + "secureClientPortAddress=127.0.0.1\n",
        "refused secureClientPortAddress is set but secureClientPort is not set",
    ),
    ZooCfg(
        "secureClientPort beside the port of the line",
        _DATA + "secureClientPort=2281\n" + _ONE,
        "alone client=0.0.0.0:2181 secure=0.0.0.0:2281 id=1 tick=3000 sessions=6000-60000 limits=0/0 connections=60 purge=3/0 dataDir={dir}/data",
    ),
    ZooCfg(
        "no port for clients, member",
        _DATA + _LIMITS + _THREE,
        "participant voters=3 observers=0 version=0 client=none secure=none id=1 tick=3000 sessions=6000-60000 limits=5/2 connections=60 purge=3/0 dataDir={dir}/data",
        ours="refused",
        why="no client could connect",
    ),
    ZooCfg(
        "clientPort=0 beside the port of the line",
        _DATA + "clientPort=0\n" + _ONE,
        "alone client=0.0.0.0:2181 secure=none id=1 tick=3000 sessions=6000-60000 limits=0/0 connections=60 purge=3/0 dataDir={dir}/data",
        ours="refused",
        why="ZooKeeper 3.9 takes 0 for a port, 3.8 for none",
    ),
    ZooCfg(
        "one server line",
        _ALONE + "server.1=localhost:2888:3888\n",
        "alone client=0.0.0.0:2181 secure=none id=1 tick=3000 sessions=6000-60000 limits=0/0 connections=60 purge=3/0 dataDir={dir}/data",
    ),
    ZooCfg(
        "one server line, without limits and id",
        _ALONE + "server.1=localhost:2888:3888\n",
        "alone client=0.0.0.0:2181 secure=none id=-1 tick=3000 sessions=6000-60000 limits=0/0 connections=60 purge=3/0 dataDir={dir}/data",
        my_id=None,
    ),
    ZooCfg(
        "one server line, an ensemble",
        _MEMBER + "standaloneEnabled=false\nserver.1=localhost:2888:3888\n",
        "participant voters=1 observers=0 version=0 client=0.0.0.0:2181 secure=none id=1 tick=3000 sessions=6000-60000 limits=5/2 connections=60 purge=3/0 dataDir={dir}/data",
    ),
    ZooCfg(
        "one server line, an ensemble, without initLimit",
        _ALONE + "syncLimit=2\nstandaloneEnabled=false\nserver.1=localhost:2888:3888\n",
        "refused initLimit is not set",
    ),
    ZooCfg(
        "standaloneEnabled=false without server lines",
        _MEMBER + "standaloneEnabled=false\n",
        "refused standaloneEnabled = false then number of participants should be >0",
    ),
    ZooCfg(
        "standaloneEnabled=no",
        _MEMBER + "standaloneEnabled=no\n",
        "refused Invalid option no for standaloneEnabled. Choose 'true' or 'false.'",
    ),
    ZooCfg(
        "standaloneEnabled=FALSE",
        _MEMBER + "standaloneEnabled=FALSE\nserver.1=localhost:2888:3888\n",
        "participant voters=1 observers=0 version=0 client=0.0.0.0:2181 secure=none id=1 tick=3000 sessions=6000-60000 limits=5/2 connections=60 purge=3/0 dataDir={dir}/data",
    ),
    ZooCfg(
        "one participant with an observer",
        _MEMBER + "server.1=a.invalid:1:2\nserver.2=b.invalid:1:2:observer\n",
        "refused Observers w/o quorum is an invalid configuration",
    ),
    ZooCfg(
        "one participant with an observer, an ensemble",
        _MEMBER + "standaloneEnabled=false\nserver.1=a.invalid:1:2\nserver.2=b.invalid:1:2:observer\n",
        "participant voters=1 observers=1 version=0 client=0.0.0.0:2181 secure=none id=1 tick=3000 sessions=6000-60000 limits=5/2 connections=60 purge=3/0 dataDir={dir}/data",
    ),
    ZooCfg(
        "observers only",
        _MEMBER + "server.1=a.invalid:1:2:observer\n",
        "refused Observers w/o participants is an invalid configuration",
    ),
    ZooCfg(
        "observers only, an ensemble",
        _MEMBER + "standaloneEnabled=false\nserver.1=a.invalid:1:2:observer\n",
        "refused standaloneEnabled = false then number of participants should be >0",
    ),
    ZooCfg(
        "two servers",
        _MEMBER + _TWO,
        "participant voters=2 observers=0 version=0 client=0.0.0.0:2181 secure=none id=1 tick=3000 sessions=6000-60000 limits=5/2 connections=60 purge=3/0 dataDir={dir}/data",
    ),
    ZooCfg(
        "three servers",
        _MEMBER + _THREE,
        "participant voters=3 observers=0 version=0 client=0.0.0.0:2181 secure=none id=3 tick=3000 sessions=6000-60000 limits=5/2 connections=60 purge=3/0 dataDir={dir}/data",
        my_id="3",
    ),
    ZooCfg(
        "four servers",
        _MEMBER + _THREE + "server.4=d.invalid:2888:3888\n",
        "participant voters=4 observers=0 version=0 client=0.0.0.0:2181 secure=none id=1 tick=3000 sessions=6000-60000 limits=5/2 connections=60 purge=3/0 dataDir={dir}/data",
    ),
    ZooCfg(
        "an observer",
        _MEMBER + _THREE + "server.4=d.invalid:2888:3888:observer\npeerType=observer\n",
        "observer voters=3 observers=1 version=0 client=0.0.0.0:2181 secure=none id=4 tick=3000 sessions=6000-60000 limits=5/2 connections=60 purge=3/0 dataDir={dir}/data",
        my_id="4",
    ),
    ZooCfg(
        "an observer without peerType",
        _MEMBER + _THREE + "server.4=d.invalid:2888:3888:observer\n",
        "observer voters=3 observers=1 version=0 client=0.0.0.0:2181 secure=none id=4 tick=3000 sessions=6000-60000 limits=5/2 connections=60 purge=3/0 dataDir={dir}/data",
        my_id="4",
    ),
    ZooCfg(
        "peerType=observer on a participant",
        _MEMBER + _THREE + "peerType=observer\n",
        "participant voters=3 observers=0 version=0 client=0.0.0.0:2181 secure=none id=1 tick=3000 sessions=6000-60000 limits=5/2 connections=60 purge=3/0 dataDir={dir}/data",
    ),
    ZooCfg(
        "peerType in capitals",
        _MEMBER + _THREE + "peerType=Participant\n",
        "participant voters=3 observers=0 version=0 client=0.0.0.0:2181 secure=none id=1 tick=3000 sessions=6000-60000 limits=5/2 connections=60 purge=3/0 dataDir={dir}/data",
    ),
    ZooCfg("peerType of another kind", _MEMBER + _THREE + "peerType=leader\n", "refused Unrecognised peertype: leader"),
    ZooCfg(
        "peerType=observer alone",
        _ALONE + "peerType=observer\n",
        "alone client=0.0.0.0:2181 secure=none id=1 tick=3000 sessions=6000-60000 limits=0/0 connections=60 purge=3/0 dataDir={dir}/data",
    ),
    ZooCfg(
        "the role in capitals",
        _MEMBER + _THREE + "server.4=d.invalid:2888:3888:OBSERVER\n",
        "observer voters=3 observers=1 version=0 client=0.0.0.0:2181 secure=none id=4 tick=3000 sessions=6000-60000 limits=5/2 connections=60 purge=3/0 dataDir={dir}/data",
        my_id="4",
    ),
    ZooCfg(
        "a role of another kind",
        _MEMBER + _THREE + "server.4=d.invalid:2888:3888:leader\n",
        "refused Unrecognised peertype: leader",
    ),
    ZooCfg("initLimit missing", _ALONE + "syncLimit=2\n" + _THREE, "refused initLimit is not set"),
    ZooCfg("syncLimit missing", _ALONE + "initLimit=2\n" + _THREE, "refused syncLimit is not set"),
    ZooCfg(
        "initLimit and syncLimit missing, alone",
        _ALONE,
        "alone client=0.0.0.0:2181 secure=none id=1 tick=3000 sessions=6000-60000 limits=0/0 connections=60 purge=3/0 dataDir={dir}/data",
    ),
    ZooCfg("myid missing", _MEMBER + _THREE, "refused myid file is missing", my_id=None),
    ZooCfg("myid not a number", _MEMBER + _THREE, "refused serverid one is not a number", my_id="one\n"),
    ZooCfg("myid not a number, alone", _ALONE, "refused serverid one is not a number", my_id="one\n"),
    ZooCfg("myid empty", _MEMBER + _THREE, "refused serverid null is not a number", my_id=""),
    ZooCfg("myid empty, alone", _ALONE, "refused serverid null is not a number", my_id=""),
    ZooCfg(
        "myid with a line end",
        _MEMBER + _THREE,
        "participant voters=3 observers=0 version=0 client=0.0.0.0:2181 secure=none id=2 tick=3000 sessions=6000-60000 limits=5/2 connections=60 purge=3/0 dataDir={dir}/data",
        my_id="2\n",
    ),
    ZooCfg(
        "myid with a line end of Windows",
        _MEMBER + _THREE,
        "participant voters=3 observers=0 version=0 client=0.0.0.0:2181 secure=none id=2 tick=3000 sessions=6000-60000 limits=5/2 connections=60 purge=3/0 dataDir={dir}/data",
        my_id="2\r\n",
    ),
    ZooCfg(
        "myid with a second line",
        _MEMBER + _THREE,
        "participant voters=3 observers=0 version=0 client=0.0.0.0:2181 secure=none id=2 tick=3000 sessions=6000-60000 limits=5/2 connections=60 purge=3/0 dataDir={dir}/data",
        my_id="2\nserver two\n",
    ),
    ZooCfg(
        "myid with blanks",
        _MEMBER + _THREE,
        "refused serverid  2  is not a number",
        my_id=" 2 \n",
        ours="participant voters=3 observers=0 version=0 client=0.0.0.0:2181 secure=none id=2 tick=3000 sessions=6000-60000 limits=5/2 connections=60 purge=3/0 dataDir={dir}/data",
        why="blanks are invisible, and mean nothing",
    ),
    ZooCfg(
        "myid with a leading zero",
        _MEMBER + _THREE,
        "participant voters=3 observers=0 version=0 client=0.0.0.0:2181 secure=none id=2 tick=3000 sessions=6000-60000 limits=5/2 connections=60 purge=3/0 dataDir={dir}/data",
        my_id="02\n",
    ),
    ZooCfg(
        "myid not in the list",
        _MEMBER + _THREE,
        "not-a-member client=0.0.0.0:2181 secure=none id=7 tick=3000 sessions=6000-60000 limits=5/2 connections=60 purge=3/0 dataDir={dir}/data",
        my_id="7",
    ),
    ZooCfg(
        "myid not in the list, alone",
        _ALONE + "server.1=localhost:2888:3888\n",
        "alone client=0.0.0.0:2181 secure=none id=7 tick=3000 sessions=6000-60000 limits=0/0 connections=60 purge=3/0 dataDir={dir}/data",
        my_id="7",
    ),
    ZooCfg(
        "myid above 255",
        _MEMBER + _THREE,
        "not-a-member client=0.0.0.0:2181 secure=none id=256 tick=3000 sessions=6000-60000 limits=5/2 connections=60 purge=3/0 dataDir={dir}/data",
        my_id="256",
        ours="refused",
        why="the id is a byte of session ids",
    ),
    ZooCfg(
        "myid above 255, alone",
        _ALONE,
        "alone client=0.0.0.0:2181 secure=none id=256 tick=3000 sessions=6000-60000 limits=0/0 connections=60 purge=3/0 dataDir={dir}/data",
        my_id="256",
    ),
    ZooCfg(
        "myid below 0",
        _MEMBER + _THREE,
        "not-a-member client=0.0.0.0:2181 secure=none id=-2 tick=3000 sessions=6000-60000 limits=5/2 connections=60 purge=3/0 dataDir={dir}/data",
        my_id="-2",
        ours="refused",
        why="the id is a byte of session ids",
    ),
    ZooCfg("server id that is no number", _MEMBER + "server.x=a.invalid:1:2\n", 'refused For input string: "x"'),
    ZooCfg(
        "server id that is no number, among three",
        _MEMBER + _THREE + "server.x=a.invalid:1:2\n",
        'refused For input string: "x"',
    ),
    ZooCfg(
        "server line without election port",
        _MEMBER + _TWO + "server.3=c.invalid:2888\n",
        "refused c.invalid:2888 does not have the form server_config or server_config;client_config where server_config is the pipe separated list of host:port:port or host:port:port:type and client_config is port or host:port",
    ),
    ZooCfg(
        "server line without election port, alone",
        _ALONE + "server.1=localhost:2888\n",
        "refused localhost:2888 does not have the form server_config or server_config;client_config where server_config is the pipe separated list of host:port:port or host:port:port:type and client_config is port or host:port",
    ),
    ZooCfg(
        "server line with equal ports",
        _ALONE + "server.1=localhost:2888:2888\n",
        "refused Client and election port must be different! Please update the configuration file on server.1",
    ),
    ZooCfg(
        "server line with a port out of range",
        _ALONE + "server.1=localhost:2888:70000\n",
        "refused port out of range:70000",
    ),
    ZooCfg(
        "server line with a port that is no number",
        _ALONE + "server.1=localhost:2888:x\n",
        "refused Address unresolved: localhost:x",
    ),
    ZooCfg(
        "server line with a client port that is no number",
        _ALONE + "server.1=localhost:2888:3888;x\n",
        "refused Address unresolved: null:x",
    ),
    ZooCfg(
        "server line with two semicolons",
        _ALONE + "server.1=localhost:2888:3888;2181;2281\n",
        "refused localhost:2888:3888;2181;2281 does not have the form server_config or server_config;client_config where server_config is the pipe separated list of host:port:port or host:port:port:type and client_config is port or host:port",
    ),
    ZooCfg(
        "server line with an empty client part",
        _ALONE + "server.1=localhost:2888:3888;\n",
        "alone client=0.0.0.0:2181 secure=none id=1 tick=3000 sessions=6000-60000 limits=0/0 connections=60 purge=3/0 dataDir={dir}/data",
    ),
    ZooCfg(
        "server line with an IPv6 address",
        _DATA + "server.1=[::1]:2888:3888;[::1]:2181\n",
        "alone client=[::1]:2181 secure=none id=1 tick=3000 sessions=6000-60000 limits=0/0 connections=60 purge=3/0 dataDir={dir}/data",
    ),
    ZooCfg(
        "server line with a broken IPv6 address",
        _ALONE + "server.1=[::1:2888:3888\n",
        "refused [::1:2888:3888 starts with '[' but has no matching ']:'",
    ),
    ZooCfg(
        "server line with blanks at its end",
        _DATA + "server.1=localhost:2888:3888;2181  \n",
        "refused Address unresolved: null:2181  ",
        ours="alone client=0.0.0.0:2181 secure=none id=1 tick=3000 sessions=6000-60000 limits=0/0 connections=60 purge=3/0 dataDir={dir}/data",
        why="blanks are invisible, and mean nothing",
    ),
    ZooCfg(
        "server line with blanks around its parts",
        _MEMBER + _TWO + "server.3 = c.invalid:2888:3888\n",
        "participant voters=3 observers=0 version=0 client=0.0.0.0:2181 secure=none id=1 tick=3000 sessions=6000-60000 limits=5/2 connections=60 purge=3/0 dataDir={dir}/data",
    ),
    ZooCfg(
        "server line with two addresses",
        _MEMBER + _TWO + "server.3=c.invalid:2888:3888|d.invalid:2888:3888\n",
        "refused Multiple address feature is disabled, but multiple addresses were specified for sid 3",
    ),
    ZooCfg(
        "server line with two addresses, enabled",
        _MEMBER + "multiAddress.enabled=true\n" + _TWO + "server.3=c.invalid:2888:3888|d.invalid:2888:3888\n",
        "refused Multiple address feature is disabled, but multiple addresses were specified for sid 3",
    ),
    ZooCfg(
        "a host that does not exist, alone",
        _DATA + "server.1=a.invalid:2888:3888;2181\n",
        "alone client=0.0.0.0:2181 secure=none id=1 tick=3000 sessions=6000-60000 limits=0/0 connections=60 purge=3/0 dataDir={dir}/data",
    ),
    ZooCfg(
        "groups",
        _MEMBER + _THREE + "group.1=1:2\ngroup.2=3\nweight.1=2\n",
        "participant voters=3 observers=0 version=0 client=0.0.0.0:2181 secure=none id=1 tick=3000 sessions=6000-60000 limits=5/2 connections=60 purge=3/0 dataDir={dir}/data",
    ),
    ZooCfg("a voter without group", _MEMBER + _THREE + "group.1=1:2\n", "refused Server 3is not in a group"),
    ZooCfg(
        "a voter in two groups",
        _MEMBER + _THREE + "group.1=1:2\ngroup.2=2:3\n",
        "refused Server 2is in multiple groups",
    ),
    ZooCfg("weights without groups", _MEMBER + _THREE + "weight.1=2\n", "refused Server 1is not in a group"),
    ZooCfg(
        "a group of a server that does not exist",
        _MEMBER + _THREE + "group.1=1:2:3:4\n",
        'refused Cannot invoke "java.lang.Long.longValue()" because the return value of "java.util.HashMap.get(Object)" is null',
    ),
    ZooCfg(
        "a weight that is no number",
        _MEMBER + _THREE + "group.1=1:2:3\nweight.1=heavy\n",
        'refused For input string: "heavy"',
    ),
    ZooCfg("a group without number", _MEMBER + _THREE + "group=1:2:3\n", 'refused For input string: "group"'),
    ZooCfg(
        "a group alone",
        _ALONE + _ONE + "group.1=1\n",
        "alone client=0.0.0.0:2181 secure=none id=1 tick=3000 sessions=6000-60000 limits=0/0 connections=60 purge=3/0 dataDir={dir}/data",
    ),
    ZooCfg(
        "a dynamic file",
        _MEMBER + "dynamicConfigFile={dir}/zoo.cfg.dynamic\n",
        "participant voters=3 observers=0 version=0 client=0.0.0.0:2181 secure=none id=1 tick=3000 sessions=6000-60000 limits=5/2 connections=60 purge=3/0 dataDir={dir}/data",
        dynamic=_THREE,
    ),
    ZooCfg(
        "a dynamic file with a version in its name",
        _MEMBER + "dynamicConfigFile={dir}/zoo.cfg.dynamic.10000000a\n",
        "participant voters=3 observers=0 version=10000000a client=0.0.0.0:2181 secure=none id=1 tick=3000 sessions=6000-60000 limits=5/2 connections=60 purge=3/0 dataDir={dir}/data",
        dynamic=_THREE,
        dynamic_name="zoo.cfg.dynamic.10000000a",
    ),
    ZooCfg(
        "a dynamic file with a version in capitals",
        _MEMBER + "dynamicConfigFile={dir}/zoo.cfg.dynamic.10000000A\n",
        "participant voters=3 observers=0 version=10000000a client=0.0.0.0:2181 secure=none id=1 tick=3000 sessions=6000-60000 limits=5/2 connections=60 purge=3/0 dataDir={dir}/data",
        dynamic=_THREE,
        dynamic_name="zoo.cfg.dynamic.10000000A",
    ),
    ZooCfg(
        "a dynamic file with a version inside",
        _MEMBER + "dynamicConfigFile={dir}/zoo.cfg.dynamic\n",
        "refused dynamic file shouldn't have version inside",
        dynamic=_THREE + "version=5\n",
    ),
    ZooCfg(
        "a dynamic file with the client port",
        _DATA + _LIMITS + "dynamicConfigFile={dir}/zoo.cfg.dynamic\n",
        "participant voters=3 observers=0 version=0 client=0.0.0.0:2181 secure=none id=1 tick=3000 sessions=6000-60000 limits=5/2 connections=60 purge=3/0 dataDir={dir}/data",
        dynamic=_IMAGE_THREE,
    ),
    ZooCfg(
        "a dynamic file with another client port",
        _DATA + _LIMITS + "clientPort=2182\ndynamicConfigFile={dir}/zoo.cfg.dynamic\n",
        "refused client address for this server (id = 1) in static config file is 0.0.0.0/0.0.0.0:2182 is different from client address found in dynamic file: /0.0.0.0:2181",
        dynamic=_IMAGE_THREE,
    ),
    ZooCfg(
        "a dynamic file that does not exist",
        _MEMBER + "dynamicConfigFile={dir}/missing\n",
        "refused {dir}/missing (No such file or directory)",
    ),
    ZooCfg(
        "a dynamic file with another setting",
        _MEMBER + "dynamicConfigFile={dir}/zoo.cfg.dynamic\n",
        "refused Unrecognised parameter: tickTime",
        dynamic=_THREE + "tickTime=2000\n",
    ),
    ZooCfg(
        "a dynamic file beside server lines",
        _MEMBER + _THREE + "dynamicConfigFile={dir}/zoo.cfg.dynamic\n",
        "refused parameter: server.2 must be in a separate dynamic config file",
        dynamic=_THREE,
    ),
    ZooCfg(
        "a dynamic file beside a weight",
        _MEMBER + "weight.1=1\ndynamicConfigFile={dir}/zoo.cfg.dynamic\n",
        "refused parameter: weight.1 must be in a separate dynamic config file",
        dynamic=_THREE,
    ),
    ZooCfg(
        "a dynamic file of one server, alone",
        _DATA + "dynamicConfigFile={dir}/zoo.cfg.dynamic\n",
        "alone client=0.0.0.0:2181 secure=none id=1 tick=3000 sessions=6000-60000 limits=0/0 connections=60 purge=3/0 dataDir={dir}/data",
        dynamic=_ONE,
    ),
    ZooCfg(
        "an empty dynamic file",
        _MEMBER + "dynamicConfigFile={dir}/zoo.cfg.dynamic\n",
        "alone client=0.0.0.0:2181 secure=none id=1 tick=3000 sessions=6000-60000 limits=5/2 connections=60 purge=3/0 dataDir={dir}/data",
        dynamic="",
        ours="refused",
        why="a file that should name members and names none is a mistake",
    ),
    ZooCfg("no dataDir", "clientPort=2181\n", "refused dataDir is not set"),
    ZooCfg("tickTime=0", _ALONE + "tickTime=0\n", "refused tickTime is not set"),
    ZooCfg(
        "tickTime below 0",
        _ALONE + "tickTime=-1\n",
        "refused minSessionTimeout must not be larger than maxSessionTimeout",
    ),
    ZooCfg("tickTime in words", _ALONE + "tickTime=2s\n", 'refused For input string: "2s"'),
    ZooCfg(
        "tickTime of 2000",
        _ALONE + "tickTime=2000\n",
        "alone client=0.0.0.0:2181 secure=none id=1 tick=2000 sessions=4000-40000 limits=0/0 connections=60 purge=3/0 dataDir={dir}/data",
    ),
    ZooCfg(
        "minSessionTimeout above maxSessionTimeout",
        _ALONE + "minSessionTimeout=9000\nmaxSessionTimeout=8000\n",
        "refused minSessionTimeout must not be larger than maxSessionTimeout",
    ),
    ZooCfg(
        "minSessionTimeout above the default of maxSessionTimeout",
        _ALONE + "tickTime=100\nminSessionTimeout=9000\n",
        "refused minSessionTimeout must not be larger than maxSessionTimeout",
    ),
    ZooCfg(
        "session timeouts",
        _ALONE + "minSessionTimeout=1000\nmaxSessionTimeout=8000\n",
        "alone client=0.0.0.0:2181 secure=none id=1 tick=3000 sessions=1000-8000 limits=0/0 connections=60 purge=3/0 dataDir={dir}/data",
    ),
    ZooCfg(
        "electionAlg=3",
        _ALONE + "electionAlg=3\n",
        "alone client=0.0.0.0:2181 secure=none id=1 tick=3000 sessions=6000-60000 limits=0/0 connections=60 purge=3/0 dataDir={dir}/data",
    ),
    ZooCfg("electionAlg=0", _ALONE + "electionAlg=0\n", "refused Invalid electionAlg value. Only 3 is supported."),
    ZooCfg(
        "autopurge.snapRetainCount=1",
        _ALONE + "autopurge.snapRetainCount=1\n",
        "alone client=0.0.0.0:2181 secure=none id=1 tick=3000 sessions=6000-60000 limits=0/0 connections=60 purge=3/0 dataDir={dir}/data",
    ),
    ZooCfg(
        "autopurge",
        _ALONE + "autopurge.snapRetainCount=5\nautopurge.purgeInterval=24\n",
        "alone client=0.0.0.0:2181 secure=none id=1 tick=3000 sessions=6000-60000 limits=0/0 connections=60 purge=5/24 dataDir={dir}/data",
    ),
    ZooCfg(
        "autopurge.purgeInterval=-1",
        _ALONE + "autopurge.purgeInterval=-1\n",
        "alone client=0.0.0.0:2181 secure=none id=1 tick=3000 sessions=6000-60000 limits=0/0 connections=60 purge=3/-1 dataDir={dir}/data",
    ),
    ZooCfg(
        "autopurge.purgeInterval in words",
        _ALONE + "autopurge.purgeInterval=daily\n",
        'refused For input string: "daily"',
    ),
    ZooCfg(
        "maxClientCnxns=0",
        _ALONE + "maxClientCnxns=0\n",
        "alone client=0.0.0.0:2181 secure=none id=1 tick=3000 sessions=6000-60000 limits=0/0 connections=0 purge=3/0 dataDir={dir}/data",
    ),
    ZooCfg(
        "maxClientCnxns=-1",
        _ALONE + "maxClientCnxns=-1\n",
        "alone client=0.0.0.0:2181 secure=none id=1 tick=3000 sessions=6000-60000 limits=0/0 connections=-1 purge=3/0 dataDir={dir}/data",
    ),
    ZooCfg("maxClientCnxns in words", _ALONE + "maxClientCnxns=many\n", 'refused For input string: "many"'),
    ZooCfg("a number with an underscore", _ALONE + "maxClientCnxns=1_000\n", 'refused For input string: "1_000"'),
    ZooCfg("a number beyond 32 bits", _ALONE + "maxClientCnxns=2147483648\n", 'refused For input string: "2147483648"'),
    ZooCfg(
        "quorumListenOnAllIPs=yes",
        _ALONE + "quorumListenOnAllIPs=yes\n",
        "refused Invalid option yes for quorumListenOnAllIPs. Choose 'true' or 'false.'",
    ),
    ZooCfg(
        "settings of another class",
        _ALONE + "4lw.commands.whitelist=srvr, mntr\nadmin.serverPort=9090\nadmin.enableServer=false\nsnapCount=1000\n",
        "alone client=0.0.0.0:2181 secure=none id=1 tick=3000 sessions=6000-60000 limits=0/0 connections=60 purge=3/0 dataDir={dir}/data",
    ),
    ZooCfg(
        "unknown settings",
        _ALONE + "hostProvider=x\nno.such.name=1\n",
        "alone client=0.0.0.0:2181 secure=none id=1 tick=3000 sessions=6000-60000 limits=0/0 connections=60 purge=3/0 dataDir={dir}/data",
    ),
    ZooCfg(
        "the prefix of system properties",
        _ALONE + "zookeeper.snapCount=1000\n",
        "alone client=0.0.0.0:2181 secure=none id=1 tick=3000 sessions=6000-60000 limits=0/0 connections=60 purge=3/0 dataDir={dir}/data",
    ),
    ZooCfg(
        "a metrics provider that exists",
        _ALONE
        + "metricsProvider.className=org.apache.zookeeper.metrics.impl.NullMetricsProvider\nmetricsProvider.httpPort=7000\n",
        "alone client=0.0.0.0:2181 secure=none id=1 tick=3000 sessions=6000-60000 limits=0/0 connections=60 purge=3/0 dataDir={dir}/data",
    ),
    ZooCfg(
        "a metrics provider that does not exist",
        _ALONE + "metricsProvider.className=com.example.Metrics\n",
        "refused metrics provider class was not found",
    ),
    ZooCfg(
        "a metrics provider with settings unknown to it",
        _ALONE + "metricsProvider.colour=green\n",
        "alone client=0.0.0.0:2181 secure=none id=1 tick=3000 sessions=6000-60000 limits=0/0 connections=60 purge=3/0 dataDir={dir}/data",
    ),
    ZooCfg(
        "SASL that is required of learners and not enabled",
        _ALONE + "quorum.auth.learnerRequireSasl=true\n",
        "refused quorum.auth.enableSasl is disabled, so cannot enable quorum.auth.learnerRequireSasl",
    ),
    ZooCfg(
        "SASL that is required of servers and not of learners",
        _ALONE + "quorum.auth.enableSasl=true\nquorum.auth.serverRequireSasl=true\n",
        "refused quorum.auth.learnerRequireSasl is disabled, so cannot enable quorum.auth.serverRequireSasl",
    ),
    ZooCfg(
        "blanks around names and values",
        "  dataDir = {dir}/data  \n\tclientPort\t=\t2181\t\n",
        "alone client=0.0.0.0:2181 secure=none id=1 tick=3000 sessions=6000-60000 limits=0/0 connections=60 purge=3/0 dataDir={dir}/data",
    ),
    ZooCfg(
        "colons and blanks as separators",
        "dataDir:{dir}/data\nclientPort 2181\ntickTime   :   2000\n",
        "alone client=0.0.0.0:2181 secure=none id=1 tick=2000 sessions=4000-40000 limits=0/0 connections=60 purge=3/0 dataDir={dir}/data",
    ),
    ZooCfg(
        "comments of both kinds",
        "# a\n! b\n  # c\n" + _ALONE,
        "alone client=0.0.0.0:2181 secure=none id=1 tick=3000 sessions=6000-60000 limits=0/0 connections=60 purge=3/0 dataDir={dir}/data",
    ),
    ZooCfg(
        "lines that are continued",
        "dataDir={dir}/\\\n    data\nclientPort=21\\\n  81\n",
        "alone client=0.0.0.0:2181 secure=none id=1 tick=3000 sessions=6000-60000 limits=0/0 connections=60 purge=3/0 dataDir={dir}/data",
    ),
    ZooCfg(
        "escapes in names and values",
        "data\\u0044ir={dir}/d\\u0061ta\nclientPort=\\2181\nt\\ickTime=2000\n",
        "alone client=0.0.0.0:2181 secure=none id=1 tick=2000 sessions=4000-40000 limits=0/0 connections=60 purge=3/0 dataDir={dir}/data",
    ),
    ZooCfg("an escape that is broken", _ALONE + "no.such.name=\\u12\n", "refused Malformed \\uxxxx encoding."),
    ZooCfg(
        "a name twice",
        _DATA + "clientPort=2182\nclientPort=2181\n",
        "alone client=0.0.0.0:2181 secure=none id=1 tick=3000 sessions=6000-60000 limits=0/0 connections=60 purge=3/0 dataDir={dir}/data",
    ),
    ZooCfg(
        "a server line twice",
        _ALONE + "server.1=localhost:1:2\nserver.1=localhost:3:4\n",
        "alone client=0.0.0.0:2181 secure=none id=1 tick=3000 sessions=6000-60000 limits=0/0 connections=60 purge=3/0 dataDir={dir}/data",
    ),
    ZooCfg(
        "line ends of Windows",
        _ALONE.replace("\n", "\r\n"),
        "alone client=0.0.0.0:2181 secure=none id=1 tick=3000 sessions=6000-60000 limits=0/0 connections=60 purge=3/0 dataDir={dir}/data",
    ),
    ZooCfg(
        "line ends of old Macs",
        _ALONE.replace("\n", "\r"),
        "alone client=0.0.0.0:2181 secure=none id=1 tick=3000 sessions=6000-60000 limits=0/0 connections=60 purge=3/0 dataDir={dir}/data",
    ),
    ZooCfg("a value in quotes", _DATA + 'clientPort="2181"\n', 'refused For input string: ""2181""'),
    ZooCfg(
        "a comment in Latin-1",
        "# für Österreich\n".encode("latin-1") + _ALONE.encode(),
        "alone client=0.0.0.0:2181 secure=none id=1 tick=3000 sessions=6000-60000 limits=0/0 connections=60 purge=3/0 dataDir={dir}/data",
    ),
    ZooCfg(
        "a comment in UTF-8",
        "# für Österreich\n" + _ALONE,
        "alone client=0.0.0.0:2181 secure=none id=1 tick=3000 sessions=6000-60000 limits=0/0 connections=60 purge=3/0 dataDir={dir}/data",
    ),
    ZooCfg(
        "a byte order mark",
        "\ufefftickTime=2000\n" + _ALONE,
        "alone client=0.0.0.0:2181 secure=none id=1 tick=3000 sessions=6000-60000 limits=0/0 connections=60 purge=3/0 dataDir={dir}/data",
    ),
    ZooCfg(
        "a dataDir that is relative",
        "dataDir=./no-such-dir\nclientPort=2181\n",
        "alone client=0.0.0.0:2181 secure=none id=-1 tick=3000 sessions=6000-60000 limits=0/0 connections=60 purge=3/0 dataDir=./no-such-dir",
    ),
    ZooCfg("an empty file", "", "refused dataDir is not set"),
    ZooCfg(
        "names in another case",
        _DATA + "clientport=2181\n",
        "alone client=none secure=none id=1 tick=3000 sessions=6000-60000 limits=0/0 connections=60 purge=3/0 dataDir={dir}/data",
        ours="refused",
        why="no client could connect",
    ),
    ZooCfg(
        "a name without value",
        _ALONE + "no.such.name\n",
        "alone client=0.0.0.0:2181 secure=none id=1 tick=3000 sessions=6000-60000 limits=0/0 connections=60 purge=3/0 dataDir={dir}/data",
    ),
]
