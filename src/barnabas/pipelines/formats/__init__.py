"""The formats of records' values: how they are declared, and how they become columns.

Spark: FileFormat has an implementation for each kind, such as CSVFileFormat; UnivocityParser and
JacksonParser read one value.
"""
