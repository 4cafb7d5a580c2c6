"""An upstream with an obedient model, for `dragoman certify`: it does what the probes ask for, and has the defects that a test gives it.

refuses     rules: each gets the request, and returns the message of a 400, or None
spoils      changes the bytes of a stream; spoils_body: changes a body
writes      writes calls as text, in some format, in place of structured calls
ignores     the tools never reach the model, as with a template that drops them
window      how many characters at the end of the conversation the model sees
"""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, cast

from msgspec import Struct

from dragoman.testing import ReceivedRequest, ScriptedReply, json_reply, sse
from vendor_errors import error_body
from vendor_wire import Answer, Said, Tool, body_bytes, stream

Json = dict[str, Any]
Refusal = Callable[[Json], str | None]

PATHS = {"chat": "/chat/completions", "responses": "/responses", "messages": "/messages"}
WORD = re.compile(r"walnut-\d+")


def hermes(name: str, arguments: str) -> str:
    return f'<tool_call>{{"name": "{name}", "arguments": {arguments}}}</tool_call>'


class CertifiedModel(Struct, kw_only=True):
    """Called with each request; the script of a `ScriptedUpstream`."""

    dialect: str = "chat"
    model: str = "small-model"
    refuses: tuple[Refusal, ...] = ()
    spoils: Callable[[bytes], bytes] | None = None
    spoils_body: Callable[[Json], Json] | None = None
    writes: Callable[[str, str], str] | None = None
    ignores: bool = False
    obeys: bool = True
    window: int | None = None
    status: int = 400
    lists: bool = True
    also: tuple[str, ...] = ()

    def __call__(self, request: ReceivedRequest) -> ScriptedReply:
        if request.path.endswith("/models"):
            known: Json = {"data": [{"id": self.model}]} if self.lists else {"data": []}
            return json_reply(known)
        dialect = next((one for one, path in PATHS.items() if request.path.endswith(path)), "")
        if dialect not in (self.dialect, *self.also) or request.method != "POST":
            return json_reply({"detail": "Not Found"}, 404)
        body: Json = json.loads(request.body)
        for rule in self.refuses:
            message = rule(body)
            if message is not None:
                return json_reply(error_body(dialect, self.status, message), self.status)
        if body["model"] != self.model:
            return json_reply(error_body(dialect, 404, f"no model {body['model']}"), 404)
        answer = self.answer(dialect, body)
        if body.get("stream"):
            data = stream(dialect, answer)
            return sse(data if self.spoils is None else self.spoils(data))
        whole = json.loads(body_bytes(dialect, answer))
        return json_reply(whole if self.spoils_body is None else self.spoils_body(whole))

    def answer(self, dialect: str, body: Json) -> Answer:
        calls, text = decide(dialect, body, is_blind=self.ignores, window=self.window)
        if calls and not self.obeys:
            calls, text = [], "I would rather talk."
        if calls and (self.writes is not None or calls[0].call_id == "written"):
            write = self.writes or hermes
            written = "\n".join(write(call.name, call.arguments) for call in calls)
            return Answer((Said((written[:7], written[7:])),))
        return Answer(tuple(calls) or (Said((text[:2], text[2:])),))


def payloads(data: bytes, change: Callable[[Json], Iterator[Json]]) -> bytes:
    """A Chat stream with each chunk replaced."""
    out: list[bytes] = []
    for frame in data.split(b"\n\n"):
        text = frame.removeprefix(b"data: ")
        if not text.startswith(b"{"):
            out.append(frame)
            continue
        out += [b"data: " + json.dumps(each).encode() for each in change(json.loads(text))]
    return b"\n\n".join(out)


# --- what the model does ----------------------------------------------------------------------------------------------


