"""Which upstream a model goes to."""

import pytest

from dragoman.core.failures import error_info
from dragoman.errors import RequestRefused
from dragoman.server.routing import Attempt, Router, plan
from dragoman.server.settings import Settings
from dragoman.upstream.settings import Route, UpstreamSettings

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
    assert router.plan("claude-opus") == (Attempt("local", "claude-opus"),)
    assert router.plan("gpt-5") == (Attempt("other", "gpt-5"),)


def test_a_glob_is_matched_whole_and_by_case() -> None:
    router = Router(
        settings(Route(model="gpt-?", upstream="local"), Route(model="*", upstream="other"))
    )
    assert [router.plan(name)[0].upstream for name in ("gpt-5", "GPT-5", "gpt-5.5", "a-gpt-5")] == [
        "local",
        "other",
        "other",
        "other",
    ]


@pytest.mark.parametrize("model", ["two\nlines", "", "modell-ü", "x" * 10_000])
def test_a_star_takes_any_name(model: str) -> None:
    assert Router(settings(Route(model="*", upstream="local"))).plan(model) == (
        Attempt("local", model),
    )


def test_a_renamed_model_is_asked_for_by_its_new_name_everywhere() -> None:
    route = Route(
        model="claude-*", upstream="local", upstream_model="qwen3-coder", fallback=("other",)
    )
    assert plan(settings(route), "claude-x") == (
        Attempt("local", "qwen3-coder"),
        Attempt("other", "qwen3-coder"),
    )


def test_a_fallback_may_name_its_own_model() -> None:
    route = Route(model="*", upstream="local", fallback=("other=org/gpt-5=x", "local=small"))
    assert plan(settings(route), "m") == (
        Attempt("local", "m"),
        Attempt("other", "org/gpt-5=x"),
        Attempt("local", "small"),
    )


def test_without_routes_everything_goes_to_the_only_upstream() -> None:
    assert plan(settings(upstreams=("local",)), "m") == (Attempt("local", "m"),)


def test_an_unknown_model_is_not_found_and_told_what_there_is() -> None:
    router = Router(
        settings(Route(model="gpt-*", upstream="local"), Route(model="o3", upstream="local"))
    )
    with pytest.raises(RequestRefused) as caught:
        router.plan("claude-x")
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
        plan(settings(), "m")


def test_the_message_about_an_unknown_model_stays_short() -> None:
    routes = [Route(model=f"model-{number}", upstream="local") for number in range(100)]
    with pytest.raises(RequestRefused) as caught:
        plan(settings(*routes), "x" * 1_000_000)
    assert len(caught.value.message) < 600
    assert caught.value.message.endswith(" and 80 more")


def test_plans_are_remembered_within_a_bound() -> None:
    router = Router(settings(Route(model="*", upstream="local")))
    assert router.plan("m") is router.plan("m")
    for number in range(5000):
        router.plan(f"name-{number}")
    router.plan("x" * 1_000_000)
    remembered = router._remembered.cache_info()  # pyright: ignore[reportPrivateUsage]
    assert remembered.currsize == remembered.maxsize == 1024
