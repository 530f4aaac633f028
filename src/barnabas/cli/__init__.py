"""The ``barnabas`` command: Kafka's and ZooKeeper's tools under their own names,
without ``kafka-`` and ``.sh``.

Each command is a module with ``main(argv) -> exit code``, in the folder of its kind.
`barnabas.cli.commands` has their table. `barnabas.cli.main` looks the command up, imports only its
module, and turns errors into exit codes. Wrong arguments end with 2, a job that failed with 1, an
answer that is incomplete with 3; `barnabas.cli.output.exit_codes` has the rest.
"""
