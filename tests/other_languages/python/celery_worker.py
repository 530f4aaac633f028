"""Celery over kombu's transport for Kafka: a task keeps its number in a file.

`worker` runs tasks, `send FIRST END` sends them. A task is acknowledged when it is done.
"""

import sys
import time
from pathlib import Path

from celery import Celery

bootstrap, queue, kept, *command = sys.argv[1:]
app = Celery("numbers", broker=f"confluentkafka://{bootstrap.split(',')[0]}")
app.conf.update(
    task_default_queue=queue,
    task_acks_late=True,
    task_ignore_result=True,
    worker_prefetch_multiplier=1,
    worker_enable_remote_control=False,
    broker_transport_options={
        "replication_factor": 3,
        "wait_time_seconds": 1,
        "kafka_common_config": {"bootstrap.servers": bootstrap},
        "kafka_producer_config": {"enable.idempotence": True},
        "kafka_consumer_config": {"session.timeout.ms": 6000},
    },
)


@app.task(name="keep")
def keep(number: int) -> None:
    """Work for a moment, and add a line to the file."""
    time.sleep(0.005)
    with Path(kept).open("a") as file:
        file.write(f"{number}\n")


if command[0] == "worker":
    app.worker_main(["worker", "--pool=solo", "--without-gossip", "--without-mingle", "--without-heartbeat"])
else:
    for number in range(*map(int, command[1:])):
        keep.delay(number)
