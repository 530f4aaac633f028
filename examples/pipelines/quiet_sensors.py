"""State with a time-out: a row for each sensor of which nothing has come for ten
minutes of event time.

barnabas pipeline run examples/pipelines/quiet_sensors.py --set
source.bootstrap_servers=localhost:9092 The topic `sensors` has JSON such as {"sensor": "hall",
"at": "2026-01-01T10:00:00Z", "celsius": 20.5}
"""

import pandas as pd
from pyspark.sql.streaming.state import GroupStateTimeout

from barnabas.pipelines.flows import declare, fields, sqlite, topic

QUIET_MS = 10 * 60 * 1000


def remember(key, frames, state):
    """Called with a sensor's rows of a micro-batch, or when its time is out.

    The state is the time of its last row."""
    if state.hasTimedOut:
        (last_ms,) = state.get
        state.remove()
        yield pd.DataFrame({"sensor": [key[0]], "last_at": [pd.Timestamp(last_ms, unit="ms")]})
        return
    last_ms = max(int(frame["at"].max().timestamp() * 1000) for frame in frames)
    if state.exists:
        last_ms = max(last_ms, state.get[0])
    state.update((last_ms,))
    state.setTimeoutTimestamp(max(last_ms + QUIET_MS, state.getCurrentWatermarkMs() + 1))


def quiet(source):
    """The step; what it gives is final, so its output mode is append."""
    return source.groupBy("sensor").applyInPandasWithState(
        remember, "sensor string, last_at timestamp", "last_ms bigint", "append", GroupStateTimeout.EventTimeTimeout
    )


flow = declare(
    "quiet-sensors",
    checkpoint="state/quiet-sensors",
    source=topic(
        "sensors",
        format=fields("json", sensor="string", at="timestamp", celsius="double") | {"required": ["sensor", "at"]},
        watermark=("at", "1 minute"),
    ),
    steps=[quiet],
    sinks=[sqlite("quiet.db", "quiet_sensors", key=["sensor", "last_at"])],
)
