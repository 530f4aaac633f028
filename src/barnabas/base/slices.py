"""Earlier names of `barnabas.base.tasks`."""

from typing import TypeVar

from barnabas.base.tasks import Beside, Runner, Task, done_here, one_by_one

__all__ = ["Beside", "Sliced", "Slices", "at_once", "in_this_thread", "one_by_one"]

T = TypeVar("T")

Sliced = Task[T]
Slices = Runner
at_once = in_this_thread = done_here
