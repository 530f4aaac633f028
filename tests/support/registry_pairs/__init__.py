"""Pairs of schemas, whose answers others gave: what a reader's schema makes of a writer's.

`judges.py` asks the judges again; what they said is in `kept/registry_answers.json`."""
