"""The coordination service: a tree of znodes with sessions and watches, its server, and the
client of brokers and tools."""
