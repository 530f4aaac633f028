"""Which steps take a source's records one by one."""

from barnabas.pipelines.specification.row_steps import aggregates_records, row_chains, takes_records
from barnabas.pipelines.specification.spec import Flow, parse

FLOW = """
name = "f"
checkpoint = "c"
[sources.a]
bootstrap_servers = "localhost:9092"
topics = ["a"]
watermark = { time = "at", delay = "1 hour" }
format = { type = "json", columns = { n = "int", at = "timestamp" } }
[sources.b]
topics = ["b"]
format = { type = "json", columns = { n = "int" } }
[transform]
derive = { half = "n / 2" }
%s
[[sinks]]
type = "sqlite"
path = "o.db"
table = "t"
key = ["n"]
"""


def flow(steps: str) -> Flow:
    text = FLOW % steps
    return parse(text.replace('key = ["n"]\n', "") if "aggregate" in steps else text)


def places(declared: Flow, number: int) -> list[list[str]]:
    """The steps of the chains of a source."""
    return [[step.place for step in chain] for chain in row_chains(declared, declared.sources[number])]


def test_the_end_of_a_chain_has_the_keys_of_outputs_if_its_rows_are_the_results() -> None:
    """Of groups those that rows have; none where a query or a function makes the results."""

    def keys(steps: str) -> list[tuple[str, ...]]:
        return [chain[-1].key for chain in row_chains(flow(steps), flow(steps).sources[0])]

    assert keys('[[steps]]\nname = "x"\nderive = { m = "n" }\n') == [("n",)]
    assert keys('[[steps]]\nname = "x"\ndeduplicate = ["n"]\n') == [("n",)]
    assert keys('[[steps]]\nname = "x"\n[aggregate]\ngroup_by = ["half", "n"]\ncompute = { c = "count(*)" }\n') == [
        ("half", "n")
    ]
    assert keys('[[steps]]\nname = "x"\nsql = "select n from a"\n') == [()]


def test_chains_branch_and_end_where_rows_are_of_no_single_record() -> None:
    """At deduplication, a query, and an aggregate, which still takes records itself."""
    declared = flow(
        '[[steps]]\nname = "x"\nfrom = "a"\nwhere = "n > 0"\n'
        '[[steps]]\nname = "y"\nderive = { m = "1 / n" }\n'
        '[[steps]]\nname = "z"\nfrom = "x"\ndeduplicate = ["n"]\n'
        '[[steps]]\nname = "after"\nderive = { k = "1 / n" }\n'
        '[[steps]]\nname = "of_b"\nfrom = "b"\naggregate = { group_by = ["n"], compute = { c = "count(*)" } }\n'
        '[[steps]]\nname = "joined"\nsql = "select y.n from y join of_b on y.n = of_b.n"\n'
        '[aggregate]\ngroup_by = ["n"]\ncompute = { c = "count(*)" }\n'
        '[[expectations]]\nname = "e"\ncheck = "n < 9"\nof = "x"\non_fail = "drop"\n'
    )
    assert places(declared, 0) == [["transform", "steps[0]", "steps[1]"], ["transform", "steps[0]", "steps[2]"]]
    assert places(declared, 1) == [["", "steps[4]"]]
    assert [takes_records(declared, f"steps[{number}]") for number in range(6)] == [
        True,
        True,
        True,
        False,
        True,
        False,
    ]
    assert not aggregates_records(declared, declared.aggregate)
    first, second = row_chains(declared, declared.source)[0][:2]
    assert (first.transform.derive, [each.name for each in second.drops]) == ({"half": "n / 2"}, ["e"])


def test_an_aggregate_of_the_last_step_is_of_records_if_that_step_is() -> None:
    """A source without steps has a chain of its own."""
    aggregate = '[aggregate]\ngroup_by = ["n"]\ncompute = { c = "sum(n)" }\n'
    declared = flow('[[steps]]\nname = "x"\nfrom = "b"\n' + aggregate)
    assert places(declared, 0) == [["transform"]]
    assert places(declared, 1) == [["", "steps[0]", ""]]
    assert aggregates_records(declared, declared.aggregate)
    queried = flow('[[steps]]\nname = "x"\nsql = "select * from b"\n' + aggregate)
    assert not aggregates_records(queried, queried.aggregate)
