"""The ``barnabas`` command: Kafka's and ZooKeeper's tools under their own names,
without ``kafka-`` and ``.sh``.

One module per command, each with ``main(argv) -> exit code``, in a room with its like;
`barnabas.cli.commands` has their table, and imports only the one that was asked for. Wrong
arguments end with 2, a job that failed with 1, an answer that is incomplete with 3;
`barnabas.cli.output.exit_codes` has the rest.
"""
