"""What `barnabas top` shows: rates between readings, order, filter, columns, keys and lines."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.base.errors import ConfigError
from barnabas.cli.output.terminal import columns, escaped
from barnabas.lag.values import GroupKind, GroupLag, LagState, PartitionLag, TimeSource
from barnabas.net.prometheus_text import Histogram, parse_metrics
from barnabas.top.document import document_of
from barnabas.top.layout import LineKind, TextRules, layout_of
from barnabas.top.navigation import ALL, PLACES, Navigation, drilled, navigated, next_view, raised, sorted_by
from barnabas.top.numbers import amount
from barnabas.top.pace import pause_s, work_s
from barnabas.top.rates import Rates, Seen, rates_between
from barnabas.top.sources import PageAddress, broker_of_page, flow_of_page, page_addresses
from barnabas.top.status import status_lines
from barnabas.top.tables import Cell, Column, TableRow, ViewTable, filtered, fit, ordered, shortened
from barnabas.top.values import BrokerFigures, BrokerSeen, BrokerState, PartitionSeen, Snapshot, TopicSeen
from barnabas.top.views import VIEWS

RULES = TextRules(escaped, columns)
INF = float("inf")
cell_values = st.one_of(st.none(), st.integers(-5, 5), st.floats(-5, 5), st.sampled_from(["a", "B", "b\x1b[31m", "ü"]))
widths = st.integers(1, 200)


@st.composite
def tables(draw: st.DrawFn) -> ViewTable:
    """A table whose rows have their numbers as keys."""
    count = draw(st.integers(1, 4))
    shape = [
        Column(f"C{at}", f"c{at}", draw(st.integers(0, 3)) if at else 0, draw(st.booleans())) for at in range(count)
    ]
    values = draw(st.lists(st.lists(cell_values, min_size=count, max_size=count), max_size=8))
    rows = [TableRow(str(at), [Cell(value, str(value)) for value in row]) for at, row in enumerate(values)]
    return ViewTable(shape, rows)


@given(tables(), st.integers(0, 3), st.booleans())
def test_an_order_keeps_all_rows_and_is_stable(table: ViewTable, column: int, descending: bool) -> None:
    """Equal values stay in the view's order, unknown ones come last, whichever way."""
    found = ordered(table, column, descending=descending)
    assert sorted(row.key for row in found.rows) == sorted(row.key for row in table.rows)
    assert ordered(found, column, descending=descending) == found
    if column < len(table.columns):
        values = [row.cells[column].value for row in found.rows]
        known = [value for value in values if value is not None]
        assert values == known + [None] * (len(values) - len(known))
        for value in known:
            same = [int(row.key) for row in found.rows if row.cells[column].value == value]
            exact = [key for key in same if type(table.rows[key].cells[column].value) is type(value)]
            assert exact == sorted(exact)


@given(tables(), st.text(alphabet="aB5 .", max_size=4), st.integers(0, 3))
def test_a_filter_keeps_the_order_and_each_row_with_the_words(table: ViewTable, words: str, column: int) -> None:
    """Whether rows are filtered or ordered first makes no difference."""
    found = filtered(table, words)
    assert [row for row in table.rows if row in found.rows] == found.rows
    for row in table.rows:
        texts = [cell.text.lower() for cell in row.cells]
        assert (row in found.rows) == all(any(word in text for text in texts) for word in words.lower().split())
    assert ordered(filtered(table, words), column) == filtered(ordered(table, column), words)


@given(tables(), widths)
def test_columns_fit_or_only_those_that_must_stay_are_left(table: ViewTable, width: int) -> None:
    """The first column is always there, and no text is wider than its column."""
    shown = fit(table, width, RULES.width)
    assert shown[0].place == 0
    assert [each.place for each in shown] == sorted(each.place for each in shown)
    total = sum(each.width for each in shown) + 2 * (len(shown) - 1)
    assert total <= width or all(table.columns[each.place].rank == 0 or total <= width + 24 for each in shown)
    for each in shown:
        for row in table.rows:
            assert columns(RULES.fitted(row.cells[each.place].text, each.width)) == each.width


