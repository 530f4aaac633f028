"""``barnabas doctor``: what is wrong with a cluster or will be, ordered by danger, each with its
evidence and the command that mends it.

0 when nothing is wrong, 1 when something is, 3 when the cluster cannot be read, or when nothing is
wrong in what could be read while something could not.

In Kafka: no counterpart; its tools each show one piece of this.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from barnabas.base.hints import did_you_mean
from barnabas.base.ids import TopicPartition
from barnabas.cli.connection.connect import connect
from barnabas.cli.connection.coordination_access import ClientAccess
from barnabas.cli.connection.properties import properties_file
from barnabas.cli.options.tool_parser import ToolParser, add_connection_options, add_output_option, seconds
from barnabas.cli.output.colours import Style, painted, print_error
from barnabas.cli.output.exit_codes import INCOMPLETE
from barnabas.cli.output.tables import aligned, print_json
from barnabas.cli.output.terminal import print, print_lines
from barnabas.client.errors import ClientError
from barnabas.coordination.client import ConnectString
from barnabas.doctor.diagnosis import Diagnosis, diagnose
from barnabas.doctor.evidence.cluster import BrokersPart, TopicsPart
from barnabas.doctor.evidence.part import Absent, Evidence
from barnabas.doctor.reading import Sources, read_evidence
from barnabas.doctor.report import diagnosis_document, list_of_rules, reassignment_document, report_lines
from barnabas.doctor.rules import ALL_RULES
from barnabas.doctor.rules.registration import DoctorRule
from barnabas.doctor.words import counted
from barnabas.net.sockets import SocketNetwork

__all__ = ["main"]

_NEEDED = (BrokersPart, TopicsPart)
"""Without them the cluster counts as not read."""


def main(argv: list[str]) -> int:
    """Read the cluster, apply the rules, and print the report."""
    parser = _parser()
    given = parser.parse_args(argv)
    if given.list_rules:
        _list_rules(as_json=given.output == "json")
        return 0
    parser.require(given, "bootstrap-server")
    rules = _selected(parser, given)
    try:
        evidence = _read(given, rules)
    except ClientError as error:
        print_error(f"Error: {error}")
        return INCOMPLETE
    unread = [found for kind in _NEEDED if isinstance(found := evidence.get(kind), Absent)]
    if unread:
        print_error(f"Error: {unread[0].reason}")
        return INCOMPLETE
    diagnosis = diagnose(evidence, rules)
    if given.plan:
        _write_plan(given.plan, diagnosis)
    _show(diagnosis, _connection_options(given), as_json=given.output == "json")
    return 1 if diagnosis.findings else INCOMPLETE if diagnosis.is_incomplete else 0


def _parser() -> ToolParser:
    parser = ToolParser("doctor", "Say what is wrong with a cluster or will be, and the command that mends it.")
    add_connection_options(parser)
    add = parser.add_argument
    add("--zookeeper-connect", metavar="HOST:PORT[,...]", help="the coordination servers, for the rules about them")
    add(
        "--admin-servers",
        nargs="+",
        action="extend",
        default=[],
        metavar="HOST:PORT",
        help="admin servers of coordination servers (otherwise at port 8080 of their hosts)",
    )
    add("--zk-tls-config-file", metavar="FILE", help="ZooKeeper's properties for TLS and SASL")
    add(
        "--metrics", nargs="+", action="extend", default=[], metavar="HOST:PORT", help="metrics of brokers to read, too"
    )
    add("--only", action="append", default=[], metavar="RULE", help="apply this rule only; may be repeated")
    add("--ignore", action="append", default=[], metavar="RULE", help="do not apply this rule; may be repeated")
    add("--over", type=seconds, default=0.0, metavar="S", help="read twice, S seconds apart, and judge what grows")
    add("--plan", metavar="FILE", help="write the moves that mend the findings, for reassign-partitions")
    add("--list-rules", action="store_true", help="list the rules and end")
    add_output_option(parser)
    return parser


def _selected(parser: ToolParser, given: argparse.Namespace) -> list[DoctorRule]:
    names = {rule.name for rule in ALL_RULES}
    for name in (*given.only, *given.ignore):
        if name not in names:
            parser.error(f"there is no rule {name!r}{did_you_mean(name, names) or ': --list-rules lists them'}")
    return [rule for rule in ALL_RULES if (not given.only or rule.name in given.only) and rule.name not in given.ignore]


def _read(given: argparse.Namespace, rules: Sequence[DoctorRule]) -> Evidence:
    file = given.zk_tls_config_file
    access = ClientAccess(properties_file(file), file) if file else None
    with connect(given, "barnabas-doctor") as connection:
        sources = Sources(
            connection,
            zookeeper=ConnectString.parse(given.zookeeper_connect).servers if given.zookeeper_connect else (),
            metrics=_addresses(given.metrics),
            admin_servers=_addresses(given.admin_servers),
            coordination_network=SocketNetwork if access is None else access.network,
            coordination_login=None if access is None else access.new_sasl_client,
            over_s=given.over,
        )
        return read_evidence(sources, (*_NEEDED, *(kind for rule in rules for kind in rule.takes)))


def _addresses(given: Sequence[str]) -> list[tuple[str, int]]:
    """Of an option that may be repeated, or has several values, with commas or without."""
    return [server for each in given for server in ConnectString.parse(each).servers]


def _connection_options(given: argparse.Namespace) -> list[str]:
    options = ["--bootstrap-server", given.bootstrap_server]
    return [*options, "--command-config", given.command_config] if isinstance(given.command_config, str) else options


def _show(diagnosis: Diagnosis, connection: Sequence[str], *, as_json: bool) -> None:
    if as_json:
        print_json(diagnosis_document(diagnosis, connection))
        return
    for line in report_lines(diagnosis, connection):
        print(painted(Style.HEADER, line, sys.stdout) if line.isupper() else line)


def _write_plan(path: str, diagnosis: Diagnosis) -> None:
    """The moves of all findings; of several for a partition that of the most dangerous one."""
    moves: dict[TopicPartition, tuple[int, ...]] = {}
    for finding in diagnosis.findings:
        moves = {**finding.moves, **moves}
    Path(path).write_text(json.dumps(reassignment_document(moves), indent=2) + "\n", encoding="utf-8")
    print(f"{path}: {counted(len(moves), 'move', 'moves')} of replicas", file=sys.stderr)


def _list_rules(*, as_json: bool) -> None:
    rules = list_of_rules(ALL_RULES)
    if as_json:
        print_json(rules)
    else:
        print_lines(aligned(("RULE", "DANGER", "FINDS"), [tuple(rule.values()) for rule in rules]))
