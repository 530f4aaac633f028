"""What the options of commands have in common: parsers, help, times, and files that options name.

In Kafka: `CommandDefaultOptions`, `CommandLineUtils`.
"""
