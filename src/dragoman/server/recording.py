"""What is written down of a request when its answer is over."""

from dragoman.server.answers import Answer
from dragoman.server.client import Client
from dragoman.server.hosted.serving import HostedAnswer
from dragoman.server.records import RequestRecord

__all__ = ("note_answer", "note_client")


def note_client(record: RequestRecord, client: Client, *, began: float, now: float) -> None:
    """Put what the client got, and when, into the record of its request."""
    record.status = client.status
    record.bytes_out = client.bytes_out
    record.duration_s = now - began
    if client.first_write is not None:
        record.first_byte_s = client.first_write - began


def note_answer(record: RequestRecord, answer: Answer | HostedAnswer) -> None:
    """Put what an answer amounted to into the record of its request."""
    tally = answer.tally
    if tally.call_count:
        record.call_count = tally.call_count
        record.call_names = tuple(tally.names)
    record.finish = tally.finish
    if tally.usage is not None:
        record.input_tokens = tally.usage.input
        record.output_tokens = tally.usage.output
    error = answer.unstored
    if error is not None:
        record.finish = "error"
    error = error or tally.error
    if error is not None:
        record.error_kind = error.kind
        record.error = error.message
    record.problems = answer.all_problems()
    if answer.contract is not None:
        record.contract = answer.contract.report()
