"""The requests that `certify` sends. Pure: values of the gateway's own request type, which a dialect's codec writes.

The small ones ask for one thing each. The requests of Codex and Claude Code have the shape and the size of the real ones: their
fields, roles, kinds of tools, names, schemas and order, as measured with the real programs. The texts are our own. Codex states no
token limit; ours limits the cost of a run.
"""

import zlib
from base64 import b64encode
from collections.abc import Iterable, Mapping
from struct import pack

from msgspec import structs

from dragoman._json import raw
from dragoman.certify.asker import ProbeRequest
from dragoman.model.parts import (
    Breakpoint,
    Call,
    Dialect,
    Extra,
    Media,
    Part,
    Reasoning,
    Result,
    Text,
)
from dragoman.model.request import (
    Grammar,
    Namespace,
    ReasoningSettings,
    Request,
    ResponseFormat,
    Role,
    Tool,
    ToolChoice,
    Turn,
)

MAX_TOKENS = 2048
"""Of an answer. A call takes some fifty; a model that reasons first needs the rest."""

CITY = "Oslo"
OTHER_CITY = "Lima"
LOOKUP = "get_weather"
SECRET_WORD = "walnut-4711"  # noqa: S105 - a word that a model must have read to repeat it
"""Stands at the beginning of long requests and in results: an answer that has it has used them."""

# How long the texts of the clients' own instructions and descriptions are, in characters. Codex sends about 38 KB with its first
# request, Claude Code 60 KB and more.
_CODEX_INSTRUCTIONS = 33_000
_CLAUDE_INSTRUCTIONS = 18_000
_CLAUDE_DESCRIPTION = 1_300

_Schema = Mapping[str, object]


# --- pieces -----------------------------------------------------------------------------------------------------------


def said(text: str, role: Role = "user", *, head: bool = False) -> Turn:
    return Turn(role=role, parts=(Text(text=text),), head=head)


def function(
    name: str, description: str, schema: _Schema, *, strict: bool | None = None, space: str = ""
) -> Tool:
    return Tool(
        name=name,
        namespace=space or None,
        description=description,
        schema=raw(dict(schema)),
        strict=strict,
    )


def _open_object(required: Iterable[str] = (), **properties: object) -> dict[str, object]:
    return {"type": "object", "properties": properties, "required": [*required]}


def _object(required: Iterable[str] = (), **properties: object) -> dict[str, object]:
    """A closed object, as in the clients' own tools; some servers refuse the keyword."""
    return {**_open_object(required, **properties), "additionalProperties": False}


_STRING = {"type": "string"}
_CITY = {"type": "string", "description": "The name of a city."}
WEATHER = function(LOOKUP, "Look up the weather of a city.", _open_object(("city",), city=_CITY))
_CALL_IT = f"Call the tool {LOOKUP} for the city {CITY}. Call the tool, and do not answer in words."


def own_request(
    dialect: Dialect, *turns: Turn, stream: bool = True, **more: object
) -> ProbeRequest:
    """A request of a client that speaks the upstream's dialect."""
    request = Request(
        turns=turns,
        max_tokens=MAX_TOKENS,
        stream=stream,
        include_usage=True if stream and dialect == "chat" else None,
        store=False if dialect == "responses" else None,
        extra=Extra(dialect, {}),
    )
    return ProbeRequest(dialect=dialect, request=structs.replace(request, **more))


# --- small requests ---------------------------------------------------------------------------------------------------


def one_word(dialect: Dialect, *before: Turn, stream: bool = True, **more: object) -> ProbeRequest:
    """A conversation that ends with a plain question."""
    asked = said("Reply with one word: ready")
    return own_request(dialect, *before, asked, stream=stream, **more)


def one_call(dialect: Dialect, *, stream: bool) -> ProbeRequest:
    return own_request(dialect, said(_CALL_IT), stream=stream, tools=(WEATHER,))


def two_calls(dialect: Dialect) -> ProbeRequest:
    asked = (
        f"Call the tool {LOOKUP} twice in one answer: once for the city {CITY}, and once for the city {OTHER_CITY}. "
        "Make both calls now, and do not answer in words."
    )
    return own_request(dialect, said(asked), tools=(WEATHER,), parallel_calls=True)


def _looked_up(call_id: str) -> Turn:
    called = Call(call_id=call_id, name=LOOKUP, input=f'{{"city":"{CITY}"}}')
    return Turn(role="assistant", parts=(called,))


