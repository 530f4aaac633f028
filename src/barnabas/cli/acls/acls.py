"""``barnabas acls``: add, remove and list access control lists, with the options and the words of
Kafka's AclCommand.

With ``--authorizer-properties zookeeper.connect=HOST:PORT`` the entries are written into the
coordination service, so that they exist before the first broker starts. Entries are listed in a
stable order; Kafka's tool has none.
"""

import argparse
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Protocol

from barnabas.base.errors import BarnabasError, ConfigError
from barnabas.cli.acls.entry_options import add_acl_options, options_of
from barnabas.cli.acls.suggestions import suggested_acls
from barnabas.cli.connection.connect import connect
from barnabas.cli.connection.properties import key_values, properties_file
from barnabas.cli.options.tool_parser import ToolParser, add_connection_options, add_output_option
from barnabas.cli.output.tables import print_json
from barnabas.cli.output.terminal import escaped_for, print, print_lines
from barnabas.client.admin.acl_options import (
    AclResource,
    acl_commands,
    acls_of_options,
    principal_of,
    resources_of,
    sorted_by_resource,
)
from barnabas.client.admin.acls import Acl, AclFilter, create_acls, delete_acls, describe_acls
from barnabas.client.cluster.admin_connection import AdminConnection
from barnabas.client.errors import ConfigurationError
from barnabas.security.acls import ACL_AUTHORIZER, PatternType

__all__ = ["main"]

_ACTIONS = ("list", "add", "remove", "suggest")


class _Acls(Protocol):
    """Where entries are: behind brokers, or in the coordination service."""

    def add(self, acls: Sequence[Acl]) -> None: ...

    def remove(self, wanted: AclFilter) -> Sequence[Acl]: ...

    def find(self, wanted: AclFilter) -> Sequence[Acl]: ...


class _Brokers:
    """The entries behind brokers."""

    def __init__(self, connection: AdminConnection) -> None:
        self._connection = connection

    def add(self, acls: Sequence[Acl]) -> None:
        create_acls(self._connection, acls)

    def remove(self, wanted: AclFilter) -> Sequence[Acl]:
        return delete_acls(self._connection, wanted)

    def find(self, wanted: AclFilter) -> Sequence[Acl]:
        return describe_acls(self._connection, wanted)


def main(argv: list[str]) -> int:
    """``--add``, ``--remove``, ``--list`` or ``--suggest``."""
    parser = _parser()
    given = parser.parse_args(argv)
    _check(parser, given)
    try:
        wanted = {} if given.list or given.suggest else acls_of_options(options_of(given))
        principals = [principal_of(text) for text in given.principal]
    except ConfigurationError as error:
        parser.error(str(error))
    if given.add and not all(wanted.values()):
        parser.error("You must specify one of: --allow-principal, --deny-principal when trying to add ACLs.")
    if given.suggest:
        return _suggest(given, principals)
    with _store(parser, given) as store:
        if given.add:
            _add(store, wanted, as_json=given.output == "json")
        elif given.remove:
            _remove(store, wanted, given)
        else:
            _list(store, resources_of(options_of(given)), principals, as_json=given.output == "json")
    return 0


def _check(parser: ToolParser, given: argparse.Namespace) -> None:
    """What goes together, as Kafka's tool has it."""
    if sum(parser.has(given, action) for action in _ACTIONS) != 1:
        parser.error("Command must include exactly one action: --list, --add, --remove, --suggest.")
    principals = ("allow-host", "allow-principal", "deny-host", "deny-principal")
    parser.refuse_together(given, "list", ("producer", "consumer", *principals))
    for role in ("producer", "consumer"):
        parser.refuse_together(given, role, ("operation", "deny-principal", "deny-host"))
    if given.principal and not given.list and not given.suggest:
        parser.error("The --principal option is only available if --list is set")
    if given.suggest:
        parser.require(given, "audit-log")
    elif given.audit_log or given.fold_prefixes:
        parser.error("--audit-log and --fold-prefixes belong to --suggest")
    if given.producer and not given.topic:
        parser.error("With --producer you must specify a --topic")
    if given.idempotent and not given.producer:
        parser.error("The --idempotent option is only available if --producer is set")
    others = not given.producer and (given.cluster or given.transactional_id)
    if given.consumer and (not given.topic or not given.group or others):
        parser.error(
            "With --consumer you must specify a --topic and a --group and no --cluster or --transactional-id option should be "
            "specified."
        )
    if given.add and given.resource_pattern_type < PatternType.LITERAL:
        parser.error(
            f"A '--resource-pattern-type' value of '{given.resource_pattern_type.name}' is not valid when adding acls."
        )


@contextmanager
def _store(parser: ToolParser, given: argparse.Namespace) -> Iterator[_Acls]:
    """Where the entries are that the options mean."""
    if given.authorizer not in (None, ACL_AUTHORIZER):
        raise ConfigError(f"--authorizer {given.authorizer} is not supported: {ACL_AUTHORIZER} is")
    if given.bootstrap_server is None:
        if not given.authorizer_properties:
            parser.missing("bootstrap-server")
        if given.command_config:
            parser.error("The --command-config option can only be used with --bootstrap-server option")
        # Imports much that no other use needs.
        from barnabas.cli.acls.authorizer_znodes import AuthorizerZnodes

        properties = key_values(given.authorizer_properties, "--authorizer-properties")
        yield AuthorizerZnodes(properties, properties_file(given.zk_tls_config_file), given.zk_tls_config_file or "")
        return
    if given.authorizer:
        parser.error("Only one of --bootstrap-server or --authorizer must be specified")
    if given.authorizer_properties:
        parser.error("The --authorizer-properties option can only be used with --authorizer option")
    if given.zk_tls_config_file:
        parser.error("The --zk-tls-config-file option can only be used with --authorizer-properties")
    with connect(given, "barnabas-acls") as connection:
        yield _Brokers(connection)


