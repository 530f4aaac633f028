"""Files zoo.cfg for the table of `support.zoo_cfg_table`: values of other settings."""

from support.zoo_cfg import ALONE, ZooCfg

__all__ = ["SETTINGS"]

SETTINGS = [
    ZooCfg("no dataDir", "clientPort=2181\n", "refused dataDir is not set"),
    ZooCfg("tickTime=0", ALONE + "tickTime=0\n", "refused tickTime is not set"),
    ZooCfg(
        "tickTime below 0",
        ALONE + "tickTime=-1\n",
        "refused minSessionTimeout must not be larger than maxSessionTimeout",
    ),
    ZooCfg("tickTime in words", ALONE + "tickTime=2s\n", 'refused For input string: "2s"'),
    ZooCfg(
        "tickTime of 2000",
        ALONE + "tickTime=2000\n",
        "alone client=0.0.0.0:2181 secure=none id=1 tick=2000 sessions=4000-40000 limits=0/0 connections=60 purge=3/0 dataDir={dir}/data",
    ),
    ZooCfg(
        "minSessionTimeout above maxSessionTimeout",
        ALONE + "minSessionTimeout=9000\nmaxSessionTimeout=8000\n",
        "refused minSessionTimeout must not be larger than maxSessionTimeout",
    ),
    ZooCfg(
        "minSessionTimeout above the default of maxSessionTimeout",
        ALONE + "tickTime=100\nminSessionTimeout=9000\n",
        "refused minSessionTimeout must not be larger than maxSessionTimeout",
    ),
    ZooCfg(
        "session timeouts",
        ALONE + "minSessionTimeout=1000\nmaxSessionTimeout=8000\n",
        "alone client=0.0.0.0:2181 secure=none id=1 tick=3000 sessions=1000-8000 limits=0/0 connections=60 purge=3/0 dataDir={dir}/data",
    ),
    ZooCfg(
        "electionAlg=3",
        ALONE + "electionAlg=3\n",
        "alone client=0.0.0.0:2181 secure=none id=1 tick=3000 sessions=6000-60000 limits=0/0 connections=60 purge=3/0 dataDir={dir}/data",
    ),
    ZooCfg("electionAlg=0", ALONE + "electionAlg=0\n", "refused Invalid electionAlg value. Only 3 is supported."),
    ZooCfg(
        "autopurge.snapRetainCount=1",
        ALONE + "autopurge.snapRetainCount=1\n",
        "alone client=0.0.0.0:2181 secure=none id=1 tick=3000 sessions=6000-60000 limits=0/0 connections=60 purge=3/0 dataDir={dir}/data",
    ),
    ZooCfg(
        "autopurge",
        ALONE + "autopurge.snapRetainCount=5\nautopurge.purgeInterval=24\n",
        "alone client=0.0.0.0:2181 secure=none id=1 tick=3000 sessions=6000-60000 limits=0/0 connections=60 purge=5/24 dataDir={dir}/data",
    ),
    ZooCfg(
        "autopurge.purgeInterval=-1",
        ALONE + "autopurge.purgeInterval=-1\n",
        "alone client=0.0.0.0:2181 secure=none id=1 tick=3000 sessions=6000-60000 limits=0/0 connections=60 purge=3/-1 dataDir={dir}/data",
    ),
    ZooCfg(
        "autopurge.purgeInterval in words",
        ALONE + "autopurge.purgeInterval=daily\n",
        'refused For input string: "daily"',
    ),
    ZooCfg(
        "maxClientCnxns=0",
        ALONE + "maxClientCnxns=0\n",
        "alone client=0.0.0.0:2181 secure=none id=1 tick=3000 sessions=6000-60000 limits=0/0 connections=0 purge=3/0 dataDir={dir}/data",
    ),
    ZooCfg(
        "maxClientCnxns=-1",
        ALONE + "maxClientCnxns=-1\n",
        "alone client=0.0.0.0:2181 secure=none id=1 tick=3000 sessions=6000-60000 limits=0/0 connections=-1 purge=3/0 dataDir={dir}/data",
    ),
    ZooCfg("maxClientCnxns in words", ALONE + "maxClientCnxns=many\n", 'refused For input string: "many"'),
    ZooCfg("a number with an underscore", ALONE + "maxClientCnxns=1_000\n", 'refused For input string: "1_000"'),
    ZooCfg("a number beyond 32 bits", ALONE + "maxClientCnxns=2147483648\n", 'refused For input string: "2147483648"'),
    ZooCfg(
        "quorumListenOnAllIPs=yes",
        ALONE + "quorumListenOnAllIPs=yes\n",
        "refused Invalid option yes for quorumListenOnAllIPs. Choose 'true' or 'false.'",
    ),
    ZooCfg(
        "settings of another class",
        ALONE + "4lw.commands.whitelist=srvr, mntr\nadmin.serverPort=9090\nadmin.enableServer=false\nsnapCount=1000\n",
        "alone client=0.0.0.0:2181 secure=none id=1 tick=3000 sessions=6000-60000 limits=0/0 connections=60 purge=3/0 dataDir={dir}/data",
    ),
    ZooCfg(
        "unknown settings",
        ALONE + "hostProvider=x\nno.such.name=1\n",
        "alone client=0.0.0.0:2181 secure=none id=1 tick=3000 sessions=6000-60000 limits=0/0 connections=60 purge=3/0 dataDir={dir}/data",
    ),
    ZooCfg(
        "the prefix of system properties",
        ALONE + "zookeeper.snapCount=1000\n",
        "alone client=0.0.0.0:2181 secure=none id=1 tick=3000 sessions=6000-60000 limits=0/0 connections=60 purge=3/0 dataDir={dir}/data",
    ),
    ZooCfg(
        "a metrics provider that exists",
        ALONE
        + "metricsProvider.className=org.apache.zookeeper.metrics.impl.NullMetricsProvider\nmetricsProvider.httpPort=7000\n",
        "alone client=0.0.0.0:2181 secure=none id=1 tick=3000 sessions=6000-60000 limits=0/0 connections=60 purge=3/0 dataDir={dir}/data",
    ),
    ZooCfg(
        "a metrics provider that does not exist",
        ALONE + "metricsProvider.className=com.example.Metrics\n",
        "refused metrics provider class was not found",
    ),
    ZooCfg(
        "a metrics provider with settings unknown to it",
        ALONE + "metricsProvider.colour=green\n",
        "alone client=0.0.0.0:2181 secure=none id=1 tick=3000 sessions=6000-60000 limits=0/0 connections=60 purge=3/0 dataDir={dir}/data",
    ),
    ZooCfg(
        "SASL that is required of learners and not enabled",
        ALONE + "quorum.auth.learnerRequireSasl=true\n",
        "refused quorum.auth.enableSasl is disabled, so cannot enable quorum.auth.learnerRequireSasl",
    ),
    ZooCfg(
        "SASL that is required of servers and not of learners",
        ALONE + "quorum.auth.enableSasl=true\nquorum.auth.serverRequireSasl=true\n",
        "refused quorum.auth.learnerRequireSasl is disabled, so cannot enable quorum.auth.serverRequireSasl",
    ),
]
