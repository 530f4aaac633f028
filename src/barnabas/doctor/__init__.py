"""What is wrong with a cluster, or will be: evidence is read, and rules judge it.

- `finding`: what a rule finds: a sentence, its evidence, and the command that mends it.
- `evidence`: what was read, in parts. A part that could not be read says why.
- `rules`: a function for each rule, registered by a decorator.
- `reading`: the edge; a function for each part of the evidence.
- `diagnosis`: applies rules to evidence.
- `report`: the words of a diagnosis.

In Kafka: what `kafka-topics --under-replicated-partitions` and its like each show a piece of.
"""
