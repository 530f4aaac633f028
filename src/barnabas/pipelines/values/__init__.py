"""Values in one form: texts of times and other values, values of Arrow columns, and JSON documents.

Spark: ToPrettyString and JacksonGenerator write values; here the form does not
depend on the session.
"""
