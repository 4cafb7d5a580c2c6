"""An upstream as a model: a request in, the events of its answer out, tried again only while nothing has come."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

import pytest
from msgspec import structs

from dragoman._json import Raw
from dragoman.config.settings import (
    PeerSettings,
    RetrySettings,
    Route,
    Settings,
    UpstreamSettings,
)
from dragoman.core.failures import ReportedError, error_info
from dragoman.core.fold import fold
from dragoman.core.grammar import is_grammatical
from dragoman.errors import GatewayError, RequestRefused
from dragoman.gateway import attempt
from dragoman.gateway.attempt import AttemptFailed, AttemptObserver, UpstreamModel, try_targets
from dragoman.gateway.peers import PeerOrder, PeerState
from dragoman.gateway.route import Upstreams
from dragoman.gateway.targets import AttemptTarget
from dragoman.model.events import Completed, Event, Failed, TextDelta
from dragoman.model.outcome import ErrorInfo, ErrorKind, Outcome
from dragoman.model.parts import Call, Text
from dragoman.model.request import Request, Turn
from dragoman.model.request import Tool as Declaration
from dragoman.testing import Chunk, Pause, ScriptedReply, ScriptedUpstream, Wait, json_reply, sse
from dragoman.upstream.retry import Decision, Failure
from vendor_wire import Answer, Said, Tool, body_bytes, stream

DIALECTS = ("chat", "responses", "messages")
QUICK = RetrySettings(base_delay=0.001, max_delay=0.002)
WEATHER = Declaration(name="get_weather", schema=Raw(b'{"type":"object","properties":{}}'))
LONG_NAME = "look_up_the_weather_of_a_city_by_its_name_and_by_the_day_of_the_week_that_is_meant"
ANSWER = Answer(
    (Said(("Let me ", "look.")), Tool("call_1", "get_weather", ('{"ci', 'ty":"Oslo"}')))
)


def asking(*tools: Declaration, stream: bool | None = None) -> Request:
    turns = (Turn(role="user", parts=(Text(text="What is the weather?"),)),)
    return Request(model="any", turns=turns, tools=tools or (WEATHER,), stream=stream)


def settings_of(url: str, dialect: str, **more: object) -> Settings:
    base = url if dialect == "messages" else f"{url}/v1"
    table: dict[str, object] = {"kind": dialect, "base_url": base, "api_key": "key", **more}
    upstream = UpstreamSettings(**table)  # type: ignore[arg-type]  # a table of settings, as an operator writes it
    return Settings(upstreams={"one": upstream}, retry=QUICK)


async def hear(model: UpstreamModel, request: Request) -> list[Event]:
    heard: list[Event] = []
    async with model.ask(request) as answer:
        async for events in answer:
            assert events, "a read that tells nothing is not told"
            heard += events
    return heard


def asked(
    dialect: str, replies: Sequence[ScriptedReply], request: Request | None = None, **more: object
) -> tuple[list[Event], ScriptedUpstream]:
    async def ask() -> tuple[list[Event], ScriptedUpstream]:
        async with (
            ScriptedUpstream(replies) as upstream,
            UpstreamModel.of(settings_of(upstream.url, dialect, **more)) as model,
        ):
            return await hear(model, request or asking()), upstream

    return asyncio.run(ask())


def folded(events: list[Event]) -> Outcome:
    assert is_grammatical(events)
    return fold(events)


@pytest.mark.parametrize("is_stream", [True, False])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_an_answer_is_returned_as_events_streamed_and_not(dialect: str, *, is_stream: bool) -> None:
    reply = sse(stream(dialect, ANSWER), cut_into="frames")
    if not is_stream:
        reply = json_reply(body_bytes(dialect, ANSWER))
    events, upstream = asked(dialect, [reply], asking(stream=is_stream))
    outcome = folded(events)
    text, call = outcome.choices[0].parts
    assert isinstance(text, Text)
    assert text.text == "Let me look."
    assert isinstance(call, Call)
    assert (call.call_id, call.name, call.input) == ("call_1", "get_weather", '{"city":"Oslo"}')
    assert outcome.choices[0].finish == "tool_calls"
    assert upstream.requests[0].json().get("stream", False) is is_stream


def test_a_request_that_does_not_say_is_streamed() -> None:
    _, upstream = asked("chat", [sse(stream("chat", ANSWER))])
    assert upstream.requests[0].json()["stream"] is True


@pytest.mark.parametrize("is_asked", [True, False])
def test_what_comes_instead_of_what_was_asked_for_is_understood(*, is_asked: bool) -> None:
    reply = json_reply(body_bytes("chat", ANSWER)) if is_asked else sse(stream("chat", ANSWER))
    events, _ = asked("chat", [reply], asking(stream=is_asked))
    assert folded(events).choices[0].finish == "tool_calls"


def test_a_stream_that_does_not_end_is_cut_at_the_limit_of_an_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(attempt, "MAX_ANSWER_BYTES", 20_000)
    whole = stream("chat", Answer((Said(("word ",) * 1000),)))
    events, _ = asked("chat", [sse(whole, cut_into="frames")])
    outcome = folded(events)
    assert outcome.error is not None
    assert outcome.error.message.startswith("expected an answer of at most ")
    (text,) = outcome.choices[0].parts
    assert isinstance(text, Text)
    assert 50 < len(text.text) < 5000


def test_names_are_those_of_the_request() -> None:
    async def ask() -> list[Event]:
        def script(request: object) -> ScriptedReply:
            wire = str(upstream.requests[0].at("tools", 0, "function", "name"))
            assert wire != LONG_NAME
            return sse(stream("chat", Answer((Tool("call_1", wire, ("{}",)),))))

        async with (
            ScriptedUpstream(script) as upstream,
            UpstreamModel.of(settings_of(upstream.url, "chat")) as model,
        ):
            return await hear(model, asking(Declaration(name=LONG_NAME, schema=WEATHER.schema)))

    (call,) = folded(asyncio.run(ask())).choices[0].parts
    assert isinstance(call, Call)
    assert call.name == LONG_NAME


def test_calls_that_are_written_as_text_are_calls() -> None:
    written = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
    events, _ = asked("chat", [sse(stream("chat", Answer((Said(tuple(written)),))))])
    (call,) = folded(events).choices[0].parts
    assert isinstance(call, Call)
    assert call.name == "get_weather"


def test_tools_of_a_model_without_tools_stand_in_the_prompt() -> None:
    written = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
    reply = sse(stream("chat", Answer((Said((written,)),))))
    events, upstream = asked("chat", [reply], prompted_tools="hermes")
    assert "tools" not in upstream.requests[0].json()
    (call,) = folded(events).choices[0].parts
    assert isinstance(call, Call)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_an_answer_that_breaks_off_ends_in_a_failure(dialect: str) -> None:
    whole = stream(dialect, ANSWER)
    half = whole[: whole.index(b"look.")]
    events, upstream = asked(dialect, [sse(half[: half.rindex(b"\n\n") + 2], cut=True)])
    assert is_grammatical(events)
    last = events[-1]
    assert isinstance(last, Failed)
    assert last.error.kind == "truncated"
    assert any(isinstance(event, TextDelta) for event in events)
    assert len(upstream.requests) == 1, "what has begun is not asked for again"


@pytest.mark.parametrize("formats", [("auto",), ()])
def test_a_connection_that_is_cut_ends_the_answer_in_a_failure(formats: tuple[str, ...]) -> None:
    first = stream("chat", ANSWER).split(b"\n\n")[0] + b"\n\n"
    reply = ScriptedReply(
        content_type="text/event-stream",
        chunks=[first],
        framing="length",
        declared_length=9999,
        cut=True,
    )
    events, _ = asked("chat", [reply], text_calls=formats)
    assert is_grammatical(events)
    assert isinstance(events[-1], Failed)
    assert events[-1].error.kind == "truncated"


def test_where_no_calls_are_looked_for_in_the_text_it_stays_text() -> None:
    written = '<tool_call>{"name": "get_weather", "arguments": {}}</tool_call>'
    reply = sse(stream("chat", Answer((Said((written,)),))), cut_into="frames")
    events, _ = asked("chat", [reply], text_calls=())
    (part,) = folded(events).choices[0].parts
    assert isinstance(part, Text)
    assert part.text == written


def test_what_comes_before_an_answer_is_waited_out() -> None:
    chunks: list[Chunk] = [b": hello\n\n", Pause(0.01), b": still here\n\n", stream("chat", ANSWER)]
    reply = ScriptedReply(content_type="text/event-stream", chunks=chunks)
    events, upstream = asked("chat", [reply])
    assert isinstance(events[-1], Completed)
    assert len(upstream.requests) == 1


def test_an_error_in_the_place_of_a_body_is_raised() -> None:
    with pytest.raises(ReportedError, match="no such thing"):
        asked("chat", [json_reply({"error": {"message": "no such thing", "code": 400}})])


def test_an_error_is_tried_again_before_anything_was_emitted() -> None:
    busy = json_reply({"error": {"message": "busy"}}, 503)
    events, upstream = asked("chat", [busy, busy, sse(stream("chat", ANSWER))])
    assert isinstance(events[-1], Completed)
    assert len(upstream.requests) == 3


def test_a_stream_that_fails_before_its_start_is_tried_again() -> None:
    failed = sse(b'data: {"error":{"message":"overloaded","type":"overloaded_error"}}\n\n')
    events, upstream = asked("chat", [failed, sse(stream("chat", ANSWER))])
    assert isinstance(events[-1], Completed)
    assert len(upstream.requests) == 2


def refused(dialect: str, *replies: ScriptedReply) -> GatewayError:
    with pytest.raises(GatewayError) as caught:
        asked(dialect, replies)
    return caught.value


def test_an_upstreams_error_is_reported_as_it_has_it() -> None:
    error = refused(
        "chat",
        json_reply(
            {"error": {"message": "too long", "type": "x", "code": "context_length_exceeded"}}, 400
        ),
    )
    assert isinstance(error, ReportedError)
    info = error_info(error)
    assert (info.kind, info.message, info.status) == ("context_length", "too long", 400)
    assert info.code == "context_length_exceeded"


def test_how_long_an_upstream_wants_to_be_left_alone_is_reported() -> None:
    busy = json_reply({"error": {"message": "slow down"}}, 429, headers={"retry-after": "77"})
    assert error_info(refused("chat", busy)).retry_after == 77


def test_nobody_there_is_an_error() -> None:
    async def ask() -> None:
        async with UpstreamModel.of(settings_of("http://127.0.0.1:1", "chat")) as model:
            await hear(model, asking())

    with pytest.raises(GatewayError) as caught:
        asyncio.run(ask())
    assert caught.value.kind == "upstream"


def test_a_model_that_no_route_takes_is_refused() -> None:
    settings = settings_of("http://127.0.0.1:1", "chat")
    routed = Settings(upstreams=settings.upstreams, routes=(Route(model="other", upstream="one"),))

    async def ask() -> None:
        async with UpstreamModel.of(routed) as model:
            await hear(model, asking())

    with pytest.raises(RequestRefused, match="no route takes the model"):
        asyncio.run(ask())


def test_the_next_upstream_is_asked_where_one_cannot_answer() -> None:
    async def ask() -> list[Event]:
        async with ScriptedUpstream([sse(stream("messages", ANSWER))]) as upstream:
            upstreams = {
                "gone": UpstreamSettings(kind="chat", base_url="http://127.0.0.1:1/v1"),
                "there": UpstreamSettings(kind="messages", base_url=upstream.url),
            }
            route = Route(model="*", upstream="gone", fallback=("there=other",))
            settings = Settings(upstreams=upstreams, routes=(route,), retry=QUICK)
            async with UpstreamModel.of(settings) as model:
                heard = await hear(model, asking())
            assert upstream.requests[0].json()["model"] == "other"
            return heard

    assert folded(asyncio.run(ask())).choices[0].finish == "tool_calls"


def leaving(
    leave: Callable[[UpstreamModel, ScriptedUpstream, asyncio.Event], Awaitable[None]],
) -> None:
    async def run() -> None:
        held = asyncio.Event()
        first = stream("chat", ANSWER).split(b"\n\n")[0] + b"\n\n"
        reply = ScriptedReply(content_type="text/event-stream", chunks=[first, Wait(held)])
        async with (
            ScriptedUpstream([reply]) as upstream,
            UpstreamModel.of(settings_of(upstream.url, "chat")) as model,
        ):
            await asyncio.wait_for(leave(model, upstream, held), 60)
            await upstream.until(lambda: upstream.requests[0].was_abandoned)

    asyncio.run(run())


def test_leaving_an_answer_closes_the_connection() -> None:
    async def leave(model: UpstreamModel, _: ScriptedUpstream, __: asyncio.Event) -> None:
        async with model.ask(asking()) as answer:
            async for _events in answer:
                break

    leaving(leave)


def test_a_cancelled_asker_closes_the_connection() -> None:
    async def leave(model: UpstreamModel, upstream: ScriptedUpstream, __: asyncio.Event) -> None:
        task = asyncio.create_task(hear(model, asking()))
        await upstream.until(lambda: upstream.requests and upstream.requests[0].sent)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    leaving(leave)


def test_a_connection_is_used_again_after_an_answer() -> None:
    async def ask() -> int:
        replies = [sse(stream("chat", ANSWER), cut_into="frames") for _ in range(3)]
        async with (
            ScriptedUpstream(replies) as upstream,
            UpstreamModel.of(settings_of(upstream.url, "chat")) as model,
        ):
            for _ in replies:
                await hear(model, asking())
            return upstream.connections

    assert asyncio.run(ask()) == 1


def test_calls_without_ids_get_others_in_every_answer() -> None:
    async def ask() -> set[str]:
        written = Answer((Said(('<tool_call>{"name":"get_weather","arguments":{}}</tool_call>',)),))
        replies = [sse(stream("chat", written)) for _ in range(2)]
        async with (
            ScriptedUpstream(replies) as upstream,
            UpstreamModel.of(settings_of(upstream.url, "chat")) as model,
        ):
            answers = [folded(await hear(model, asking())) for _ in replies]
        parts = [part for answer in answers for part in answer.choices[0].parts]
        return {part.call_id for part in parts if isinstance(part, Call)}

    assert len(asyncio.run(ask())) == 2


class Recorded(AttemptObserver):
    """Remembers which peers were tried, what was decided, and which began to rest."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def started(self, target: AttemptTarget) -> None:
        self.seen.append(target.peer)

    def failed(self, target: AttemptTarget, error: ErrorInfo, decision: Decision) -> None:
        self.seen.append(f"{target.peer} {error.kind} {type(decision).__name__}")

    def cooled(self, target: AttemptTarget, *, is_out: bool) -> None:
        self.seen.append(f"{target.peer} {'cools down' if is_out else 'is back'}")


