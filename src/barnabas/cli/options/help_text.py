"""The help of a command, which is the same text on each Python: argparse words and wraps it in
another way now and then."""

import argparse
from collections.abc import Iterable, Sequence

__all__ = ["HelpText"]

_PREFIX = "usage: "


class HelpText(argparse.HelpFormatter):
    """Shows an option's default after its help, unless the help says it already."""

    def add_argument(self, action: argparse.Action) -> None:
        """Make room for the names of a command's actions, too, which are indented."""
        super().add_argument(action)
        for each in self._iter_indented_subactions(action):
            length = len(self._format_action_invocation(each)) + self._current_indent
            self._action_max_length = max(self._action_max_length, length)

    def _get_help_string(self, action: argparse.Action) -> str | None:
        text = action.help
        is_shown = action.option_strings and action.default not in (None, False, [], "", argparse.SUPPRESS)
        if text is None or not is_shown or "default" in text:
            return text
        return f"{text} (default %(default)s)"

    def _format_action_invocation(self, action: argparse.Action) -> str:
        """An option's names, then its value once."""
        if not action.option_strings or action.nargs == 0:
            return super()._format_action_invocation(action)
        return f"{', '.join(action.option_strings)} {self._value(action)}"

    def _format_usage(
        self,
        usage: str | None,
        actions: Iterable[argparse.Action],
        groups: Iterable[argparse._MutuallyExclusiveGroup],
        prefix: str | None,
    ) -> str:
        """Options, then positional arguments on a line of their own if all do not fit into one.

        None is broken."""
        del usage
        begin = f"{_PREFIX if prefix is None else prefix}{self._prog}"
        shown = [action for action in actions if action.help is not argparse.SUPPRESS]
        options = self._parts([action for action in shown if action.option_strings], groups)
        positional = self._parts([action for action in shown if not action.option_strings], groups)
        width = self._width - self._current_indent
        line = " ".join([begin, *options, *positional])
        if len(line) <= width:
            return f"{line}\n\n"
        indent = " " * (len(begin) + 1 if len(begin) < width // 2 else len(_PREFIX))
        lines = [*_wrapped(options, indent, width), *_wrapped(positional, indent, width)]
        if len(indent) > len(begin):
            lines[0] = begin + lines[0][len(begin) :]
        else:
            lines.insert(0, begin)
        return "\n".join(lines) + "\n\n"

    def _parts(
        self, actions: Sequence[argparse.Action], groups: Iterable[argparse._MutuallyExclusiveGroup]
    ) -> list[str]:
        group_of = {id(action): group for group in groups for action in group._group_actions}
        parts: dict[object, str] = {}
        for action in actions:
            group = group_of.get(id(action))
            if group is None:
                part = self._part(action)
                parts[action] = part if action.required or not action.option_strings else f"[{part}]"
            elif group not in parts:
                choices = " | ".join(self._part(each) for each in group._group_actions if each in actions)
                parts[group] = f"({choices})" if group.required else f"[{choices}]"
        return list(parts.values())

    def _part(self, action: argparse.Action) -> str:
        if not action.option_strings:
            return self._value(action)
        return action.format_usage() if action.nargs == 0 else f"{action.option_strings[0]} {self._value(action)}"

    def _value(self, action: argparse.Action) -> str:
        if action.option_strings:
            return self._format_args(action, self._get_default_metavar_for_optional(action))
        return self._format_args(action, self._get_default_metavar_for_positional(action))


def _wrapped(parts: Sequence[str], indent: str, width: int) -> list[str]:
    """Lines of as many parts as fit; a part that is longer than a line has its own."""
    lines: list[str] = []
    for part in parts:
        if lines and len(lines[-1]) + 1 + len(part) <= width:
            lines[-1] += f" {part}"
        else:
            lines.append(f"{indent}{part}")
    return lines
