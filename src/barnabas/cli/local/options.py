"""The options of ``barnabas up``."""

import argparse

from barnabas.base.errors import BarnabasError
from barnabas.cli.connection.properties import properties_file
from barnabas.cli.options.tool_parser import ToolParser

__all__ = ["overrides_of", "up_parser", "users_of"]

_DATA_DIR_HELP = (
    "keep the data here; if a cluster is here already, start it again with the changes that options ask for. "
    "Without it the data is in a temporary folder and is removed when the cluster stops"
)
_DETACH_HELP = "return when the cluster is ready, and leave it in the background; see barnabas status, logs and down"
_ZK_PORT_HELP = (
    "the first coordination server's port, the others follow; their own ports follow 707 and 1707 above "
    "(2888 and 3888); 0: any free (default: those of the data dir, or 2181)"
)
_SECURITY_HELP = (
    "secure the brokers' listeners, with certificates that are made for this cluster; DIR/security/client.properties is what clients "
    "connect with"
)
_USER_HELP = (
    "a user of --security SASL_PLAINTEXT or SASL_SSL; may be repeated. Others see it among the processes: for tests"
)
_SECURE_HELP = (
    "secure everything: TLS, passwords, and an authorizer; the user admin may do everything, and the user app (or each --user) "
    "all with topics, groups and transactional ids that begin with app- (NAME-). DIR/security/client.properties is what admin "
    "connects with, DIR/security/NAME.properties what the others do"
)
_USERS_FILE_HELP = (
    "a .properties file of users and their passwords, NAME=PASSWORD; other users of the machine do not see them"
)
_ACL_HELP = (
    "with --secure or --security: an access control list, in the words of barnabas acls, such as '--allow-principal User:ann "
    "--consumer --topic orders --group g', in place of the usual ones; may be repeated"
)
_METRICS_HELP = (
    "show metrics to Prometheus on http://HOST:PORT/metrics, the first broker's there, the others' on the ports that follow; "
    "0: any free (default: nowhere)"
)
_REST_HELP = (
    "start a REST proxy, too, on this port (default 8082; 0: any free); it is secured as the brokers are, and a data dir that "
    "has one starts it again"
)
_REGISTRY_HELP = (
    "start a schema registry, too, on this port (default 8081; 0: any free); it is secured as the brokers are, and a data dir that "
    "has one starts it again"
)
_FEATURE_HELP = (
    "finalize this level of a feature in a new cluster, such as transaction.version=2 (default: none); may be repeated. "
    "barnabas features changes it later"
)


def up_parser() -> ToolParser:
    """The options of ``barnabas up``."""
    made = ToolParser(
        "up",
        "Start a coordination server, or an ensemble of them, and brokers on this machine, print one line "
        "'ready BOOTSTRAP zk=ADDRESS pids=NAME:PID,...' when clients can work, and stay until Ctrl-C.",
    )
    made.add_argument(
        "--brokers",
        type=int,
        metavar="N",
        help="how many brokers (default: those of the data dir, or 1); more than one per core brings nothing",
    )
    made.add_argument(
        "--host", help="address to listen on and to give to clients (default: that of the data dir, or 127.0.0.1)"
    )
    made.add_argument(
        "--port",
        type=int,
        help="the first broker's port, the others follow; 0: any free (default: those of the data dir, or 9092)",
    )
    made.add_argument(
        "--zk-servers",
        type=int,
        metavar="N",
        help="how many coordination servers (default: those of the data dir, or 1)",
    )
    made.add_argument(
        "--zk-port",
        type=int,
        help=_ZK_PORT_HELP,
    )
    made.add_argument("--zookeeper", metavar="HOST:PORT", help="use this coordination service and start none")
    made.add_argument("--data-dir", metavar="DIR", help=_DATA_DIR_HELP)
    made.add_argument(
        "--security",
        choices=("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
        help=_SECURITY_HELP,
    )
    made.add_argument(
        "--user",
        action="append",
        default=[],
        metavar="NAME=PASSWORD",
        help=_USER_HELP,
    )
    made.add_argument("--users-file", metavar="FILE", help=_USERS_FILE_HELP)
    made.add_argument("--secure", action="store_true", help=_SECURE_HELP)
    made.add_argument("--acl", action="append", metavar="OPTIONS", help=_ACL_HELP)
    _add_services(made)
    made.add_argument("--racks", type=int, metavar="N", help="spread the brokers over N racks, in order")
    made.add_argument(
        "--override",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a broker property, for all brokers; may be repeated",
    )
    made.add_argument("--feature", action="append", metavar="NAME=LEVEL", help=_FEATURE_HELP)
    made.add_argument("-d", "--detach", action="store_true", help=_DETACH_HELP)
    return made


def _add_services(made: ToolParser) -> None:
    made.add_argument("--metrics-port", type=int, metavar="PORT", help=_METRICS_HELP)
    made.add_argument("--registry", type=int, nargs="?", const=8081, metavar="PORT", help=_REGISTRY_HELP)
    made.add_argument("--rest", type=int, nargs="?", const=8082, metavar="PORT", help=_REST_HELP)


def _name_value(option: str, text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise BarnabasError(f"{option} {text if option == '--override' else '...'}: NAME=VALUE is expected")
    return name.strip(), value


def users_of(given: argparse.Namespace) -> dict[str, str]:
    """The passwords of ``--user`` and ``--users-file``, by the users' names.

    Raises `BarnabasError`."""
    return {**properties_file(given.users_file), **dict(_name_value("--user", text) for text in given.user)}


def overrides_of(given: argparse.Namespace) -> dict[str, str]:
    """The properties of ``--override``. Raises `BarnabasError`."""
    return dict(_name_value("--override", text) for text in given.override)
