"""Ways of attempts: what is known of them before a request is, found once."""

from dragoman.server.doors import DOORS
from dragoman.server.routing import Attempt
from dragoman.server.settings import ChatSettings, Settings
from dragoman.server.upstreams import make_upstream
from dragoman.server.ways import Ways
from dragoman.upstream.settings import UpstreamSettings

CHAT, RESPONSES = DOORS["/v1/chat/completions"], DOORS["/v1/responses"]
UPSTREAM = UpstreamSettings(kind="chat", base_url="http://127.0.0.1:1/v1")


def ways(chat: ChatSettings | None = None) -> Ways:
    settings = Settings(upstreams={"one": UPSTREAM}, chat=chat or ChatSettings())
    return Ways(settings, {"one": make_upstream("one", UPSTREAM)})


def test_the_same_way_is_found_once() -> None:
    known = ways()
    assert known.find(CHAT, Attempt("one", "m")) is known.find(CHAT, Attempt("one", "m"))


def test_ways_differ_by_door_and_model() -> None:
    known = ways()
    same = known.find(CHAT, Attempt("one", "m"))
    other = known.find(RESPONSES, Attempt("one", "m"))
    assert (same.is_same, other.is_same) == (True, False)
    assert same.dialect == other.dialect == "chat"
    assert known.find(CHAT, Attempt("one", "n")).attempt.model == "n"


def test_only_the_chat_door_has_a_contract() -> None:
    known = ways(ChatSettings(output_mode="obsidian-xml"))
    assert known.find(CHAT, Attempt("one", "m")).is_contracted
    assert not known.find(RESPONSES, Attempt("one", "m")).is_contracted
    assert not ways().find(CHAT, Attempt("one", "m")).is_contracted
