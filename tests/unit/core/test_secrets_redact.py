"""What may be shown of headers and text."""

import pytest

from dragoman.core.secrets import HIDDEN, clean, redact


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("key sk-proj-abcdefgh12 was wrong", f"key {HIDDEN} was wrong"),
        ("sk-ant-api03-abcdefgh", HIDDEN),
        ("Authorization: Bearer abc.def", f"Authorization: {HIDDEN}"),
        ("got bearer abcd1234", f"got {HIDDEN}"),
        ('{"api_key": "hunter2", "model": "m"}', f'{{"api_key": {HIDDEN}, "model": "m"}}'),
        (
            '{"signature":"EqQB\\"x","type":"thinking"}',
            f'{{"signature":{HIDDEN},"type":"thinking"}}',
        ),
        ('{"encrypted_content":"gAAA cut', f'{{"encrypted_content":{HIDDEN}'),
        ("{'password': 'a b', 'n': 1}", f"{{'password': {HIDDEN}, 'n': 1}}"),
        ("?key=1&token=abc&x=2", f"?key=1&token={HIDDEN}&x=2"),
        ("AIzaSyA1234567890", HIDDEN),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln", HIDDEN),
        ("ghp_abcdefghij", HIDDEN),
        ("ghu_abcdefghij", HIDDEN),
        ("github_pat_abcdefghij", HIDDEN),
        ("npm_abcdefghij", HIDDEN),
        ("pypi-AgEabcdefghij", HIDDEN),
        ("ya29.abcdefghij", HIDDEN),
        ("key AKIAABCDEFGHIJKLMNOP was used", f"key {HIDDEN} was used"),
    ],
)
def test_credentials_and_seals_are_hidden(text: str, shown: str) -> None:
    result = redact(text)
    assert redact(result) == result
    for secret in ("abcdefgh", "abc.def", "hunter2", "EqQB", "gAAA", "a b", "SyA12", "c2ln"):
        assert secret not in result
    assert result == shown


@pytest.mark.parametrize(
    "text",
    [
        "the model asked for 12 tokens",
        "expected a key; none came",
        '{"max_tokens": 100, "model": "gpt-x"}',
        "risk-averse task-force",
        "asiapacificregion npm-install-something pypi-mirror-of-the-company",
        "expected a key as `Authorization: Bearer <key>` or as `x-api-key: <key>`",
    ],
)
def test_ordinary_words_are_left_alone(text: str) -> None:
    assert redact(text) == text


def test_redacting_takes_time_linear_in_the_text() -> None:
    redact('"token": "' + "\\" * 100_000)
    redact("sk-" * 50_000)
    redact("eyJaaaaaaaa." * 20_000)


def test_clean_text_is_the_very_object() -> None:
    text = "gpt-x/modèle"
    assert clean(text, 100) is text


def test_what_is_not_printable_is_escaped_and_what_is_long_is_cut() -> None:
    assert clean("a\nb\x1b\u2028\ud800", 100) == "a\\nb\\x1b\\u2028\\ud800"
    assert clean("abcdef", 3) == "abc…"
