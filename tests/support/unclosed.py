"""Which sockets a piece of code leaves to the garbage collector."""

import contextlib
import gc
import warnings
from collections.abc import Iterator

__all__ = ["closes_all"]


@contextlib.contextmanager
def closes_all() -> Iterator[None]:
    """Fails at the end if anything was collected in this block that nobody had closed."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
        gc.collect()
    assert [str(each.message) for each in caught if issubclass(each.category, ResourceWarning)] == []