def _add(store: _Acls, wanted: Mapping[AclResource, Sequence[Acl]], *, as_json: bool) -> None:
    for resource, acls in wanted.items():
        if not as_json:
            print_lines(f"Adding ACLs for resource {_quoted(resource)}: \n {_lines(acls)} \n")
        store.add(acls)
    if as_json:
        print_json({"added": [asdict(acl) for acls in wanted.values() for acl in acls]})


def _remove(store: _Acls, wanted: Mapping[AclResource, Sequence[Acl]], given: argparse.Namespace) -> None:
    as_json = given.output == "json"
    removed: list[Acl] = []
    for resource, acls in wanted.items():
        if acls:
            question = f"remove ACLs: \n {_lines(acls)} \n from resource filter {_quoted(resource)}? (y/n)"
        else:
            question = f"delete all ACLs for resource filter {_quoted(resource)}? (y/n)"
        if given.force or _is_confirmed(question, as_json=as_json):
            for each in [_filter(resource, acl) for acl in acls] or [_filter(resource, None)]:
                removed += store.remove(each)
    if as_json:
        print_json({"removed": [asdict(acl) for acl in removed]})


def _is_confirmed(question: str, *, as_json: bool) -> bool:
    """Whether somebody says yes. Raises `BarnabasError` without an answer."""
    print_lines(f"Are you sure you want to {question}", file=sys.stderr if as_json else sys.stdout)
    sys.stdout.flush()
    answer = sys.stdin.readline()
    if not answer:
        raise BarnabasError("there is no answer on standard input: --force asks no questions")
    return answer.strip().lower() == "y"


def _list(store: _Acls, resources: Sequence[AclResource], principals: Sequence[str], *, as_json: bool) -> None:
    filters = [_filter(resource, None) for resource in resources] or [AclFilter()]
    found = list(dict.fromkeys(acl for wanted in filters for acl in store.find(wanted)))
    if as_json:
        shown = [acl for acl in found if not principals or acl.principal in principals]
        print_json([asdict(acl) for acls in sorted_by_resource(shown).values() for acl in acls])
    elif not principals:
        _print_current(found)
    for principal in [] if as_json else dict.fromkeys(principals):
        print(f"ACLs for principal `{principal}`")
        _print_current([acl for acl in found if acl.principal == principal])


def _suggest(given: argparse.Namespace, principals: Sequence[str]) -> int:
    found = suggested_acls(given.audit_log, principals, folds_prefixes=given.fold_prefixes)
    if given.output == "json":
        print_json([asdict(acl) for acl in found])
        return 0
    at = [] if given.bootstrap_server is None else ["--bootstrap-server", given.bootstrap_server]
    for words in acl_commands(found):
        print(shlex.join(["kafka-acls", *at, *words]))
    return 0


def _print_current(acls: Sequence[Acl]) -> None:
    for resource, entries in sorted_by_resource(acls).items():
        print_lines(f"Current ACLs for resource {_quoted(resource)}: \n {_lines(entries)} \n")


def _quoted(resource: AclResource) -> str:
    return f"`{escaped_for(str(resource), sys.stdout)}`"


def _lines(acls: Iterable[Acl]) -> str:
    texts = (
        f"(principal={acl.principal}, host={acl.host}, operation={acl.operation}, permissionType={acl.permission})"
        for acl in acls
    )
    return "\n".join(f"\t{escaped_for(text, sys.stdout)}" for text in texts)


def _filter(resource: AclResource, acl: Acl | None) -> AclFilter:
    """The entries of a resource, or the one that is like ``acl``."""
    kind, name, pattern = resource.resource_type.name, resource.name, resource.pattern_type.name
    if acl is None:
        return AclFilter(kind, name, pattern_type=pattern)
    return AclFilter(kind, name, acl.principal, acl.operation, acl.permission, acl.host, pattern)


def _parser() -> ToolParser:
    parser = ToolParser("acls", "Add, remove and list access control lists: who may do what.")
    parser.add_argument("--add", action="store_true", help="add entries")
    parser.add_argument("--remove", action="store_true", help="remove entries")
    parser.add_argument(
        "--suggest",
        action="store_true",
        help="print commands that allow what somebody asked for, by the lines of audit logs, and no more",
    )
    parser.add_argument(
        "--audit-log",
        action="append",
        default=[],
        metavar="FILE",
        help="with --suggest: a log of kafka.authorizer.logger, ours or Apache's; may be repeated",
    )
    parser.add_argument(
        "--fold-prefixes", action="store_true", help="with --suggest: one prefixed pattern for names that begin alike"
    )
    parser.add_argument("--list", action="store_true", help="list the entries of the resources that are named, or all")
    parser.add_argument(
        "--principal",
        action="append",
        default=[],
        metavar="P",
        help="with --list and --suggest: those of this principal; may be repeated",
    )
    add_acl_options(parser)
    parser.add_argument("--force", action="store_true", help="with --remove: ask no questions")
    add_connection_options(parser)
    parser.add_argument(
        "--authorizer",
        metavar="CLASS",
        help=f"without brokers: {ACL_AUTHORIZER}, which is the default, or nothing else",
    )
    parser.add_argument(
        "--authorizer-properties",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="without brokers: where the entries are, zookeeper.connect=HOST:PORT; before the first broker starts",
    )
    parser.add_argument(
        "--zk-tls-config-file",
        metavar="FILE",
        help="without brokers: a file with ZooKeeper's properties for clients: TLS, and the user of SASL",
    )
    add_output_option(parser)
    return parser
