"""Where a conversation stands."""

from dragoman._json import Raw
from dragoman.model.parts import Call, Media, Opaque, Part, Result, Text
from dragoman.model.request import Request, Role, Turn
from dragoman.upstream.rehearsal.conversation import Situation, read_situation, text_of_result


def turn(role: Role, *parts: Part) -> Turn:
    return Turn(role=role, parts=parts)


def user(*texts: str) -> Turn:
    return turn("user", *(Text(text=text) for text in texts))


def call(call_id: str = "c", name: str = "f") -> Turn:
    return turn("assistant", Call(call_id=call_id, name=name, input="{}"))


def result(call_id: str = "c", text: str = "ok") -> Turn:
    return turn("tool", Result(call_id=call_id, content=(Text(text=text),)))


def situation(*turns: Turn) -> Situation:
    return read_situation(Request(turns=turns))


def test_last_words_of_the_user_count() -> None:
    assert situation(user("one"), turn("assistant", Text(text="x")), user("two")).said == "two"
    assert situation(user("one", "two")).said == "one\ntwo"
    assert situation().said == ""
    assert situation(turn("system", Text(text="be kind"))).said == ""


def test_context_that_a_client_adds_is_not_what_the_user_said() -> None:
    reminder = "<system-reminder>\nbe brief\n</system-reminder>"
    assert situation(user(reminder, "hello")).said == "hello"
    assert situation(user("hello"), user(reminder)).said == "hello"
    assert situation(user("<environment_context a='b'>x</environment_context>")).said.startswith(
        "<env"
    )
    assert situation(user("<b>bold</b> words")).said == "<b>bold</b> words"
    assert situation(user("  ")).said == "  "


def test_results_after_the_last_answer_are_fresh() -> None:
    found = situation(user("go"), call(), result(text="21C"))
    assert [(each.name, text_of_result(each.result)) for each in found.results] == [("f", "21C")]
    assert (found.said, found.rounds) == ("go", 1)


def test_results_that_were_answered_are_not_fresh() -> None:
    answered = turn("assistant", Text(text="done"))
    assert situation(user("go"), call(), result(), answered, user("more")).results == ()


def test_words_beside_results_do_not_make_them_old() -> None:
    found = situation(user("go"), call(), result(), user("by the way"))
    assert len(found.results) == 1
    assert (found.said, found.rounds) == ("go", 1)


def test_results_without_a_call_are_told_of_too() -> None:
    found = situation(result("unknown"))
    assert [each.name for each in found.results] == ["the tool"]
    assert situation(result("unknown"), user("well?")).said == "well?"


def test_rounds_are_counted_since_the_user_spoke() -> None:
    rounds = (call("a"), result("a"), result("b"), call("c"), result("c"))
    assert situation(user("go"), *rounds).rounds == 2
    assert situation(*rounds, user("again"), call("d"), result("d")).rounds == 1


def test_results_of_providers_are_not_the_clients() -> None:
    search = turn("assistant", Result(call_id="s", executor="provider"))
    assert situation(user("go"), search).results == ()
    assert situation(turn("tool", Result(call_id="s", executor="provider"))).results == ()


def test_media_is_counted_and_named() -> None:
    picture = Media(kind="image", media_type="image/png", data="aGk=")
    assert situation(turn("user", picture, Text(text="see"))).media == 1
    opaque = Opaque(dialect="messages", type="x", raw=Raw(b"{}"))
    told = text_of_result(Result(call_id="c", content=(Text(text="a"), picture, opaque)))
    assert told == "a\n[image image/png]\n[something that is no text]"
    assert text_of_result(Result(call_id="c", content=(Media(kind="file"),))) == "[file]"
