"""What the demo prints: numbered steps with times, checks that can fail, small tables and bars."""

import contextlib
import time
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

__all__ = ["CheckFailed", "Show"]

_BAR_WIDTH = 40


class CheckFailed(Exception):  # noqa: N818  # it is what happened
    """Something that must hold did not."""


class Show:
    """The demo's voice; colours and spinners on a terminal, plain lines elsewhere."""

    def __init__(self) -> None:
        self._console = Console(highlight=False, soft_wrap=True)
        self._began = time.monotonic()
        self._steps = 0
        self.checks = 0

    @property
    def seconds(self) -> float:
        """Since the demo began."""
        return time.monotonic() - self._began

    def step(self, title: str) -> None:
        """Begin the next step."""
        self._steps += 1
        self._console.print(f"\n[bold cyan]{self._steps}. {escape(title)}[/]  [dim]({self.seconds:.0f} s)[/]")

    def say(self, text: str) -> None:
        """A line under the step."""
        self._console.print(f"   {text}", markup=False)

    def note(self, text: str) -> None:
        """A line of less weight."""
        self._console.print(f"   {text}", style="dim", markup=False)

    @contextlib.contextmanager
    def busy(self, text: str) -> Iterator[None]:
        """A spinner, where there is a terminal, while something is waited for."""
        if self._console.is_terminal:
            with self._console.status(f"   {escape(text)}"):
                yield
        else:
            self.note(f"{text} ...")
            yield

    def check(self, claim: str, *, holds: bool, otherwise: str = "") -> None:
        """A claim that is printed when it holds and ends the demo when it does not."""
        if not holds:
            raise CheckFailed(f"{claim}: {otherwise}" if otherwise else claim)
        self.checks += 1
        self._console.print(f"   [green]ok[/] {escape(claim)}")

    def equal(self, what: str, found: int, wanted: int) -> None:
        """A figure that must be right to the last digit."""
        self.check(f"{what}: {found:,}", holds=found == wanted, otherwise=f"must be {wanted:,}")

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Rows; figures to the right."""
        table = Table(box=None, pad_edge=False, padding=(0, 2), header_style="bold")
        for index, name in enumerate(columns):
            table.add_column(name, justify="left" if index == 0 else "right")
        for row in rows:
            table.add_row(*[f"{cell:,}" if isinstance(cell, int) else escape(str(cell)) for cell in row])
        self._indented(table)

    def bars(self, values: Sequence[tuple[str, float, str]]) -> None:
        """A bar chart: label, length, what stands behind the bar."""
        longest = max((abs(value) for _, value, _ in values), default=1) or 1
        width = max(len(label) for label, _, _ in values)
        for label, value, text in values:
            bar = "█" * max(1, round(_BAR_WIDTH * abs(value) / longest))
            self._console.print(f"   {escape(label.ljust(width))} [cyan]{bar}[/] {escape(text)}")

    def commands(self, lines: Sequence[tuple[str, str]]) -> None:
        """Commands to try, each with what it shows."""
        for command, shows in lines:
            self._console.print(f"   [bold]{escape(command)}[/]")
            self._console.print(f"     [dim]{escape(shows)}[/]")

    def failed(self, text: str) -> None:
        """Why the demo ends early."""
        self._console.print(f"\n[bold red]failed[/] {escape(text)}")

    def _indented(self, table: Table) -> None:
        from rich.padding import Padding

        self._console.print(Padding(table, (0, 0, 0, 3), expand=False))