def two_upstreams(*, peers: Sequence[str] = (), retry: RetrySettings = QUICK) -> Upstreams:
    """A route to `one`, perhaps with peers, then to `two`. The first peer is preferred."""
    upstream = UpstreamSettings(kind="chat", base_url="http://127.0.0.1:1/v1")
    one = upstream
    if peers:
        # The last ones have no weight, so the order of the peers is known.
        weights = [1.0, *[0.0] * (len(peers) - 1)]
        made = [
            PeerSettings(name=name, base_url="http://127.0.0.1:1/v1", weight=weight)
            for name, weight in zip(peers, weights, strict=True)
        ]
        one = UpstreamSettings(kind="chat", peers=tuple(made))
    return Upstreams(
        Settings(
            upstreams={"one": one, "two": upstream},
            routes=(Route(model="*", upstream="one", fallback=("two",)),),
            retry=retry,
        )
    )


Result = ErrorKind | Failure | None


def tried(
    kinds: Sequence[Result],
    *,
    is_forwarded: bool = False,
    upstreams: Upstreams | None = None,
) -> tuple[str, list[str]]:
    """What comes of attempts that fail with these kinds (None: the attempt succeeds), and what the observer saw."""
    using = two_upstreams() if upstreams is None else upstreams
    left = list(kinds)
    observer = Recorded()

    async def attempt(target: AttemptTarget) -> str:
        result = left.pop(0)
        if isinstance(result, Failure):
            raise AttemptFailed(ErrorInfo(kind=result.kind, message="failed"), result)
        if result is not None:
            raise AttemptFailed(ErrorInfo(kind=result, message=f"{target.upstream} failed"))
        return f"{target.peer} answered"

    async def run() -> str:
        try:
            return await try_targets(
                using,
                using.targets("chat", "m"),
                attempt,
                observer,
                key=lambda: b"",
                is_forwarded=lambda: is_forwarded,
            )
        except ReportedError as error:
            return error.info.message

    return asyncio.run(run()), observer.seen


