"""The ``barnabas`` command: Kafka's and ZooKeeper's tools under their own names, without ``kafka-`` and ``.sh``.

One module per command, each with ``main(argv) -> exit code``; `barnabas.cli.main` imports only the one that was asked
for. Arguments that make no sense end with 2, a job that failed with 1.
"""
