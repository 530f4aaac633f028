"""Records to and from a terminal, a file or a pipe.

In Kafka: `ConsoleProducer`, `ConsoleConsumer`, `LineMessageReader`, `DefaultMessageFormatter`.
"""