def test_a_passing_failure_is_tried_again_at_the_same_upstream() -> None:
    assert tried(["overloaded", None]) == ("one answered", ["one", "one overloaded Retry", "one"])


def test_an_upstream_that_will_not_serve_is_followed_by_the_next() -> None:
    seen = ["one", "one authentication Fallback", "two"]
    assert tried(["authentication", None]) == ("two answered", seen)


def test_attempts_are_counted_for_each_upstream() -> None:
    kinds: list[Result] = ["overloaded"] * 6
    outcome, seen = tried(kinds)
    assert outcome == "two failed"
    assert seen.count("one") == seen.count("two") == 3
    assert seen[-1] == "two overloaded GiveUp"


def test_nothing_is_tried_again_once_something_was_forwarded() -> None:
    outcome, seen = tried(["overloaded"], is_forwarded=True)
    assert (outcome, seen) == ("one failed", ["one", "one overloaded GiveUp"])


def test_a_failed_peer_is_followed_by_another_at_once_and_then_by_the_fallback() -> None:
    kinds: list[Result] = ["overloaded"] * 3
    outcome, seen = tried(
        [*kinds, None], upstreams=two_upstreams(peers=("a", "b", "c"), retry=QUICK)
    )
    assert outcome == "two answered"
    assert seen == [
        *("one/a", "one/a overloaded OtherPeer"),
        *("one/b", "one/b overloaded OtherPeer"),
        *("one/c", "one/c overloaded Fallback", "two"),
    ]