def _found(call_id: str) -> Turn:
    text = f"17 degrees, station {SECRET_WORD}"
    return Turn(role="tool", parts=(Result(call_id=call_id, content=(Text(text=text),)),))


_WHICH_STATION = "Look up the weather, then reply with the name of the station and nothing else."


def round_trip(dialect: Dialect, *ids: str) -> ProbeRequest:
    """A conversation with calls, which have these ids, and their results."""
    turns = [turn for call_id in ids for turn in (_looked_up(call_id), _found(call_id))]
    return own_request(dialect, said(_WHICH_STATION), *turns, tools=(WEATHER,))


def foreign_ids(dialect: Dialect) -> ProbeRequest:
    """Ids as other vendors make them: a conversation has them after a change of the model."""
    return round_trip(
        dialect, "toolu_01AbCdEfGhIjKlMnOpQrStUv", "functions.get_weather:0", "call_" + "x" * 59
    )


def unpaired(dialect: Dialect) -> ProbeRequest:
    """A call whose run was interrupted, and a result whose call was cut off."""
    turns = (_found("call_gone"), said("Go on."), _looked_up("call_open"), said("Never mind."))
    return own_request(dialect, said("Hello."), *turns, tools=(WEATHER,))


def chosen(dialect: Dialect, choice: ToolChoice) -> ProbeRequest:
    asked = _CALL_IT if choice.mode == "none" else f"What is the weather in {CITY}?"
    other = function("get_time", "Look up the time of a city.", _open_object(("city",), city=_CITY))
    return own_request(dialect, said(asked), tools=(WEATHER, other), tool_choice=choice)


def one_at_a_time(dialect: Dialect) -> ProbeRequest:
    return own_request(dialect, said(_CALL_IT), tools=(WEATHER,), parallel_calls=False)


def empty_tools(dialect: Dialect) -> ProbeRequest:
    """An empty list of tools, as Codex sends with its request for a summary."""
    extra = Extra(dialect, {"tools": raw([])})
    return one_word(dialect, extra=extra)


def late_system(dialect: Dialect) -> ProbeRequest:
    """Several system messages, and one in the middle of the conversation, as Codex and Claude Code send them."""
    role: Role = "system" if dialect == "chat" else "developer"
    late = Turn(role=role, parts=(Text(text="Be brief."),), extra=Extra(dialect, {}))
    first = said("You are helpful.", role, head=dialect == "messages")
    second = said("You answer in English.", role, head=dialect == "messages")
    turns = (said("Hello."), said("Hello!", "assistant"), said("Reply with one word: ready"), late)
    return own_request(dialect, first, second, *turns)


def developer(dialect: Dialect) -> ProbeRequest:
    return one_word(dialect, said("You are helpful.", "developer"))


def assistant_first(dialect: Dialect) -> ProbeRequest:
    return one_word(dialect, said("Hello, I am ready.", "assistant"))


def same_role(dialect: Dialect) -> ProbeRequest:
    return one_word(dialect, said("Hello."), said("Are you there?"))


def empty_text(dialect: Dialect) -> ProbeRequest:
    return one_word(dialect, said("Hello."), said("", "assistant"))


def without_limit() -> ProbeRequest:
    """A request that states no token limit, as most clients of Chat and Codex send it. Messages requires one."""
    return one_word("chat", max_tokens=None)


def stopped(dialect: Dialect) -> ProbeRequest:
    """A stop sequence. For a Responses upstream it comes from a Chat client: Responses has none, so the gateway cuts the answer."""
    asked = "Write exactly this line and nothing else: alpha beta gamma delta"
    client: Dialect = "chat" if dialect == "responses" else dialect
    return own_request(client, said(asked), stop=("gamma",))


def unknown_field(dialect: Dialect) -> ProbeRequest:
    extra = Extra(dialect, {"x_dragoman_certify": raw({"is": "unknown"})})
    return one_word(dialect, extra=extra)


def structured(dialect: Dialect) -> ProbeRequest:
    schema = _object(("word",), word=_STRING)
    form = ResponseFormat(kind="json_schema", name="answer", schema=raw(schema), strict=True)
    asked = 'Reply with the JSON object {"word": "ready"} and nothing else.'
    return own_request(dialect, said(asked), response_format=form)


