"""``barnabas features``: the levels of the cluster's features, with the options of
Kafka's FeatureCommand.

``transaction.version`` is the one that brokers here have. ``--output json`` prints one document.

In Kafka: `FeatureCommand`.
"""

import argparse
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from barnabas.base.errors import BarnabasError, ConfigError
from barnabas.broker.metadata.features import parse_levels
from barnabas.cli.connection.connect import connect
from barnabas.cli.options.tool_parser import ToolParser
from barnabas.cli.output.tables import print_json
from barnabas.cli.output.terminal import print
from barnabas.cli.transactions.actions import RunAction, add_action, add_actions
from barnabas.client.admin.features import LevelChange, describe_features, update_features

if TYPE_CHECKING:
    from barnabas.client.cluster.admin_connection import AdminConnection

__all__ = ["main"]

_DONE = {"upgrade": "upgraded", "downgrade": "downgraded", "disable": "disabled"}


def main(argv: list[str]) -> int:
    """Do the action; 1 if a feature could not be changed."""
    parser = _parser()
    given = parser.parse_args(argv)
    parser.require(given, "bootstrap-server")
    if given.action != "describe":
        given.levels = _levels(given)
    run: RunAction = given.run
    with connect(given, "barnabas-features") as connection:
        return run(connection, given)


def _parser() -> ToolParser:
    parser = ToolParser("features", "Show and change the levels of the cluster's features.")
    add = partial(add_action, add_actions(parser))
    add("describe", "show which levels are supported and finalized", _describe)
    for name, help_text in (
        ("upgrade", "finalize higher levels"),
        ("downgrade", "finalize lower levels"),
        ("disable", "take features back, as a downgrade to level 0 does"),
    ):
        action = add(name, help_text, _change)
        form = "NAME" if name == "disable" else "NAME=LEVEL"
        action.add_argument(
            "--feature", action="append", required=True, metavar=form, help="a feature; may be repeated"
        )
        action.add_argument("--dry-run", action="store_true", help="only say whether it is possible")
        if name != "upgrade":
            action.add_argument("--unsafe", action="store_true", help="even if something is lost by it")
    return parser


def _describe(connection: "AdminConnection", given: argparse.Namespace) -> int:
    found = describe_features(connection)
    if given.output == "json":
        print_json(
            {
                "epoch": found.epoch,
                "features": [
                    {
                        "name": each.name,
                        "supportedMinVersion": each.lowest,
                        "supportedMaxVersion": each.highest,
                        "finalizedVersionLevel": each.finalized,
                    }
                    for each in found.features
                ],
            }
        )
        return 0
    for each in found.features:
        print(
            f"Feature: {each.name}",
            f"SupportedMinVersion: {each.lowest}",
            f"SupportedMaxVersion: {each.highest}",
            f"FinalizedVersionLevel: {each.finalized}",
            f"Epoch: {'-' if found.epoch is None else found.epoch}",
            sep="\t",
        )
    return 0


def _levels(given: argparse.Namespace) -> dict[str, int]:
    if given.action != "disable":
        return parse_levels(given.feature)
    levels: dict[str, int] = {}
    for name in given.feature:
        if name in levels:
            raise ConfigError(f"Feature {name} was specified more than once.")
        levels[name] = 0
    return levels


def _change(connection: "AdminConnection", given: argparse.Namespace) -> int:
    levels: dict[str, int] = given.levels
    if given.action == "upgrade":
        kind = LevelChange.UPGRADE
    else:
        kind = LevelChange.UNSAFE_DOWNGRADE if given.unsafe else LevelChange.SAFE_DOWNGRADE
    results = update_features(connection, levels, kind, validate_only=given.dry_run)
    failures = sum(error is not None for error in results.values())
    if given.output == "json":
        print_json(
            [
                {"name": name, "level": levels[name], "error": None if error is None else str(error)}
                for name, error in sorted(results.items())
            ]
        )
    else:
        _print_results(given, levels, results)
    if failures:
        raise BarnabasError(f"{failures} out of {len(levels)} operation(s) failed.")
    return 0


def _print_results(
    given: argparse.Namespace, levels: Mapping[str, int], results: Mapping[str, BarnabasError | None]
) -> None:
    """In the words of Kafka's tool."""
    for name, error in sorted(results.items()):
        to_level = "" if given.action == "disable" else f" to {levels[name]}"
        if error is not None:
            print(f"{'Can' if given.dry_run else 'Could'} not {given.action} {name}{to_level}. {error}")
        else:
            print(f"{name} {'can be' if given.dry_run else 'was'} {_DONE[given.action]}{to_level}.")
