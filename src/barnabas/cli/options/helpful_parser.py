"""A parser of arguments whose errors say in one line what is wrong and what may be meant, and in a
second one where help is."""

import argparse
import re
import sys
from typing import Any, NoReturn

from barnabas.base.hints import did_you_mean
from barnabas.base.numbers import number_from, whole_number
from barnabas.cli.options.help_text import HelpText
from barnabas.cli.output.colours import print_error

__all__ = ["HelpfulParser"]

_UNKNOWN = "unrecognized arguments: "
_MISSING = "the following arguments are required: "
_CHOICE = re.compile(r"invalid choice: '(.*)' \(choose from (.*)\)", re.DOTALL)
_WORDS = re.compile(r"[\w.-]+")


class HelpfulParser(argparse.ArgumentParser):
    """argparse's, for a command and for the actions of one (``parser_class``)."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{"formatter_class": HelpText, **settings})
        self._typed: list[str] = []
        # Options with type=int take a number as Kafka's tools do, without 1_000 or the
        # digits of other scripts.
        self.register("type", int, whole_number)
        self.register("type", float, number_from)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Like argparse's; what was typed is kept for errors."""
        self._typed = list(sys.argv[1:] if args is None else args)
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        """End with 2 after one line that says what is wrong and one that says where help is."""
        chosen = self._chosen()
        print_error(message + chosen._suggestion(message), f"See {chosen.prog} --help.")
        self.exit(2)

    def _chosen(self) -> "HelpfulParser":
        """The parser of the action that was typed, whose options are meant, or this one."""
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                for word in self._typed:
                    if isinstance(parser := action.choices.get(word), HelpfulParser):
                        parser._typed = self._typed
                        return parser
        return self

    def _suggestion(self, message: str) -> str:
        """What may be meant by the first option that is not known, or by a choice
        that is not there."""
        if found := _CHOICE.search(message):
            return did_you_mean(found[1], _WORDS.findall(found[2]))
        known = [
            option for action in self._actions if action.help != argparse.SUPPRESS for option in action.option_strings
        ]
        words: list[str] = []
        if message.startswith(_UNKNOWN):
            words = message[len(_UNKNOWN) :].split()
        elif message.startswith(_MISSING):  # perhaps only because its name has a typing error
            options = [word for word in self._typed if word.startswith("--")]
            words = [word for word in options if not any(each.startswith(word.partition("=")[0]) for each in known)]
        return next(filter(None, (did_you_mean(word.partition("=")[0], known) for word in words)), "")