@given(st.text(), st.integers(0, 30))
def test_a_shortened_text_has_its_begin_and_its_end(text: str, width: int) -> None:
    """Never wider than asked for, and a text that fits is whole."""
    found = shortened(escaped(text), width, columns)
    assert columns(found) <= width
    if columns(escaped(text)) <= width:
        assert found == escaped(text)


@given(st.floats(0, 1e18, allow_nan=False))
def test_an_amount_is_short_and_near(value: float) -> None:
    """Seven letters at most below a thousand T, and within half a percent."""
    text = amount(value)
    factor = {"k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}.get(text[-1])
    number = float(text.rstrip("kMGT")) * (factor or 1)
    assert abs(number - value) <= max(0.006 * value, 0.006)
    assert len(text) <= 8


def partition(number: int, end: int | None, leader: int | None = 1, isr: tuple[int, ...] = (1, 2)) -> PartitionSeen:
    return PartitionSeen(number, leader, (1, 2), isr, 0, end)


def snapshot(at_ms: int, end: int | None, figures: BrokerFigures | None = None, **more: object) -> Snapshot:
    brokers = [
        BrokerSeen(1, "h1:9092", None, True, BrokerState.UP, figures),
        BrokerSeen(2, None, None, False, BrokerState.AWAY),
    ]
    topics = [
        TopicSeen("orders", False, [partition(0, end), partition(1, 5, leader=None, isr=())]),
        TopicSeen("__consumer_offsets", True, [partition(0, 7, isr=(1,))]),
    ]
    return Snapshot(at_ms, 20, "c", brokers, topics, **more)  # type: ignore[arg-type]


def figures(count: float, cpu_s: float) -> BrokerFigures:
    histogram = Histogram((1.0, INF), (count, 0.0), count)
    return BrokerFigures(bytes_in=count * 100, cpu_s=cpu_s, requests={"Produce": histogram, "FetchConsumer": histogram})


def test_rates_are_of_what_changed_between_two_readings() -> None:
    """Records, bytes, processor time and requests of the two seconds."""
    rates = rates_between(snapshot(1000, 10, figures(10, 1.0)), snapshot(3000, 30, figures(30, 1.5)))
    assert rates.seconds == 2
    assert rates.topics == {"orders": 10.0, "__consumer_offsets": 0.0}
    assert rates.led == {1: 10.0}
    assert rates.brokers[1].bytes_in == 1000
    assert rates.brokers[1].bytes_out is None
    assert rates.brokers[1].cpu == 0.25
    assert {(each.api, each.times_ms.count, each.per_s) for each in rates.requests} == {
        ("Produce", 20, 10.0),
        ("FetchConsumer", 20, 10.0),
    }


@pytest.mark.parametrize(("before", "now"), [(30, 10), (None, 10), (10, None)])
def test_what_went_back_or_is_not_known_has_no_rate(before: int | None, now: int | None) -> None:
    """A topic that was made again, or a partition whose leader did not answer."""
    rates = rates_between(snapshot(1000, before), snapshot(3000, now))
    assert ("orders", 0) not in rates.partitions
    is_known = before is not None and now is not None
    assert rates.topics.get("orders", 0.0) == (0.0 if is_known else None)
    assert rates.led.get(1, 0.0) == (0.0 if is_known else None)


def test_the_first_reading_has_the_requests_since_the_brokers_start() -> None:
    """So has one after the clock was set back."""
    for before in (None, snapshot(9000, 1, figures(5, 1))):
        rates = rates_between(before, snapshot(1000, 10, figures(10, 1)))
        assert rates.seconds is None
        assert [(each.times_ms.count, each.per_s) for each in rates.requests] == [(10, None), (10, None)]


def lag(group: str, records: int | None, state: LagState = LagState.WELL, problem: str = "") -> GroupLag:
    part = PartitionLag(
        "orders", 0, 1, 0, 9, records, 2500, None, TimeSource.RECORD, 0, 1.0, 2.0, None, state, "c", problem
    )
    return GroupLag(group, GroupKind.CLASSIC, "Stable", 1, [part], state)


def seen_now() -> Seen:
    groups = [lag("ahead", 0), lag("behind", 8, LagState.STALLED), lag("half", None, problem="no leader")]
    now = snapshot(3000, 30, figures(30, 1.5), groups=groups, gaps=["broker 2: away"])
    return Seen(now, rates_between(snapshot(1000, 10, figures(10, 1.0)), now))


def test_the_document_has_each_view_with_values_and_not_texts() -> None:
    """It is JSON, and what is not known is null."""
    found = json.loads(json.dumps(document_of(seen_now())))
    assert list(found)[4:-2] == list(VIEWS)
    assert found["brokers"][0] | {"state": "up, controller", "records_per_s": 10.0, "cpu": 0.25} == found["brokers"][0]
    assert found["brokers"][1]["state"] == "away"
    assert found["topics"][0]["records"] == 35
    assert found["topics"][0]["wrong"] == "1 without leader, 1 under replicated"
    assert [(each["name"], each["lag"], each["lag_s"]) for each in found["groups"]] == [
        ("behind", 8, 2.5),
        ("ahead", 0, 2.5),
        ("half", None, 2.5),
    ]
    assert [each["request"] for each in found["requests"]] == ["Produce", "FetchConsumer"]
    assert found["errors"] == ["broker 2: away"]


@pytest.mark.parametrize("view", PLACES)
@pytest.mark.parametrize("width", [10, 40, 80, 200])
def test_no_line_is_wider_than_a_terminal_that_has_room_for_names(view: str, width: int) -> None:
    """Each line has a text, and with 80 columns none is cut by the terminal."""
    layout = layout_of(Navigation(view=view), seen_now(), width, 20, RULES)
    texts = [layout.text(number)[0] for number in range(len(layout.lines))]
    assert width < 80 or max(map(columns, texts)) <= width
    for number in layout.row_numbers:
        assert layout.number_of(layout.place(number)) == number


def test_all_has_a_part_of_each_view_and_says_how_much() -> None:
    """Rows share the height; each view has three at least."""
    many = [TopicSeen(f"t{number}", False, [partition(0, 1)]) for number in range(500)]
    seen = Seen(Snapshot(0, topics=many), Rates())
    layout = layout_of(Navigation(), seen, 80, 60, RULES)
    titles = [layout.text(at)[0] for at, line in enumerate(layout.lines) if line.kind == LineKind.TITLE]
    assert len(titles) == len(VIEWS)
    assert titles[1].startswith("Topics (")
    assert titles[1].endswith(" of 500)")
    assert len(layout.lines) <= 60
    assert len(layout_of(Navigation(), seen, 80, 5, RULES).row_numbers) == 3


def test_keys_lead_into_a_row_and_back() -> None:
    """Enter in a view, or among all; Esc first takes the filter away."""
    at = drilled(Navigation(), "topics", "orders")
    assert (at.view, at.part_of, at.title) == ("topics", "orders", "Topics: orders")
    assert drilled(at, "topics", "other") == at
    assert raised(raised(at.with_filter("x"))).part_of is None
    assert drilled(Navigation(view="requests"), "requests", "Produce 1").part_of is None
    assert next_view(Navigation(view=PLACES[-1]), 1).view == ALL
    assert navigated(at, "groups") == Navigation(view="groups")
    table = layout_of(at, seen_now(), 80, 20, RULES)
    assert [table.place(number) for number in table.row_numbers] == [("topics", "orders-0"), ("topics", "orders-1")]


def test_an_order_goes_round_the_columns() -> None:
    """Numbers begin with the greatest, and the round ends at the view's own order."""
    shape = [Column("A", "a", is_number=False), Column("B", "b")]
    first = sorted_by(Navigation(view="topics"), shape, step=1)
    second = sorted_by(first, shape, step=1)
    assert (first.order.column, first.order.descending) == ("a", False)
    assert (second.order.column, second.order.descending) == ("b", True)
    assert sorted_by(second, shape, turn=True).order.descending is False
    assert sorted_by(second, shape, step=1).order.column is None
    assert sorted_by(Navigation(view="topics"), shape, step=-1).order.column == "b"


@given(st.floats(0.1, 100), st.floats(0, 100))
def test_a_reading_takes_at_most_a_tenth_of_the_time(refresh_s: float, took_s: float) -> None:
    """But each minute one may begin."""
    pause = pause_s(refresh_s, took_s)
    assert pause >= 0
    assert pause + took_s >= min(refresh_s, 60) - 1e-9
    assert pause + took_s >= min(took_s * 10, 60) - 1e-9


def test_a_wait_for_a_broker_that_does_not_answer_is_no_work() -> None:
    """Else one paused broker would slow all readings down."""
    assert work_s(None, 3.0, is_whole=False) == 3.0
    assert work_s(0.1, 3.0, is_whole=False) == 0.1
    assert work_s(0.1, 3.0, is_whole=True) == 3.0


def test_the_status_says_what_is_wrong_in_any_width() -> None:
    """The cluster, the time, the place, and what is missing."""
    place = Navigation(view="topics", is_paused=True).with_filter("ord")
    lines = status_lines(place, seen_now(), 2.0, "", 5000, 200)
    assert lines[0].startswith("cluster c, 1 of 2 brokers up, 2 topics, 3 partitions, 1 without leader")
    assert lines[1] == "PAUSED, read 2 s ago, every 2.0 s, in 20 ms"
    assert "[2 topics]" in lines[2]
    assert lines[2].endswith("with 'ord'")
    assert lines[3] == "Incomplete: broker 2: away"
    narrow = status_lines(place, seen_now(), 2.0, "no broker answers", 5000, 40)
    assert narrow[2].startswith(" 0  1 [2 topics] 3 ")
    assert narrow[3] == "No answer: no broker answers"
    assert status_lines(place, None, 2.0, "", 0, 80)[0] == "reading the cluster"


def test_pages_belong_to_the_broker_that_is_named_or_the_only_one_there() -> None:
    """A page of something else is no broker's; a dashboard's has its flows."""
    named, other = page_addresses("1=h:7071, [::1]:7072")
    assert (named, other) == (PageAddress(("h", 7071), 1), PageAddress(("::1", 7072)))
    page = parse_metrics("kafka_server_x 1\n")
    hosts = {1: "a", 2: "b", 3: "b"}
    assert broker_of_page(named, page, hosts) == 1
    assert broker_of_page(PageAddress(("a", 1)), page, hosts) == 1
    assert broker_of_page(PageAddress(("b", 1)), page, hosts) is None
    assert broker_of_page(named, parse_metrics("up 1\n"), hosts) is None
    flows = flow_of_page(
        other, parse_metrics('barnabas_pipeline_lag{flow="f"} 3\nbarnabas_pipeline_rows{flow="f"} 9\n')
    )
    assert [(flow.name, flow.rows, flow.lag, flow.bad_rows) for flow in flows] == [("f", 9, 3, None)]


@pytest.mark.parametrize("text", ["h", "h:", "h:0", "h:99999", ":7071", "x=h:1", "-1=h:1"])
def test_an_address_of_metrics_that_is_none_is_refused(text: str) -> None:
    """The error shows what is expected."""
    with pytest.raises(ConfigError, match="HOST:PORT or ID=HOST:PORT is expected"):
        page_addresses(text)
