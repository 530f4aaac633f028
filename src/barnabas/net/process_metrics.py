"""What servers show of their process and of their event loop.

In the Prometheus client: the figures of its process collector, under their names.
"""

from barnabas.base.metric import Metric

__all__ = ["ProcessMetrics"]


class ProcessMetrics:
    """What is known of it depends on the system."""

    CPU = Metric("process_cpu_seconds_total", "counter", "Processor time of the process")
    START_TIME = Metric("process_start_time_seconds", "gauge", "When it started, in seconds since 1970")
    OPEN_FDS = Metric("process_open_fds", "gauge", "File descriptors that are open")
    MAX_FDS = Metric("process_max_fds", "gauge", "File descriptors that may be open")
    RESIDENT_MEMORY = Metric("process_resident_memory_bytes", "gauge", "Memory of the process")
    VIRTUAL_MEMORY = Metric("process_virtual_memory_bytes", "gauge", "Its address space")
    COLLECTIONS = Metric("python_gc_collections_total", "counter", "Collections of garbage", ("generation",))
    SLOW_CALLBACKS = Metric(
        "event_loop_slow_callbacks_total", "counter", "Steps that held the event loop for more than 10 ms"
    )
    SLOW_SECONDS = Metric("event_loop_slow_seconds_total", "counter", "The time that they took")
    SLOWEST_CALLBACK = Metric("event_loop_slowest_callback_seconds", "gauge", "The longest of them")
    SLOW_COLLECTIONS = Metric(
        "event_loop_slow_collections_total", "counter", "Collections of garbage that took more than 10 ms"
    )
    SLOWEST_COLLECTION = Metric("event_loop_slowest_collection_seconds", "gauge", "The longest of them")
    SLOW_PLACE_CALLBACKS = Metric(
        "event_loop_slow_place_callbacks_total",
        "counter",
        "Callbacks and steps of tasks above 10 ms by their place",
        ("place",),
    )
    SLOW_PLACE_SECONDS = Metric("event_loop_slow_place_seconds_total", "counter", "The time that they took", ("place",))
