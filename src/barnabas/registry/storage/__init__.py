"""The topic ``_schemas``, and the election of the instance that writes it."""
