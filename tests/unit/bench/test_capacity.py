"""The calculation to a million streams: its tables in the document are what it computes from the measured curve."""

import capacity
import pytest
from capacity import Machine, Measured, Service, limits, need
from curve import Point, median_point, read_curve
from msgspec import structs

MEASURED = Measured(event_us=40.0, stream_kib=30.0)
MACHINE = Machine()


def needed(streams: int, **changes: float) -> capacity.Need:
    return need(structs.replace(Service(streams=streams), **changes), MEASURED, MACHINE)


def test_document_has_the_tables_that_the_module_computes() -> None:
    document = capacity.DOCUMENT.read_text(encoding="utf-8")
    assert capacity.written(document, capacity.sections(read_curve())) == document, (
        "after a deliberate change: .venv/bin/python bench/capacity.py"
    )


def test_document_without_a_place_for_a_table_is_refused() -> None:
    with pytest.raises(ValueError, match="expected <!-- need --> and <!-- end of need -->"):
        capacity.written("<!-- need -->\n", {"need": "| |"})


def test_processes_are_those_that_the_events_keep_busy() -> None:
    # 30,000 events a second of 40 µs, and 100 responses of 200 µs with two writes of 165 µs: 1.253 processors at 60 %.
    assert needed(1_000).processes == 3
    assert needed(1_000).nodes == 1


def test_slow_streams_are_limited_by_max_streams() -> None:
    assert needed(8_192, rate=0.01, events=30).processes == 2


@pytest.mark.parametrize("field", ["processes", "writes", "renewals", "database_connections"])
def test_ten_times_the_streams_need_about_ten_times_of_everything(field: str) -> None:
    ten, hundred = needed(10_000), needed(100_000)
    assert getattr(hundred, field) == pytest.approx(10 * getattr(ten, field), rel=0.05)


def test_short_response_is_written_once_and_a_long_one_twice() -> None:
    assert needed(300, rate=100.0, events=20).writes == pytest.approx(1_500)
    assert needed(300, rate=100.0, events=200).writes == pytest.approx(300)


def test_nothing_is_written_for_responses_that_are_not_stored() -> None:
    none = needed(1_000_000, stored=0.0)
    assert (none.writes, none.renewals, none.primaries, none.kept_tib) == (0, 0, 0, 0)


def test_node_with_more_streams_than_local_ports_needs_a_second_address() -> None:
    large = structs.replace(MACHINE, processors=512, memory_gib=512, gigabits=400)
    service = Service(streams=100_000, rate=1.0)
    assert need(service, MEASURED, large).node_addresses == 4


def test_limits_come_in_the_order_in_which_growth_reaches_them() -> None:
    found = limits(Service(streams=0), MEASURED, MACHINE)
    assert [each.streams for each in found] == sorted(each.streams for each in found)
    assert found[0].what == "one process, by its processor"


def test_limit_of_a_process_is_where_a_second_one_is_needed() -> None:
    most = limits(Service(streams=0), MEASURED, MACHINE)[0].streams
    assert needed(most).processes == 1
    assert needed(most + 2).processes == 2


def test_limit_of_a_primary_is_where_a_second_one_is_needed() -> None:
    found = limits(Service(streams=0), MEASURED, MACHINE)
    (most,) = (each.streams for each in found if each.what.startswith("one primary"))
    assert needed(most).primaries == 1
    assert needed(most + 2).primaries == 2


def test_median_of_rounds_is_taken_field_by_field() -> None:
    first = Point(
        streams=1,
        rate=1.0,
        delivered=1.0,
        cpu_us=1.0,
        busy=3.0,
        stream_kib=1.0,
        added_ms=1.0,
        added_p99_ms=1.0,
        first_byte_ms=1.0,
        first_byte_p99_ms=1.0,
    )
    points = [structs.replace(first, cpu_us=cost, busy=4 - cost) for cost in (1.0, 2.0, 3.0)]
    found = median_point([points[2], points[0], points[1]])
    assert (found.cpu_us, found.busy) == (2.0, 2.0)