def test_when_each_peer_has_failed_the_attempts_that_are_left_are_retries() -> None:
    kinds: list[Result] = ["overloaded"] * 3
    outcome, seen = tried([*kinds, None], upstreams=two_upstreams(peers=("a", "b")))
    assert outcome == "two answered"
    assert seen[::2] == ["one/a", "one/b", "one/a", "two"]
    assert seen[1::2] == [
        *("one/a overloaded OtherPeer", "one/b overloaded Retry", "one/a overloaded Fallback"),
    ]


def test_a_request_at_fault_reaches_no_other_peer() -> None:
    outcome, seen = tried(["invalid_request"], upstreams=two_upstreams(peers=("a", "b")))
    assert (outcome, seen) == ("one failed", ["one/a", "one/a invalid_request GiveUp"])


def test_no_other_peer_is_asked_once_something_was_forwarded() -> None:
    upstreams = two_upstreams(peers=("a", "b"))
    outcome, seen = tried(["overloaded"], is_forwarded=True, upstreams=upstreams)
    assert (outcome, seen) == ("one failed", ["one/a", "one/a overloaded GiveUp"])


def test_an_upstream_that_cools_down_is_passed_over_until_it_is_the_last_resort() -> None:
    lasting = structs.replace(QUICK, attempts=1, failures=1, cooldown=600.0)
    upstreams = two_upstreams(retry=lasting)
    first = ["one", "one cools down", "one overloaded Fallback", "two"]
    assert tried(["overloaded", None], upstreams=upstreams) == ("two answered", first)
    assert tried([None], upstreams=upstreams) == ("two answered", ["two"])
    # Both are down now: `one` is due first, so it is asked, and nobody else.
    outcome, seen = tried(["overloaded", None], upstreams=upstreams)
    assert (outcome, seen) == (
        "one answered",
        ["two", "two cools down", "two overloaded Fallback", "one"],
    )
    outcome, seen = tried(["overloaded"], upstreams=upstreams)
    assert (outcome, seen) == ("one failed", ["one", "one overloaded GiveUp"])


