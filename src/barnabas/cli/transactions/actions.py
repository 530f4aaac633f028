"""Commands whose first word is an action, as Kafka's tools of this kind have it: ``transactions
list``, ``features upgrade``.

In Kafka: the subparsers of `TransactionsCommand` and `FeatureCommand`.
"""

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from barnabas.cli.options.helpful_parser import HelpfulParser
from barnabas.cli.options.tool_parser import ToolParser, add_connection_options, add_output_option

if TYPE_CHECKING:
    from barnabas.client.cluster.admin_connection import AdminConnection

__all__ = ["RunAction", "add_action", "add_actions"]

RunAction = Callable[["AdminConnection", argparse.Namespace], int]
"""Does an action; the exit code."""


def add_actions(parser: ToolParser) -> Any:
    """The place for actions, see `add_action`; their name is ``action``."""
    add_connection_options(parser)
    add_output_option(parser)
    return parser.add_subparsers(dest="action", required=True, metavar="ACTION", parser_class=HelpfulParser)


def add_action(actions: Any, name: str, help_text: str, run: RunAction) -> HelpfulParser:
    """An action, whose function is ``run`` of the arguments. The options for the connection and
    the output may stand before or behind its name."""
    action: HelpfulParser = actions.add_parser(name, help=help_text, description=f"{help_text.capitalize()}.")
    add_connection_options(action)
    add_output_option(action)
    for option in action._actions:
        option.default = argparse.SUPPRESS  # what stands before the action holds
    action.set_defaults(run=run)
    return action
