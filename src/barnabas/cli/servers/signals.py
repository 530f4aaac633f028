"""SIGTERM and Ctrl-C at servers of one event loop: they end a start, too."""

import asyncio
import signal
from collections.abc import Coroutine

__all__ = ["start_unless_stopped", "stop_event"]


def stop_event() -> asyncio.Event:
    """Set by SIGTERM and by Ctrl-C, from now on."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    return stop


async def start_unless_stopped(start: Coroutine[None, None, None], stop: asyncio.Event) -> bool:
    """Run a server's start; False if it was cancelled, because a signal came first.

    Raises what the start raises."""
    loop = asyncio.get_running_loop()
    starting, stopping = loop.create_task(start), loop.create_task(stop.wait())
    await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not starting.done():
        starting.cancel()
        await asyncio.wait({starting})
        return False
    starting.result()
    return True
