"""A dashboard over a flow, served on a thread."""

import contextlib
import threading
from collections.abc import Iterator

from barnabas.pipelines.dashboard.server import Dashboard, DashboardServer
from barnabas.pipelines.specification import spec


@contextlib.contextmanager
def served_dashboard(flow: spec.Flow) -> Iterator[DashboardServer]:
    """It has a free port, and is closed at the end."""
    running = DashboardServer(Dashboard(flow), "127.0.0.1", 0)
    thread = threading.Thread(target=running.serve_forever)
    thread.start()
    yield running
    running.shutdown()
    thread.join()
    running.server_close()
