"""Data pipelines: from topics to databases and topics, as Spark Structured Streaming jobs through PySpark.

A flow is declared in a TOML file (`spec`), checked without Spark, and run by ``barnabas pipeline run`` (`run`). Records
come and go through a Spark data source of our own, format name ``barnabas`` (`source`, `sink`), which stands on
librdkafka and takes the options of Spark's Kafka connector. Sinks take a micro-batch again without harm, so a driver
that is killed and started again leaves nothing twice and nothing out (`database`, `topics`).

Needs the extra ``pipelines``: in a clone, ``pip install '.[pipelines]'``. Importing this package, `spec`, `offsets`, `options` and `jvm`
needs no Spark.
"""
