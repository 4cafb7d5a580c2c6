"""Laws of conversations: what is listed is what was added, whatever the pages, and the model gets exactly that, in order."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman._json import Raw
from dragoman.config.settings import StoreSettings
from dragoman.dialects.responses.conversations import NewItems, complete, read_input, read_items
from dragoman.dialects.responses.turns import read_history
from dragoman.store.engine_store import Store, open_store
from dragoman.store.records import ConversationItem, NewConversation

T = TypeVar("T")

TEXTS = st.text(max_size=20)
IDS = st.text(st.sampled_from("abcdef0123456789"), min_size=1, max_size=8)


def _message(role: str, text: str, number: str | None) -> dict[str, Any]:
    fields = {"type": "message", "role": role, "content": text}
    return fields if number is None else {**fields, "id": f"msg_{number}"}


def _call(number: str, text: str) -> dict[str, Any]:
    arguments = json.dumps({"a": text})
    return {
        "type": "function_call",
        "call_id": f"call_{number}",
        "name": "f",
        "arguments": arguments,
    }


def _output(number: str, text: str) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": f"call_{number}", "output": text}


def _other(name: str, text: str) -> dict[str, Any]:
    return {"type": f"vendor_{name}", "x": text}


ROLES = st.sampled_from(["user", "system", "developer", "assistant"])
ITEMS: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.builds(_message, ROLES, TEXTS, st.none() | IDS),
    st.builds(_call, IDS, TEXTS),
    st.builds(_output, IDS, TEXTS),
    st.builds(_other, IDS, TEXTS),
)


def raws(items: list[dict[str, Any]]) -> NewItems:
    return NewItems(tuple([Raw(json.dumps(item).encode()) for item in items]), "input")


def on_a_store(work: Callable[[Store], Awaitable[T]]) -> T:
    async def main() -> T:
        store = await open_store(StoreSettings(url="memory:"))
        try:
            return await work(store)
        finally:
            await store.close()

    return asyncio.run(main())


@given(st.lists(st.lists(ITEMS, max_size=5), max_size=5), st.integers(1, 7), st.booleans())
@settings(deadline=None)
def test_items_listed_are_items_added_whatever_the_pages(
    batches: list[list[dict[str, Any]]], limit: int, is_descending: bool
) -> None:
    async def work(store: Store) -> None:
        await store.conversations.create(NewConversation(id="c", owner="o", created=0.0))
        added: list[ConversationItem] = []
        taken: set[str] = set()
        for number, batch in enumerate(batches):
            made = complete(raws(batch), f"seed {number}")
            names = [item.id for item in made]
            if len(set(names)) < len(names) or taken & set(names):
                continue  # the store refuses these, as its contract tests show
            new = tuple([ConversationItem(item.id, item.data) for item in made])
            await store.conversations.add("o", "c", new)
            added += new
            taken |= set(names)
        found: list[ConversationItem] = []
        page = await store.conversations.page("o", "c", limit=limit, is_descending=is_descending)
        found += page.items
        while page.more:
            after = found[-1].id
            page = await store.conversations.page(
                "o", "c", after=after, limit=limit, is_descending=is_descending
            )
            found += page.items
        assert found == (added[::-1] if is_descending else added)
        assert list(await store.conversations.items("o", "c")) == added

    on_a_store(work)


@given(st.lists(ITEMS, max_size=8))
@settings(deadline=None)
def test_the_model_gets_exactly_the_items_in_order(items: list[dict[str, Any]]) -> None:
    """Stored and read again, items say what they said: only ids, and a status, are added."""
    made = complete(raws(items), "seed")
    again = read_items([item.data for item in made])
    sent = read_history(Raw(json.dumps(items).encode()))
    assert [item.turn for item in made] == list(again.turns)
    assert len(again.turns) == len(items)
    for before, after, item in zip(sent.turns, again.turns, made, strict=True):
        assert (after.role, len(after.parts)) == (before.role, len(before.parts))
        fields = json.loads(item.data)
        assert fields["id"] == item.id
    for given_item, item in zip(items, made, strict=True):
        fields = json.loads(item.data)
        if given_item["type"] == "message":
            assert [part["text"] for part in fields["content"]] == [given_item["content"]]
        else:
            assert {name: fields[name] for name in given_item} == given_item
        assert fields["id"] == given_item.get("id", fields["id"])
    # What is stored is complete: storing it again changes nothing.
    stored = NewItems(tuple([Raw(item.data) for item in made]), "input")
    assert [item.data for item in complete(stored, "another seed")] == [item.data for item in made]


@given(st.lists(ITEMS, max_size=5) | TEXTS)
@settings(deadline=None)
def test_the_input_of_a_request_is_read_item_by_item(value: Any) -> None:
    body = json.dumps({"model": "m", "input": value}).encode()
    sent = read_input(body)
    assert len(sent.entries) == (1 if isinstance(value, str) else len(value))
    if isinstance(value, str):
        assert json.loads(bytes(sent.entries[0]))["content"] == value
    else:
        assert [json.loads(bytes(entry)) for entry in sent.entries] == value
