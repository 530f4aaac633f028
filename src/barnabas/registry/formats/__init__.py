"""The formats of schemas: Avro, JSON Schema and Protobuf."""
