"""Files zoo.cfg for the table of `support.zoo_cfg_table`: which ports clients connect to:
clientPort, secureClientPort and the server lines."""

from support.zoo_cfg import ALONE, DATA, IMAGE, IMAGE_THREE, LIMITS, ONE, THREE, ZooCfg

__all__ = ["PORTS"]

PORTS = [
    ZooCfg(
        "the file of the container image",
        IMAGE + ONE,
        "alone client=0.0.0.0:2181 secure=none id=1 tick=2000 sessions=4000-40000 limits=5/2 connections=60 purge=3/0 dataDir={dir}/data",
    ),
    ZooCfg(
        "the file of the container image, without myid",
        IMAGE + ONE,
        "alone client=none secure=none id=-1 tick=2000 sessions=4000-40000 limits=5/2 connections=60 purge=3/0 dataDir={dir}/data",
        my_id=None,
        ours="refused",
        why="no client could connect",
    ),
    ZooCfg(
        "the file of the container image, three servers",
        IMAGE + IMAGE_THREE,
        "participant voters=3 observers=0 version=0 client=0.0.0.0:2181 secure=none id=2 tick=2000 sessions=4000-40000 limits=5/2 connections=60 purge=3/0 dataDir={dir}/data",
        my_id="2",
    ),
    ZooCfg(
        "the file of the container image, in replicated mode of one",
        IMAGE.replace("standaloneEnabled=true", "standaloneEnabled=false") + ONE,
        "participant voters=1 observers=0 version=0 client=0.0.0.0:2181 secure=none id=1 tick=2000 sessions=4000-40000 limits=5/2 connections=60 purge=3/0 dataDir={dir}/data",
    ),
    ZooCfg(
        "a server alone with clientPort",
        ALONE,
        "alone client=0.0.0.0:2181 secure=none id=-1 tick=3000 sessions=6000-60000 limits=0/0 connections=60 purge=3/0 dataDir={dir}/data",
        my_id=None,
    ),
    ZooCfg(
        "a server alone with clientPort and a file myid",
        ALONE,
        "alone client=0.0.0.0:2181 secure=none id=1 tick=3000 sessions=6000-60000 limits=0/0 connections=60 purge=3/0 dataDir={dir}/data",
    ),
    ZooCfg(
        "no port for clients",
        DATA,
        "alone client=none secure=none id=-1 tick=3000 sessions=6000-60000 limits=0/0 connections=60 purge=3/0 dataDir={dir}/data",
        my_id=None,
        ours="refused",
        why="no client could connect",
    ),
    ZooCfg(
        "no port for clients, and a server line without one",
        DATA + "server.1=localhost:2888:3888\n",
        "alone client=none secure=none id=1 tick=3000 sessions=6000-60000 limits=0/0 connections=60 purge=3/0 dataDir={dir}/data",
        ours="refused",
        why="no client could connect",
    ),
    ZooCfg(
        "clientPort equal to that of the line, alone",
        ALONE + ONE,
        "alone client=0.0.0.0:2181 secure=none id=1 tick=3000 sessions=6000-60000 limits=0/0 connections=60 purge=3/0 dataDir={dir}/data",
    ),
    ZooCfg(
        "clientPort unlike that of the line, alone",
        DATA + "clientPort=2182\n" + ONE,
        "refused client address for this server (id = 1) in static config file is 0.0.0.0/0.0.0.0:2182 is different from client address found in dynamic file: /0.0.0.0:2181",
    ),
    ZooCfg(
        "clientPort unlike that of the line, alone, without myid",
        DATA + "clientPort=2182\n" + ONE,
        "alone client=0.0.0.0:2182 secure=none id=-1 tick=3000 sessions=6000-60000 limits=0/0 connections=60 purge=3/0 dataDir={dir}/data",
        my_id=None,
    ),
    ZooCfg(
        "clientPort unlike that of the line of another id, alone",
        DATA + "clientPort=2182\n" + ONE,
        "alone client=0.0.0.0:2182 secure=none id=2 tick=3000 sessions=6000-60000 limits=0/0 connections=60 purge=3/0 dataDir={dir}/data",
        my_id="2",
    ),
    ZooCfg(
        "only the line of another id names a port, alone",
        DATA + ONE,
        "alone client=none secure=none id=2 tick=3000 sessions=6000-60000 limits=0/0 connections=60 purge=3/0 dataDir={dir}/data",
        my_id="2",
        ours="refused",
        why="no client could connect",
    ),
    ZooCfg(
        "clientPort unlike that of the line, member",
        DATA + LIMITS + "clientPort=2182\n" + IMAGE_THREE,
        "refused client address for this server (id = 1) in static config file is 0.0.0.0/0.0.0.0:2182 is different from client address found in dynamic file: /0.0.0.0:2181",
    ),
    ZooCfg(
        "clientPort unlike that of another member's line",
        DATA + LIMITS + "clientPort=2182\n" + THREE.replace("b.invalid:2888:3888", "b.invalid:2888:3888;2181"),
        "participant voters=3 observers=0 version=0 client=0.0.0.0:2182 secure=none id=1 tick=3000 sessions=6000-60000 limits=5/2 connections=60 purge=3/0 dataDir={dir}/data",
    ),
    ZooCfg(
        "clientPort with the port of the line on an address",
        DATA + "clientPort=2181\nserver.1=localhost:2888:3888;127.0.0.1:2181\n",
        "alone client=127.0.0.1:2181 secure=none id=1 tick=3000 sessions=6000-60000 limits=0/0 connections=60 purge=3/0 dataDir={dir}/data",
    ),
    ZooCfg(
        "clientPort on an address with the port of the line on all",
        DATA + "clientPort=2181\nclientPortAddress=127.0.0.1\n" + ONE,
        "refused client address for this server (id = 1) in static config file is /127.0.0.1:2181 is different from client address found in dynamic file: /0.0.0.0:2181",
    ),
    ZooCfg(
        "clientPort on an address equal to the line's",
        DATA + "clientPort=2181\nclientPortAddress=127.0.0.1\nserver.1=localhost:2888:3888;127.0.0.1:2181\n",
        "alone client=127.0.0.1:2181 secure=none id=1 tick=3000 sessions=6000-60000 limits=0/0 connections=60 purge=3/0 dataDir={dir}/data",
    ),
    ZooCfg(
        "clientPort on a name equal to the line's address",
        DATA + "clientPort=2181\nclientPortAddress=localhost\nserver.1=localhost:2888:3888;127.0.0.1:2181\n",
        "alone client=127.0.0.1:2181 secure=none id=1 tick=3000 sessions=6000-60000 limits=0/0 connections=60 purge=3/0 dataDir={dir}/data",
        ours="refused",
        why="names are not resolved before the server starts",
    ),
    ZooCfg(
        "clientPortAddress without clientPort",
        DATA + "clientPortAddress=127.0.0.1\n",
        "refused clientPortAddress is set but clientPort is not set",
    ),
    ZooCfg(
        "clientPortAddress without clientPort, and a line with a port",
        DATA + "clientPortAddress=127.0.0.1\n" + ONE,
        "refused clientPortAddress is set but clientPort is not set",
    ),
    ZooCfg(
        "clientPortAddress of an address",
        ALONE + "clientPortAddress=127.0.0.1\n",
        "alone client=127.0.0.1:2181 secure=none id=1 tick=3000 sessions=6000-60000 limits=0/0 connections=60 purge=3/0 dataDir={dir}/data",
    ),
    ZooCfg("clientPort that is no number", DATA + "clientPort=x\n", 'refused For input string: "x"'),
    ZooCfg("clientPort of nothing", DATA + "clientPort=\n", 'refused For input string: ""'),
    ZooCfg("clientPort beyond the last port", DATA + "clientPort=65536\n", "refused port out of range:65536"),
    ZooCfg("clientPort below the first port", DATA + "clientPort=-1\n", "refused port out of range:-1"),
    ZooCfg(
        "clientPort with a plus sign",
        DATA + "clientPort=+2181\n",
        "alone client=0.0.0.0:2181 secure=none id=1 tick=3000 sessions=6000-60000 limits=0/0 connections=60 purge=3/0 dataDir={dir}/data",
    ),
    ZooCfg(
        "clientPort with a comment behind it",
        DATA + "clientPort=2181 # for clients\n",
        'refused For input string: "2181 # for clients"',
    ),
    ZooCfg(
        "secureClientPort alone",
        DATA + "secureClientPort=2281\n",
        "alone client=none secure=0.0.0.0:2281 id=1 tick=3000 sessions=6000-60000 limits=0/0 connections=60 purge=3/0 dataDir={dir}/data",
    ),
    ZooCfg(
        "secureClientPort beside clientPort",
        ALONE + "secureClientPort=2281\nsecureClientPortAddress=127.0.0.1\n",
        "alone client=0.0.0.0:2181 secure=127.0.0.1:2281 id=1 tick=3000 sessions=6000-60000 limits=0/0 connections=60 purge=3/0 dataDir={dir}/data",
    ),
    ZooCfg(
        "secureClientPortAddress without secureClientPort",
        ALONE + "secureClientPortAddress=127.0.0.1\n",
        "refused secureClientPortAddress is set but secureClientPort is not set",
    ),
    ZooCfg(
        "secureClientPort beside the port of the line",
        DATA + "secureClientPort=2281\n" + ONE,
        "alone client=0.0.0.0:2181 secure=0.0.0.0:2281 id=1 tick=3000 sessions=6000-60000 limits=0/0 connections=60 purge=3/0 dataDir={dir}/data",
    ),
    ZooCfg(
        "no port for clients, member",
        DATA + LIMITS + THREE,
        "participant voters=3 observers=0 version=0 client=none secure=none id=1 tick=3000 sessions=6000-60000 limits=5/2 connections=60 purge=3/0 dataDir={dir}/data",
        ours="refused",
        why="no client could connect",
    ),
    ZooCfg(
        "clientPort=0 beside the port of the line",
        DATA + "clientPort=0\n" + ONE,
        "alone client=0.0.0.0:2181 secure=none id=1 tick=3000 sessions=6000-60000 limits=0/0 connections=60 purge=3/0 dataDir={dir}/data",
        ours="refused",
        why="ZooKeeper 3.9 takes 0 for a port, 3.8 for none",
    ),
]