def test_without_fallbacks_an_upstream_that_cools_down_is_asked_as_before() -> None:
    lasting = structs.replace(QUICK, attempts=1, failures=1, cooldown=600.0)
    upstream = UpstreamSettings(kind="chat", base_url="http://127.0.0.1:1/v1")
    alone = Upstreams(Settings(upstreams={"one": upstream}, retry=lasting))
    assert tried(["server"], upstreams=alone)[0] == "one failed"
    assert tried([None], upstreams=alone) == ("one answered", ["one"])


def test_without_retries_peers_are_chosen_by_health_and_other_upstreams_never() -> None:
    single = structs.replace(QUICK, enabled=False, failures=1, cooldown=600.0)
    upstreams = two_upstreams(peers=("a", "b"), retry=single)
    seen = ["one/a", "one/a cools down", "one/a server GiveUp"]
    assert tried(["server"], upstreams=upstreams) == ("one failed", seen)
    assert tried(["server"], upstreams=upstreams)[1][0] == "one/b"
    assert tried([None], upstreams=upstreams) == ("one/a answered", ["one/a"])


def test_a_rate_limit_of_one_model_does_not_rest_the_others() -> None:
    upstreams = two_upstreams(retry=structs.replace(QUICK, attempts=1))
    limited = Failure(kind="rate_limit", status=429, retry_after=600.0)
    assert tried([limited, None], upstreams=upstreams)[0] == "two answered"
    assert tried([None], upstreams=upstreams) == ("two answered", ["two"])
    order = PeerOrder(upstreams.targets("chat", "other"), upstreams.health, lambda: b"")
    found = order.next(time.monotonic())
    assert found is not None
    assert found.peer == "one"


