"""Which upstream a model goes to."""

import pytest

from dragoman.config.settings import Route, Settings, UpstreamSettings
from dragoman.core.failures import error_info
from dragoman.errors import RequestRefused
from dragoman.gateway.route import Candidate, Router, Upstreams
from dragoman.obsidian.settings import ChatSettings

LOCAL = UpstreamSettings(kind="chat", base_url="http://127.0.0.1:1/v1")


def settings(*routes: Route, upstreams: tuple[str, ...] = ("local", "other")) -> Settings:
    return Settings(upstreams=dict.fromkeys(upstreams, LOCAL), routes=routes)


def test_the_first_route_that_matches_is_taken() -> None:
    router = Router(
        settings(
            Route(model="claude-*", upstream="local"),
            Route(model="claude-opus", upstream="other"),
            Route(model="*", upstream="other"),
        )
    )
    assert router.candidates("claude-opus") == (Candidate("local", "claude-opus"),)
    assert router.candidates("gpt-5") == (Candidate("other", "gpt-5"),)


def test_a_glob_is_matched_whole_and_by_case() -> None:
    router = Router(
        settings(Route(model="gpt-?", upstream="local"), Route(model="*", upstream="other"))
    )
    assert [
        router.candidates(name)[0].upstream for name in ("gpt-5", "GPT-5", "gpt-5.5", "a-gpt-5")
    ] == [
        "local",
        "other",
        "other",
        "other",
    ]


def test_a_request_that_names_no_model_is_refused() -> None:
    router = Router(settings(Route(model="*", upstream="local")))
    with pytest.raises(RequestRefused, match="model: expected the name of a model") as refused:
        router.candidates("")
    assert (refused.value.param, refused.value.code) == ("model", "missing_field")


@pytest.mark.parametrize("model", ["two\nlines", "modell-ü", "x" * 10_000])
def test_a_star_takes_any_name(model: str) -> None:
    assert Router(settings(Route(model="*", upstream="local"))).candidates(model) == (
        Candidate("local", model),
    )


def test_a_renamed_model_is_asked_for_by_its_new_name_everywhere() -> None:
    route = Route(
        model="claude-*", upstream="local", upstream_model="qwen3-coder", fallback=("other",)
    )
    assert Router(settings(route)).candidates("claude-x") == (
        Candidate("local", "qwen3-coder"),
        Candidate("other", "qwen3-coder"),
    )


def test_a_fallback_may_name_its_own_model() -> None:
    route = Route(model="*", upstream="local", fallback=("other=org/gpt-5=x", "local=small"))
    assert Router(settings(route)).candidates("m") == (
        Candidate("local", "m"),
        Candidate("other", "org/gpt-5=x"),
        Candidate("local", "small"),
    )


def test_without_routes_everything_goes_to_the_only_upstream() -> None:
    assert Router(settings(upstreams=("local",))).candidates("m") == (Candidate("local", "m"),)


def test_an_unknown_model_is_not_found_and_the_error_lists_the_known_ones() -> None:
    router = Router(
        settings(Route(model="gpt-*", upstream="local"), Route(model="o3", upstream="local"))
    )
    with pytest.raises(RequestRefused) as caught:
        router.candidates("claude-x")
    info = error_info(caught.value)
    assert (info.kind, info.status, info.code, info.param) == (
        "not_found",
        404,
        "model_not_found",
        "model",
    )
    assert info.message == (
        "no route takes the model 'claude-x'; the models routed here are: gpt-*, o3"
    )


def test_several_upstreams_without_routes_take_nothing() -> None:
    with pytest.raises(RequestRefused, match="the models routed here are: none"):
        Router(settings()).candidates("m")


def test_the_message_about_an_unknown_model_stays_short() -> None:
    routes = [Route(model=f"model-{number}", upstream="local") for number in range(100)]
    with pytest.raises(RequestRefused) as caught:
        Router(settings(*routes)).candidates("x" * 1_000_000)
    assert len(caught.value.message) < 600
    assert caught.value.message.endswith(" and 80 more")


def reached(chat: ChatSettings | None = None) -> Upstreams:
    upstream = UpstreamSettings(kind="chat", base_url="http://127.0.0.1:1/v1")
    return Upstreams(Settings(upstreams={"one": upstream}, chat=chat or ChatSettings()))


def test_targets_are_remembered_within_a_bound() -> None:
    upstreams = reached()
    assert upstreams.targets("chat", "m") is upstreams.targets("chat", "m")
    for number in range(5000):
        upstreams.targets("chat", f"name-{number}")
    upstreams.targets("chat", "x" * 1_000_000)
    cached = upstreams._cached  # pyright: ignore[reportPrivateUsage]
    assert len(cached) <= 1024
    assert max(len(model) for _, model in cached) < 1000


def test_targets_differ_by_the_clients_dialect_and_the_model() -> None:
    upstreams = reached()
    (same,), (other,) = upstreams.targets("chat", "m"), upstreams.targets("responses", "m")
    assert (same.is_same_dialect, other.is_same_dialect) == (True, False)
    assert same.dialect == other.dialect == "chat"
    assert upstreams.targets("chat", "n")[0].model == "n"


def test_an_obsidian_policy_is_for_chat_clients_only() -> None:
    upstreams = reached(ChatSettings(output_mode="obsidian-xml"))
    assert upstreams.targets("chat", "m")[0].is_obsidian
    assert not upstreams.targets("responses", "m")[0].is_obsidian
    assert not reached().targets("chat", "m")[0].is_obsidian
