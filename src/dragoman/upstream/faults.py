"""The ways in which a server can fail to answer, as errors: one place for their words, kinds and statuses.

Messages name the upstream as its operator does and say which time ran out. They never quote a header, a query or an
address with credentials.
"""

from dragoman.errors import UpstreamError

__all__ = (
    "cut_short",
    "gone_silent",
    "gone_without_answer",
    "no_answer",
    "no_connection",
    "not_http",
    "unreachable",
)


def unreachable(name: str, cause: str) -> UpstreamError:
    return UpstreamError(f"upstream {name!r} cannot be reached: {cause}")


def no_connection(name: str, seconds: float) -> UpstreamError:
    return _of_kind("timeout", f"upstream {name!r} gave no connection within {seconds:g} s", 504)


def no_answer(name: str, seconds: float) -> UpstreamError:
    return _of_kind("timeout", f"upstream {name!r} began no answer within {seconds:g} s", 504)


def gone_silent(name: str, seconds: float) -> UpstreamError:
    return _of_kind("timeout", f"upstream {name!r} sent nothing for {seconds:g} s", 504)


def gone_without_answer(name: str) -> UpstreamError:
    return UpstreamError(f"upstream {name!r} closed the connection without an answer")


def cut_short(name: str, cause: str) -> UpstreamError:
    return _of_kind("truncated", f"upstream {name!r} cut its answer short: {cause}")


def not_http(name: str, cause: str) -> UpstreamError:
    return _of_kind("protocol", f"upstream {name!r} did not answer in HTTP: {cause}")


def _of_kind(kind: str, message: str, status: int = 502) -> UpstreamError:
    error = UpstreamError(message)
    error.kind = kind
    error.status = status
    return error
