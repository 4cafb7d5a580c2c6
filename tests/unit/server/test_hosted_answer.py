"""What a request may demand after the first answer, and how far one answer may go."""

from dragoman.config.settings import HostedSettings
from dragoman.model.request import Request, ToolChoice, ToolRef
from dragoman.server.hosted_answer import engine_settings, relaxed


def choice_after(choice: ToolChoice | None) -> ToolChoice | None:
    return relaxed(Request(tool_choice=choice)).tool_choice


def test_a_demand_for_a_call_holds_for_one_answer() -> None:
    auto = ToolChoice(mode="auto")
    assert choice_after(ToolChoice(mode="required")) == auto
    assert choice_after(ToolChoice(mode="tool", tool=ToolRef("f"))) == auto
    some = (ToolRef("f"),)
    left = choice_after(ToolChoice(mode="allowed", allowed=some, required=True))
    assert left == ToolChoice(mode="allowed", allowed=some)


def test_every_other_choice_stands() -> None:
    some = (ToolRef("f"),)
    for choice in (
        None,
        ToolChoice(mode="auto"),
        ToolChoice(mode="none"),
        ToolChoice(mode="allowed", allowed=some),
    ):
        request = Request(tool_choice=choice)
        assert relaxed(request) is request


def test_nothing_is_asked_again_or_summed_up() -> None:
    settings = engine_settings(HostedSettings(max_turns=3, max_seconds=7.0, max_parallel=2))
    assert (settings.max_turns, settings.max_seconds, settings.max_parallel) == (3, 7.0, 2)
    assert settings.retries == 0
    assert settings.compaction is None
