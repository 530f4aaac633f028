"""One module per API: its request, its response and their structures.

Facts: Apache Kafka's message definitions. Import a module directly, or let
`barnabas.wire.kafka.api.api` import it when the API is first used.
"""