def image(dialect: Dialect) -> ProbeRequest:
    """A picture of one colour, in the form of `view_image` and pasted screenshots."""
    shown = Media(kind="image", media_type="image/png", data=b64encode(_png()).decode())
    turn = Turn(role="user", parts=(Text(text="Which colour is this? Reply with one word."), shown))
    return own_request(dialect, turn)


def _png() -> bytes:
    """A red square: a model that sees pictures needs some pixels."""
    side = 32

    def chunk(kind: bytes, data: bytes) -> bytes:
        return pack(">I", len(data)) + kind + data + pack(">I", zlib.crc32(kind + data))

    rows = (b"\0" + b"\xff\x00\x00" * side) * side
    head = pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    parts = (chunk(b"IHDR", head), chunk(b"IDAT", zlib.compress(rows)), chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


# --- tools and schemas ------------------------------------------------------------------------------------------------


def _with_schema(dialect: Dialect, schema: _Schema, *, strict: bool | None = None) -> ProbeRequest:
    tool = function(LOOKUP, "Look up the weather of a city.", schema, strict=strict)
    return own_request(dialect, said(_CALL_IT), tools=(tool,))


def strict_schema(dialect: Dialect) -> ProbeRequest:
    """A strict function: every object closed, every property required."""
    place = _object(("name",), name=_STRING)
    return _with_schema(dialect, _object(("city", "place"), city=_CITY, place=place), strict=True)


def nested_schema(dialect: Dialect) -> ProbeRequest:
    """Nested objects and lists, alternatives and null, as MCP servers and Codex's own tools have them."""
    stop = _object(("at",), at=_STRING, kind={"type": "string", "enum": ["start", "end"]})
    either = {"anyOf": [{"type": "string"}, {"type": "integer"}, {"type": "null"}]}
    listed = {"type": "array", "items": stop}
    words = {"type": "object", "additionalProperties": {"type": "string"}}
    several = {"type": ["string", "null"]}
    schema = _object(("city",), city=_CITY, day=either, stops=listed, words=words, unit=several)
    return _with_schema(dialect, schema)


def referring_schema(dialect: Dialect) -> ProbeRequest:
    """`$ref` and `$defs`, as Pydantic writes them."""
    place = {"type": "object", "properties": {"name": _STRING}, "required": ["name"]}
    schema = _open_object(("city",), city=_CITY, near={"$ref": "#/$defs/Place"})
    return _with_schema(dialect, {**schema, "$defs": {"Place": place}})


KEYWORDS: Mapping[str, _Schema] = {
    "$schema": {},
    "title": {"type": "string", "title": "A title"},
    "default": {"type": "string", "default": "x"},
    "examples": {"type": "string", "examples": ["x"]},
    "format": {"type": "string", "format": "date-time"},
    "pattern": {"type": "string", "pattern": "^[a-z]+$"},
    "minLength": {"type": "string", "minLength": 1},
    "const": {"const": "x"},
    "exclusiveMinimum": {"type": "integer", "exclusiveMinimum": 0},
    "multipleOf": {"type": "number", "multipleOf": 0.5},
    "uniqueItems": {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
    "propertyNames": {"type": "object", "propertyNames": {"type": "string"}},
    "oneOf": {"oneOf": [{"type": "string"}, {"type": "integer"}]},
    "not": {"not": {"type": "null"}},
}
"""Keywords that MCP servers use and some servers refuse, each with a property that has it."""


def keyword_schema(dialect: Dialect) -> ProbeRequest:
    properties = {f"value_{at}": schema for at, schema in enumerate(KEYWORDS.values()) if schema}
    schema = _open_object(("city",), city=_CITY, **properties)
    draft = {"$schema": "http://json-schema.org/draft-07/schema#"}
    return _with_schema(dialect, {**draft, **schema})


LONG_NAME = "mcp__weather-service__look_up_the_weather_of_a_city_by_its_name_"
"""64 characters, the most that the vendors accept, as Claude Code builds them from server and tool."""


def names(dialect: Dialect) -> ProbeRequest:
    """Names as clients make them: long, with dashes, with the prefix of MCP servers."""
    schema = _open_object(("city",), city=_CITY)
    others = [function(name, "Another tool.", schema) for name in ("Read", "list-files", "a_1")]
    tools = (function(LONG_NAME, "Look up the weather of a city.", schema), *others)
    asked = _CALL_IT.replace(LOOKUP, LONG_NAME)
    return own_request(dialect, said(asked), tools=tools)


def many_tools(dialect: Dialect, count: int) -> ProbeRequest:
    schema = _open_object(("city",), city=_CITY)
    more = (function(f"tool_{number}", "Another tool.", schema) for number in range(1, count))
    return own_request(dialect, said(_CALL_IT), tools=(WEATHER, *more))


# --- Codex ------------------------------------------------------------------------------------------------------------


def _filled(text: str, sentences: tuple[str, ...], length: int) -> str:
    """The text, and numbered sentences after it until it has this length."""
    lines = [text]
    size = len(text)
    while size < length:
        line = f"{len(lines)}. {sentences[len(lines) % len(sentences)]}"
        lines.append(line)
        size += len(line) + 1
    return "\n".join(lines)


_RULES = (
    "Read a file before you change it, and keep the style that it has.",
    "Run the tests that concern your change, and say which of them you ran.",
    "Prefer small steps that can be reviewed on their own over one large change.",
    "If a command fails, read its whole output before you try another one.",
    "Never remove work of the user that is not committed, and ask if you are not sure.",
    "Write what you found in plain words, with the names of files and the numbers of lines.",
    "Do not add a dependency without a reason that you can state in one sentence.",
)
_PATCH_GRAMMAR = """\
start: begin_patch hunk+ end_patch
begin_patch: "*** Begin Patch" LF
end_patch: "*** End Patch" LF?
hunk: add_hunk
add_hunk: "*** Add File: " filename LF add_line+
filename: /(.+)/
add_line: "+" /(.*)/ LF
%import common.LF
"""
APPLY_PATCH = "apply_patch"
SHELL = "exec_command"
SPACE = "mcp__weather"
_SHELL = function(
    SHELL,
    "Run a command in a terminal; return its output, or an id to go on with.",
    _object(
        ("cmd",),
        cmd={"type": "string", "description": "The command."},
        workdir=_STRING,
        tty={"type": "boolean"},
        yield_time_ms={"type": "number", "description": "How long to wait for output."},
        max_output_tokens={"type": "number"},
        sandbox_permissions={"type": "string", "enum": ["use_default", "require_escalated"]},
        prefix_rule={"type": "array", "items": _STRING},
    ),
    strict=False,
)
_PATCH = Tool(
    name=APPLY_PATCH,
    kind="custom",
    description="Edit files. This is a FREEFORM tool: write the patch itself, not JSON.",
    grammar=Grammar("lark", _PATCH_GRAMMAR),
)


def _codex_tools() -> tuple[Tool, ...]:
    question = _object(
        ("id", "question"),
        id=_STRING,
        question=_STRING,
        options={"type": "array", "items": _object(("label",), label=_STRING)},
    )
    asked = {"type": "array", "items": question}
    search = Extra("responses", {"type": raw("web_search"), "external_web_access": raw(value=True)})
    schemas: dict[str, _Schema] = {
        "write_stdin": _object(("session_id",), session_id={"type": "number"}, chars=_STRING),
        "view_image": _object(("path",), path=_STRING),
        "request_user_input": _object(("questions",), questions=asked),
        "get_goal": _object(),
        "create_goal": _object(("objective",), objective=_STRING),
        "update_goal": _object(("status",), status={"type": "string", "enum": ["complete"]}),
    }
    return (
        _SHELL,
        *(
            function(name, f"{name}: a tool of the terminal agent.", schema, strict=False)
            for name, schema in schemas.items()
        ),
        _PATCH,
        Tool(name="web_search", kind="web_search", variant="web_search", extra=search),
    )


def _codex_request(turns: Iterable[Turn], tools: tuple[Tool, ...], **more: object) -> ProbeRequest:
    metadata = {"session_id": "certify", "thread_id": "certify", "turn_id": "certify"}
    request = Request(
        turns=(*turns,),
        tools=tools,
        tool_choice=ToolChoice(mode="auto"),
        parallel_calls=True,
        stream=True,
        max_tokens=MAX_TOKENS,
        reasoning=ReasoningSettings(enabled=True, effort="medium", summary="auto"),
        verbosity="low",
        cache_key="dragoman-certify",
        store=False,
        include=("reasoning.encrypted_content",),
        extra=Extra("responses", {"client_metadata": raw(metadata)}),
    )
    headers = {"originator": "codex_exec", "session-id": "certify"}
    changed = structs.replace(request, **more)
    return ProbeRequest(dialect="responses", request=changed, headers=headers)


def _codex_opening(length: int) -> tuple[Turn, ...]:
    start = f"You are a coding agent in a terminal. The word of this session is {SECRET_WORD}."
    where = "<environment_context>\n  <cwd>/tmp/project</cwd>\n  <shell>bash</shell>\n</environment_context>"
    return (
        said(_filled(start, _RULES, length), "developer"),
        said("Skills: none are installed.", "developer"),
        said(where),
    )


def codex(length: int = _CODEX_INSTRUCTIONS) -> ProbeRequest:
    """The first request of a session. Its beginning has the word that the call must contain."""
    asked = (
        f"Call {SHELL} with cmd set to echo, a space, and the word of this session. Call it now."
    )
    return _codex_request((*_codex_opening(length), said(asked)), _codex_tools())


def codex_later() -> ProbeRequest:
    """A later request: reasoning, a call and its output, a patch and its output, and a message, all sent back."""
    thought = Reasoning(summary=("I look at the folder first.",), item_id="rs_certify")
    shell = Call(call_id="call_1", name=SHELL, input='{"cmd": "ls"}', item_id="fc_certify")
    patch_text = "*** Begin Patch\n*** Add File: a.txt\n+hello\n*** End Patch\n"
    patch = Call(
        call_id="call_2", name=APPLY_PATCH, kind="custom", input=patch_text, item_id="ctc_certify"
    )
    done = f"Exit code: 0\nOutput:\nnotes-{SECRET_WORD}.txt\n"
    turns = (
        *_codex_opening(0),
        said("Look around, and add a file."),
        Turn(role="assistant", parts=(thought,)),
        Turn(role="assistant", parts=(shell,)),
        Turn(role="tool", parts=(Result(call_id="call_1", content=(Text(text=done),)),)),
        Turn(role="assistant", parts=(patch,)),
        Turn(
            role="tool",
            parts=(Result(call_id="call_2", kind="custom", content=(Text(text="Success."),)),),
        ),
        said("Done.", "assistant"),
        said("Which file did ls list? Reply with its name and nothing else."),
    )
    return _codex_request(turns, _codex_tools())


def custom_tool() -> ProbeRequest:
    """A free-form tool, whose input is text and not JSON."""
    asked = (
        f"Use {APPLY_PATCH} to add the file a.txt with the line hello. The patch is:\n"
        "*** Begin Patch\n*** Add File: a.txt\n+hello\n*** End Patch\nCall the tool now."
    )
    return _codex_request((said(asked),), (_PATCH,))


def namespaced() -> ProbeRequest:
    """A tool in a namespace: Codex offers the tools of each MCP server in this way."""
    tool = function(
        LOOKUP,
        "Look up the weather of a city.",
        _object(("city",), city=_CITY),
        strict=False,
        space=SPACE,
    )
    space = Namespace(SPACE, "Tools of the MCP server weather.")
    return _codex_request((said(_CALL_IT),), (tool,), namespaces=(space,))


# --- Claude Code ------------------------------------------------------------------------------------------------------

BASH = "Bash"
_CLAUDE_TOOLS: Mapping[str, _Schema] = {
    "Agent": _object(("prompt",), description=_STRING, prompt=_STRING, subagent_type=_STRING),
    BASH: _object(
        ("command",),
        command={"type": "string", "description": "The command to run."},
        timeout={"type": "number", "maximum": 600000},
        description=_STRING,
        run_in_background={"type": "boolean"},
    ),
    "Edit": _object(
        ("file_path", "old_string", "new_string"),
        file_path=_STRING,
        old_string=_STRING,
        new_string=_STRING,
        replace_all={"type": "boolean", "default": False},
    ),
    "Glob": _object(("pattern",), pattern=_STRING, path=_STRING),
    "Grep": _object(
        ("pattern",),
        pattern=_STRING,
        path=_STRING,
        output_mode={"type": "string", "enum": ["content", "files_with_matches", "count"]},
        **{"-A": {"type": "number"}, "-i": {"type": "boolean"}},
    ),
    "Read": _object(("file_path",), file_path=_STRING, offset={"type": "integer", "minimum": 0}),
    "TodoWrite": _object(
        ("todos",),
        todos={
            "type": "array",
            "items": _object(
                ("content", "status"),
                content={"type": "string", "minLength": 1},
                status={"type": "string", "enum": ["pending", "in_progress", "completed"]},
            ),
        },
    ),
    "WebFetch": _object(("url",), url={"type": "string", "format": "uri"}, prompt=_STRING),
    "Write": _object(("file_path", "content"), file_path=_STRING, content=_STRING),
    **{
        f"mcp__issue-tracker__{verb}_{thing}": {
            "$schema": "http://json-schema.org/draft-07/schema#",
            **_object(("id",), id=_STRING, fields={"type": "object", "additionalProperties": True}),
        }
        for verb in ("create", "read", "update")
        for thing in ("issue", "comment", "label", "milestone", "project")
    },
}
_USAGE = (
    "Use this tool where it fits better than a command in the shell.",
    "Paths are absolute; a relative one is refused.",
    "The result is cut after two thousand lines; ask for the rest by its offset.",
    "Several independent calls may be made in one answer.",
    "If the user has not asked for a change, do not make one with this tool.",
)


def _claude_tools(length: int) -> tuple[Tool, ...]:
    """All tools, with descriptions of this length; if it is 0, those that are called in the conversation."""
    draft = {"$schema": "http://json-schema.org/draft-07/schema#"}
    called = (BASH, "Read")
    return tuple(
        function(
            name, _filled(f"{name}: a tool of the agent.", _USAGE, length), {**draft, **schema}
        )
        for name, schema in _CLAUDE_TOOLS.items()
        if length or name in called
    )


_MARK = Breakpoint(alone=True)
_CLAUDE_HEADERS = {
    "anthropic-version": "2023-06-01",
    "anthropic-beta": "interleaved-thinking-2025-05-14,context-management-2025-06-27,mid-conversation-system-2026-04-07",
    "x-app": "cli",
}


def _claude_request(turns: Iterable[Turn], *, length: int, stream: bool = True) -> ProbeRequest:
    start = f"You are an interactive agent for software. The word of this session is {SECRET_WORD}."
    system = (
        Text(text="You are a command line agent.", cache=_MARK),
        Text(text=_filled(start, _RULES, length and _CLAUDE_INSTRUCTIONS), cache=_MARK),
    )
    edits = {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}
    request = Request(
        turns=(Turn(role="system", parts=system, head=True), *turns),
        tools=_claude_tools(length),
        stream=stream,
        max_tokens=2 * MAX_TOKENS,
        reasoning=ReasoningSettings(enabled=True, budget=MAX_TOKENS // 2),
        user="user_certify_account__session_certify",
        extra=Extra("messages", {"context_management": raw(edits)}),
    )
    return ProbeRequest(dialect="messages", request=request, headers=_CLAUDE_HEADERS)


def _marked(text: str) -> Turn:
    return Turn(role="user", parts=(Text(text=text, cache=_MARK),))


def claude_code(length: int = _CLAUDE_DESCRIPTION) -> ProbeRequest:
    """The first request of a session. Its beginning has the word that the call must contain."""
    asked = (
        f"Call {BASH} with command set to echo, a space, and the word of this session. Call it now."
    )
    return _claude_request((_marked(asked),), length=length)


def claude_code_later(*, stream: bool = True) -> ProbeRequest:
    """A later request: calls and their results sent back, and a reminder as a system message."""
    calls: tuple[Part, ...] = (
        Text(text="I look around."),
        Call(call_id="toolu_01certify1", name=BASH, input='{"command":"ls"}'),
        Call(call_id="toolu_01certify2", name="Read", input='{"file_path":"/tmp/a.txt"}'),
    )
    results: tuple[Part, ...] = (
        Result(call_id="toolu_01certify1", content=(Text(text=f"notes-{SECRET_WORD}.txt"),)),
        Result(call_id="toolu_01certify2", content=(Text(text="no such file"),), is_error=True),
    )
    reminder = Turn(
        role="developer",
        parts=(Text(text="The list of todos is empty."),),
        extra=Extra("messages", {}),
    )
    asked = _marked("Which file did ls list? Reply with its name and nothing else.")
    turns = (
        said("Look around."),
        Turn(role="assistant", parts=calls),
        Turn(role="tool", parts=results),
        asked,
        reminder,
    )
    return _claude_request(turns, length=0, stream=stream)
