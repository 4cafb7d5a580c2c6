"""An upstream that gives the same id to several responses: they pass as they come, and the id names the newest."""

from pathlib import Path

import pytest
from sdk_clients import openai_client
from stage import running_stage
from vendor_wire import Answer, Said

from dragoman.store.settings import StoreSettings

FIRST = Answer((Said(("The ", "first.")),))
SECOND = Answer((Said(("The ", "second.")),))


@pytest.mark.parametrize("engine", ["memory", "sqlite"])
@pytest.mark.parametrize("key", ["key-of-the-client", "another"])
def test_an_id_names_the_newest_response_of_its_caller(
    engine: str, key: str, tmp_path: Path
) -> None:
    url = "memory:" if engine == "memory" else f"sqlite://{tmp_path / 'store.db'}"
    with running_stage(store=StoreSettings(url=url)) as stage:
        scene = stage.scene("responses", FIRST, SECOND)
        own, other = openai_client(stage.url), openai_client(stage.url, key)
        first = own.responses.create(model=scene.model, input="one")
        second = other.responses.create(model=scene.model, input="two")
        assert second.id == first.id
        assert other.responses.retrieve(first.id).output_text == "The second."
        kept = "The second." if key == "key-of-the-client" else "The first."
        assert own.responses.retrieve(first.id).output_text == kept
