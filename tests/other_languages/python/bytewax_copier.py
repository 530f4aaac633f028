"""Bytewax: a dataflow copies a topic; its snapshots have the offset up to which it has copied."""

import sys
from datetime import timedelta
from pathlib import Path

import bytewax.operators as op
from bytewax.connectors.kafka import KafkaSink, KafkaSinkMessage, KafkaSource
from bytewax.dataflow import Dataflow
from bytewax.recovery import RecoveryConfig, init_db_dir
from bytewax.testing import cluster_main

bootstrap, name, source, target, directory = sys.argv[1:6]
brokers = bootstrap.split(",")
flow = Dataflow(name)
numbers = op.input("numbers", flow, KafkaSource(brokers, [source], batch_size=20))
copies = op.map("copies", numbers, lambda message: KafkaSinkMessage(None, message.value))
op.output("out", copies, KafkaSink(brokers, target))

snapshots = Path(directory)
if not snapshots.exists():
    snapshots.mkdir()
    init_db_dir(snapshots, 1)
cluster_main(flow, [], 0, recovery_config=RecoveryConfig(snapshots), epoch_interval=timedelta(milliseconds=300))
