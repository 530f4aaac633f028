"""Named tuples on hot paths, made in half the time of their own constructor."""

__all__ = ["new_tuple"]

new_tuple = tuple.__new__
"""``new_tuple(Kind, (field, ...))``. It does not compare the number of fields with the kind's: a
test does that for all calls."""
