"""The mock and the load client of the benchmarks: figures are worth nothing if these are wrong."""

from collections.abc import Iterator
from pathlib import Path

import gateway_targets
import mock_answers
import pytest
from gateway_processes import Service
from load import Load, run_load, verify
from load_requests import PATHS, content_fault
from msgspec import structs

DIALECTS = tuple(PATHS)


@pytest.fixture(scope="module")
def mock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    service = gateway_targets.start_mock(tmp_path_factory.mktemp("mock"))
    yield service
    service.stop()


def join_frames(frames: list[mock_answers.Frame]) -> bytes:
    stamps: list[bytes] = []
    return b"".join(mock_answers.stamped(frame, stamps, 1_000_000_000) for frame in frames)


def test_model_name_says_how_to_answer() -> None:
    assert mock_answers.behaviour_of("responses-mock-p2.5-x60") == mock_answers.Behaviour(
        0.0025, 60
    )
    assert mock_answers.behaviour_of("mock-d50") == mock_answers.Behaviour(delay=0.05)
    assert mock_answers.behaviour_of("mock") == mock_answers.Behaviour()


@pytest.mark.parametrize("dialect", DIALECTS)
def test_stamped_stream_repeats_at_its_end_what_its_deltas_said(dialect: str) -> None:
    stream = join_frames(mock_answers.frames(dialect, 30, is_stamped=True))
    repeats = 5 if dialect == "responses" else 1  # deltas, text, part, item and response
    assert stream.count(b"@1000000000 ") == 20 * repeats
    assert b"@when" not in stream


@pytest.mark.parametrize("dialect", DIALECTS)
def test_stream_of_the_mock_has_no_fault(dialect: str) -> None:
    assert content_fault(dialect, join_frames(mock_answers.frames(dialect))) is None


@pytest.mark.parametrize("dialect", DIALECTS)
def test_stream_that_lost_an_event_has_a_fault(dialect: str) -> None:
    frames = mock_answers.frames(dialect)
    del frames[100]
    assert str(content_fault(dialect, join_frames(frames))).startswith("text:")


@pytest.mark.parametrize("dialect", DIALECTS)
def test_load_counts_every_event(dialect: str, mock: Service) -> None:
    load = Load(port=mock.port, dialect=dialect, connections=2, requests=4)
    figures = run_load(load, mock.pid)
    assert (figures.done, figures.failed) == (4, 0)
    assert figures.events == 4 * len(mock_answers.frames(dialect))
    assert figures.cpu_per_event > 0
    assert verify(load) is None


def test_paced_load_measures_latency(mock: Service) -> None:
    figures = run_load(Load(port=mock.port, model="mock-p1-x12", connections=1, requests=1))
    assert figures.done == 1
    assert 0 < figures.latency_us < 5_000_000


def test_held_load_measures_while_all_streams_run(mock: Service) -> None:
    load = Load(port=mock.port, model="mock-p50-x6000", connections=5, requests=5, hold=0.5)
    figures = run_load(structs.replace(load, probes=3), mock.pid)
    assert (figures.open_held, figures.failed, figures.done) == (5, 0, 0)
    assert figures.events > 0
    assert figures.cpu_per_event > 0
    assert figures.latency_p99_us >= figures.latency_us > 0
    assert figures.first_byte_p99_ms >= figures.first_byte_ms > 0


def test_held_load_reports_streams_that_do_not_open(mock: Service) -> None:
    load = Load(port=mock.port, path="/nowhere", connections=2, requests=2, hold=0.1, timeout=1.0)
    figures = run_load(load)
    assert figures.open_held < 2


def test_load_reports_a_server_that_is_not_there(tmp_path: Path) -> None:
    service = gateway_targets.start_mock(tmp_path)
    service.stop()
    figures = run_load(Load(port=service.port, requests=1))
    assert (figures.done, figures.failed) == (0, 1)
    assert figures.first_fault.startswith("cannot connect")


@pytest.mark.parametrize("text", ["chat:responses", "chat → responses", "chat->responses"])
def test_pair_is_read_in_each_spelling(text: str) -> None:
    assert str(gateway_targets.pair_of(text)) == "chat → responses"


def test_what_is_no_pair_is_refused() -> None:
    with pytest.raises(ValueError, match="expected door:upstream of chat, responses, messages"):
        gateway_targets.pair_of("chat")
