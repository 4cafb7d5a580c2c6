"""The page on the engine says what the code does, and its program runs."""

import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

from msgspec import structs

from dragoman.engine.events import RunEnd
from dragoman.engine.settings import EngineSettings

PAGE = (Path(__file__).parents[2] / "docs" / "engine.md").read_text(encoding="utf-8")


def test_program_of_the_page_runs_without_a_key(tmp_path: Path) -> None:
    (code,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=60,
        check=False,
        cwd=tmp_path,
        env={"PATH": ""},
    )
    assert done.returncode == 0, done.stderr
    assert 'weather {"city":"Oslo"}: done' in done.stdout
    assert "answered after 2 answers" in done.stdout


def test_every_setting_and_every_end_is_listed() -> None:
    found = set(re.findall(r"`(\w+)`", PAGE))
    assert {field.name for field in structs.fields(EngineSettings)} <= found
    assert set(get_args(RunEnd)) <= found