def test_a_probe_that_is_cancelled_lets_the_next_one_begin() -> None:
    upstreams = two_upstreams(retry=structs.replace(QUICK, attempts=1, failures=1, cooldown=1e-9))
    assert tried(["server", None], upstreams=upstreams)[0] == "two answered"
    health = upstreams.health["one"]

    async def cancelled() -> None:
        began = asyncio.Event()

        async def attempt(target: AttemptTarget) -> None:
            began.set()
            await asyncio.Event().wait()

        targets = upstreams.targets("chat", "m")
        asking = asyncio.create_task(
            try_targets(upstreams, targets, attempt, AttemptObserver(), key=lambda: b"")
        )
        await began.wait()
        assert health.report(time.monotonic()).state is PeerState.PROBING
        assert not health.is_ready("m", time.monotonic())
        asking.cancel()
        with suppress(asyncio.CancelledError):
            await asking

    asyncio.run(cancelled())
    assert health.is_ready("m", time.monotonic())


def test_the_health_of_what_did_not_change_survives_a_reload() -> None:
    before = two_upstreams(peers=("a", "b"), retry=structs.replace(QUICK, failures=1))
    tried(["server", None], upstreams=before)
    settings = before.settings
    one = settings.upstreams["one"]
    moved = structs.replace(one.peers[1], base_url="http://127.0.0.1:2/v1")
    heavier = structs.replace(one.peers[0], weight=7.0)
    changed = structs.replace(one, peers=(heavier, moved))
    after = Upstreams(
        structs.replace(settings, upstreams={**settings.upstreams, "one": changed}), before=before
    )
    assert after.health["one/a"] is before.health["one/a"]
    assert after.by_name["one/a"] is before.by_name["one/a"]
    assert after.health["one/a"].is_out
    assert after.health["one/b"] is not before.health["one/b"]
    assert [target.weight for target in after.targets("chat", "m")] == [7.0, 0.0, 1.0]
