"""The section that is written: valid TOML whatever the upstream says, with the reasons, and without defaults."""

import json
import tomllib

from msgspec import structs

from dragoman.certify.report import CertifyReport, ProbeFinding, section, to_json
from dragoman.certify.run import with_values
from dragoman.config.settings import ModelLimits, UpstreamSettings

BASE = UpstreamSettings(kind="chat", base_url="http://127.0.0.1:1/v1", api_key_env="UP_KEY")


def report(settings: UpstreamSettings, reasons: dict[str, str], **more: object) -> CertifyReport:
    made = CertifyReport(
        model="m",
        settings=settings,
        findings=(),
        reasons=reasons,
        suggestions={},
        asked=1,
        input_tokens=2,
        output_tokens=3,
    )
    return structs.replace(made, **more)


def test_each_setting_stands_below_its_reason() -> None:
    settings = with_values(
        "up",
        BASE,
        {"never_stream": True, "limits.max_tools": 16, "losses.reasoning_history": "drop"},
    )
    assert settings is not None
    reasons = {"never_stream": "why 1", "limits.max_tools": "why 2", "losses.reasoning_history": "why 3"}  # fmt: skip
    assert section("up", report(settings, reasons)) == (
        "# Found by `dragoman certify`, with the model m.\n"
        "[upstreams.up]\n"
        'kind = "chat"\n'
        'base_url = "http://127.0.0.1:1/v1"\n'
        'api_key_env = "UP_KEY"\n'
        "# why 1\n"
        "never_stream = true\n"
        "\n"
        "[upstreams.up.limits]\n"
        "# why 2\n"
        "max_tools = 16\n"
        "\n"
        "[upstreams.up.losses]\n"
        "# why 3\n"
        'reasoning_history = "drop"\n'
    )


def test_a_hostile_message_stays_a_comment() -> None:
    evil = (
        "x\nprompted_tools = 'hermes'\r\n\x00\x1b[2J\x7f\u2028\u0085 [upstreams.evil] \ud800"
        + "y" * 3000
    )
    settings = UpstreamSettings(kind="chat", base_url="http://h/v1", never_stream=True)
    text = section("up", report(settings, {"never_stream": evil}, model=evil))
    assert tomllib.loads(text) == {
        "upstreams": {"up": {"kind": "chat", "base_url": "http://h/v1", "never_stream": True}}
    }
    assert text.encode()


def test_an_odd_name_is_quoted() -> None:
    text = section("a.b", report(BASE, {}))
    assert "a.b" in tomllib.loads(text)["upstreams"]


def test_only_what_is_new_is_added_to_a_section_that_is_there() -> None:
    settings = UpstreamSettings(
        kind="chat", base_url="http://h/v1", api_key="secret-key", limits=ModelLimits(max_tools=3)
    )
    assert section("up", report(settings, {}), is_new=False) == ""
    text = section("up", report(settings, {"limits.max_tools": "why"}), is_new=False)
    assert tomllib.loads(text) == {"upstreams": {"up": {"limits": {"max_tools": 3}}}}
    assert "secret-key" not in text


def test_secrets_in_reasons_are_hidden() -> None:
    settings = UpstreamSettings(kind="chat", base_url="http://h/v1", never_stream=True)
    text = section(
        "up",
        report(settings, {"never_stream": "bad key sk-1"}),
        hide=lambda said: said.replace("sk-1", "[redacted]"),
    )
    assert "sk-1" not in text
    assert "[redacted]" in text


def test_values_that_contradict_one_another_are_no_settings() -> None:
    assert with_values("up", BASE, {"never_stream": True, "always_stream": True}) is None
    assert with_values("up", BASE, {"prompted_tools": "no-such-format"}) is None


def test_the_json_has_findings_settings_and_section() -> None:
    finding = ProbeFinding(name="x", title="X", status="setting", settings={"never_stream": True})
    settings = UpstreamSettings(kind="chat", base_url="http://h/v1", never_stream=True)
    made = report(settings, {"never_stream": "why"}, findings=(finding,))
    found = json.loads(to_json("up", made, section("up", made)))
    assert found["findings"] == [
        {"name": "x", "title": "X", "status": "setting", "detail": "", "settings": {"never_stream": True}}
    ]  # fmt: skip
    assert found["settings"] == {"never_stream": True}
    assert found["is_clean"] is False
    assert tomllib.loads(found["section"])["upstreams"]["up"]["never_stream"] is True
