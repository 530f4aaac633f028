"""Data pipelines: from topics to databases and topics, as Spark Structured Streaming
jobs through PySpark.

A flow is declared in a TOML file (`specification`) or in Python (`flows`), checked with and without
Spark (`checks`), and run by ``barnabas pipeline run`` (`running`). Records come and go through a
Spark data source of our own, format name ``barnabas`` (`connector`), which takes the options of
Spark's Kafka connector. Outputs take a micro-batch again without harm (`outputs`), so a driver that
is killed and started again leaves nothing twice and nothing out.

Programs import `flows`, `session`, `trial`, `source` and `errors` of this package; the rooms
below are its own and move.

Needs the extra ``pipelines``: in a clone, ``pip install '.[pipelines]'``. Importing this package,
`cluster.options`, `cluster.offsets`, `flow_file` and `specification` needs no Spark.
"""
