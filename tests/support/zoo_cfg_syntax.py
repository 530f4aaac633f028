"""Files zoo.cfg for the table of `support.zoo_cfg_table`: how lines are written."""

from support.zoo_cfg import ALONE, DATA, ZooCfg

__all__ = ["SYNTAX"]

SYNTAX = [
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
        "# a\n! b\n  # c\n" + ALONE,
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
    ZooCfg("an escape that is broken", ALONE + "no.such.name=\\u12\n", "refused Malformed \\uxxxx encoding."),
    ZooCfg(
        "a name twice",
        DATA + "clientPort=2182\nclientPort=2181\n",
        "alone client=0.0.0.0:2181 secure=none id=1 tick=3000 sessions=6000-60000 limits=0/0 connections=60 purge=3/0 dataDir={dir}/data",
    ),
    ZooCfg(
        "a server line twice",
        ALONE + "server.1=localhost:1:2\nserver.1=localhost:3:4\n",
        "alone client=0.0.0.0:2181 secure=none id=1 tick=3000 sessions=6000-60000 limits=0/0 connections=60 purge=3/0 dataDir={dir}/data",
    ),
    ZooCfg(
        "line ends of Windows",
        ALONE.replace("\n", "\r\n"),
        "alone client=0.0.0.0:2181 secure=none id=1 tick=3000 sessions=6000-60000 limits=0/0 connections=60 purge=3/0 dataDir={dir}/data",
    ),
    ZooCfg(
        "line ends of old Macs",
        ALONE.replace("\n", "\r"),
        "alone client=0.0.0.0:2181 secure=none id=1 tick=3000 sessions=6000-60000 limits=0/0 connections=60 purge=3/0 dataDir={dir}/data",
    ),
    ZooCfg("a value in quotes", DATA + 'clientPort="2181"\n', 'refused For input string: ""2181""'),
    ZooCfg(
        "a comment in Latin-1",
        "# für Österreich\n".encode("latin-1") + ALONE.encode(),
        "alone client=0.0.0.0:2181 secure=none id=1 tick=3000 sessions=6000-60000 limits=0/0 connections=60 purge=3/0 dataDir={dir}/data",
    ),
    ZooCfg(
        "a comment in UTF-8",
        "# für Österreich\n" + ALONE,
        "alone client=0.0.0.0:2181 secure=none id=1 tick=3000 sessions=6000-60000 limits=0/0 connections=60 purge=3/0 dataDir={dir}/data",
    ),
    ZooCfg(
        "a byte order mark",
        "\ufefftickTime=2000\n" + ALONE,
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
        DATA + "clientport=2181\n",
        "alone client=none secure=none id=1 tick=3000 sessions=6000-60000 limits=0/0 connections=60 purge=3/0 dataDir={dir}/data",
        ours="refused",
        why="no client could connect",
    ),
    ZooCfg(
        "a name without value",
        ALONE + "no.such.name\n",
        "alone client=0.0.0.0:2181 secure=none id=1 tick=3000 sessions=6000-60000 limits=0/0 connections=60 purge=3/0 dataDir={dir}/data",
    ),
]
