"""The options of ``barnabas acls`` that name resources, principals, hosts and operations.

In Kafka: `AclCommandOptions`.
"""

import argparse
from dataclasses import fields

from barnabas.client.admin.acl_options import ACL_OPERATIONS, AclOptions, pattern_type_of
from barnabas.client.errors import ConfigurationError
from barnabas.security.acls import PatternType

__all__ = ["add_acl_options", "options_of"]


def add_acl_options(parser: argparse.ArgumentParser) -> None:
    """The options that name resources, principals, hosts and operations."""

    def names(option: str, text: str) -> None:
        parser.add_argument(f"--{option}", action="append", default=[], metavar="NAME", help=text)

    names("topic", "a topic, or '*' for all; may be repeated")
    names("group", "a consumer group, or '*' for all; may be repeated")
    parser.add_argument("--cluster", action="store_true", help="the cluster itself")
    names("transactional-id", "a transactional id, or '*' for all; may be repeated")
    names("delegation-token", "a delegation token, or '*' for all; may be repeated")
    names("user-principal", "a user as a resource, for the operations CreateTokens and DescribeTokens")
    parser.add_argument(
        "--resource-pattern-type",
        type=_pattern_type,
        default=PatternType.LITERAL,
        metavar="TYPE",
        help="how the names are meant: literal, prefixed; with --list and --remove also any (a pattern of whatever type with "
        "this name) or match (all patterns that match this name) (default: literal)",
    )
    principals = "as TYPE:NAME, such as User:ann; 'User:*' is everybody; may be repeated"
    parser.add_argument("--allow-principal", action="append", default=[], metavar="P", help=f"who may, {principals}")
    parser.add_argument(
        "--deny-principal",
        action="append",
        default=[],
        metavar="P",
        help=f"who may not, whatever else allows it, {principals}",
    )
    hosts = "an address, or '*' (default: *); may be repeated"
    parser.add_argument(
        "--allow-host", action="append", default=[], metavar="HOST", help=f"from where they may: {hosts}"
    )
    parser.add_argument(
        "--deny-host", action="append", default=[], metavar="HOST", help=f"from where they may not: {hosts}"
    )
    parser.add_argument(
        "--operation",
        action="append",
        default=[],
        metavar="OPERATION",
        help=f"what they do: {', '.join(ACL_OPERATIONS)} (default: All); may be repeated",
    )
    parser.add_argument(
        "--producer", action="store_true", help="what a producer needs: Write, Describe and Create on the topics"
    )
    parser.add_argument(
        "--consumer",
        action="store_true",
        help="what a consumer needs: Read and Describe on the topics, Read on the groups",
    )
    parser.add_argument(
        "--idempotent",
        action="store_true",
        help="with --producer: IdempotentWrite on the cluster, for brokers before 2.8",
    )


def _pattern_type(text: str) -> PatternType:
    try:
        return pattern_type_of(text)
    except ConfigurationError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def options_of(given: argparse.Namespace) -> AclOptions:
    """What was given of these."""
    return AclOptions(**{field.name: vars(given)[field.name] for field in fields(AclOptions)})