def texts(dialect: str, body: Json) -> list[tuple[str, str]]:
    """Role and text of everything that the model reads, in order. Results have the role `tool`."""
    heads = (body.get(key) for key in ("system", "instructions"))
    found = [("system", _text(head)) for head in heads if head]
    for item in body["input" if dialect == "responses" else "messages"]:
        role = item.get("role", "tool")
        content = item.get("content", item.get("output"))
        if isinstance(content, list):
            parts = cast("list[Json]", content)
            results = [part for part in parts if part.get("type") == "tool_result"]
            found += [("tool", _text(part.get("content"))) for part in results]
            content = [part for part in parts if part.get("type") != "tool_result"]
        found.append((role, _text(content)))
    return found


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(part.get("text") or "" for part in content or ())


def tools_of(body: Json) -> Iterator[tuple[str, str | None, bool]]:
    """Name, namespace and whether it is a free-form tool."""
    for tool in body.get("tools") or ():
        if tool.get("type") == "namespace":
            for inner in tool["tools"]:
                yield inner["name"], tool["name"], False
        else:
            kind = tool.get("type", "function")
            inner = tool.get("function") or tool.get("custom") or tool
            if "name" in inner:
                yield inner["name"], None, kind == "custom"


def decide(
    dialect: str, body: Json, *, is_blind: bool, window: int | None
) -> tuple[list[Tool], str]:
    """The calls that the conversation asks for, or the text."""
    said = texts(dialect, body)
    # A question may stand behind results that the gateway wrote into the prompt.
    users = [
        text.rpartition("</tool_response>")[2].strip() for role, text in said if role == "user"
    ]
    asked = next((text for text in reversed(users) if text), "")
    everything = "\n".join(text for _, text in said)
    everything = everything if window is None else everything[max(0, len(everything) - window) :]
    if "name of the station" in asked or "Which file" in asked:
        results = [text for role, text in said if role == "tool" or "<tool_response>" in text]
        found = WORD.findall("\n".join(results))
        return [], found[-1] if found else "I do not know."
    if "alpha beta gamma delta" in asked:
        stops = body.get("stop") or body.get("stop_sequences")
        return [], "alpha beta " if stops else "alpha beta gamma delta"
    if '{"word": "ready"}' in asked:
        return [], '{"word": "ready"}'
    if "Which colour" in json.dumps(body):
        return [], "Red."
    offered: list[tuple[str, str | None, bool]] = [] if is_blind else [*tools_of(body)]
    is_prompted = not offered and "<tools>" in everything
    if is_prompted:
        names = re.findall(r'"name": ?"([^"]+)"', everything)
        offered = [(name, None, False) for name in names]
    if not offered or "none" in json.dumps(body.get("tool_choice")):
        return [], "ready"
    return _calls(body, asked, everything, offered, is_prompted=is_prompted)


def _calls(
    body: Json,
    asked: str,
    everything: str,
    offered: list[tuple[str, str | None, bool]],
    *,
    is_prompted: bool,
) -> tuple[list[Tool], str]:
    named = [each for each in offered if re.search(rf"\b{re.escape(each[0])}\b", asked)]
    name, space, is_custom = (named or offered)[0]
    choice = body.get("tool_choice")
    is_forced = isinstance(choice, dict) or choice == "required"
    wants = "all the tool" in asked or "all it now" in asked or "weather in" in asked
    if "weather in" in asked and not is_forced:
        return [], "ready"
    if not wants and "Call " not in asked and APPLY not in asked:
        return [], "ready"
    word = re.search(r"word of this session is (\S+?)\.", everything)
    arguments = ['{"city": "Oslo"}']
    if "echo" in asked:
        key = "command" if name == "Bash" else "cmd"
        arguments = [json.dumps({key: f"echo {word[1] if word else 'nothing'}"})]
    elif "twice" in asked:
        arguments = ['{"city": "Oslo"}', '{"city": "Lima"}']
    elif APPLY in asked:
        patch = "*** Begin Patch\n*** Add File: a.txt\n+hello\n*** End Patch\n"
        arguments = [patch if is_custom else json.dumps({"input": patch})]
    return [
        Tool(
            "written" if is_prompted else f"call_{number}",
            name,
            (text[:4], text[4:]),
            custom=is_custom,
            namespace=space,
        )
        for number, text in enumerate(arguments)
    ], ""


APPLY = "apply_patch"
