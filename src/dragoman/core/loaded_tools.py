"""The tools that a search has loaded, for upstreams that read a result as text: their description, and their order.

The result of a search for tools refers to definitions (`Opaque.tools`) and has no text for them. Its own dialect gets the
references unchanged. Every other gets the definitions as text, in the form that models know from their own prompts:

    <functions>
    <function>{"description":"…","name":"…","parameters":{…}}</function>
    </functions>

The names are those under which the upstream knows the tools. The result of a `tool_search` call, which comes with a
definition of each tool, is described without parameters: the tools are declared in the same request. One that found nothing says so.
"""

from collections.abc import Mapping
from itertools import filterfalse

from msgspec import Struct, structs

from dragoman._json import dumps
from dragoman.core.aliases import NameMap, ToolKey, key_of
from dragoman.core.losses import ForeignNoter, LossBook
from dragoman.model.parts import Dialect, Media, Opaque, Result, Text
from dragoman.model.request import Request, Tool

Content = tuple[Text | Media | Opaque, ...]

NOTHING_FOUND = "No tool matches."

MAX_DESCRIBED = 8 * 1024 * 1024
"""Characters of all descriptions and schemas in one request: more than the longest context has. A result refers to a tool in thirty bytes,
and a request has room for thousands of references to its largest tool."""


def in_order_of_loading(request: Request) -> Request:
    """Return the request with deferred tools after the others, in the order in which the conversation loaded or defined them.

    A client may declare a tool only after a search has loaded it, at its alphabetical place (Claude Code does). In this order, the
    tools at the beginning of the prompt stay the same, so that a provider finds them in its cache. A client that declares deferred
    tools before they are loaded keeps their order.
    """
    tools = request.tools
    for tool in tools:
        if tool.deferred and tool.place == "request":
            break
    else:
        return request
    if any(tool.kind == "tool_search" for tool in tools):
        return request
    late = [tool for tool in tools if _is_late(tool)]
    found = [
        key
        for turn in request.turns
        for part in turn.parts
        for piece in (part.content if isinstance(part, Result) else (part,))
        if isinstance(piece, Opaque)
        for key in piece.tools
    ]
    order = {key: number for number, key in enumerate(dict.fromkeys(found))}
    if all(key_of(tool) in order for tool in late):
        late.sort(key=lambda tool: order[key_of(tool)])
    return structs.replace(request, tools=(*filterfalse(_is_late, tools), *late))


def _is_late(tool: Tool) -> bool:
    return tool.deferred is True or tool.place == "input"


class LoadedTools(Struct, eq=False):
    """Describes the loaded tools of one request, which is written in `dialect`, or as text if it is None."""

    tools: tuple[Tool, ...]
    names: NameMap
    dialect: Dialect | None
    book: LossBook
    note_foreign: ForeignNoter
    known: Mapping[ToolKey, Tool] | None = None
    room: int = MAX_DESCRIBED

    def is_foreign(self, part: object) -> bool:
        """Whether a part loads tools in a form that this dialect does not have."""
        return isinstance(part, Opaque) and bool(part.tools) and part.dialect != self.dialect

    def leave_out(self, part: Opaque, where: str) -> None:
        """Report what is lost of a foreign part that only declares tools: they are among the request's tools."""
        self.note_foreign(self.book, part.extra, where)

    def described(self, result: Result, where: str) -> Content:
        """The content of a result, with a text in place of each run of foreign references, and in place of a list without tools."""
        if not result.content and result.kind == "tool_search":
            return (Text(text=NOTHING_FOUND),)
        if not any(map(self.is_foreign, result.content)):
            return result.content
        out: list[Text | Media | Opaque] = []
        run: list[ToolKey] = []
        for part in result.content:
            if isinstance(part, Opaque) and self.is_foreign(part):
                self.leave_out(part, where)
                run += part.tools
                continue
            if run:
                out.append(self._text(run, result, where))
                run = []
            out.append(part)
        if run:
            out.append(self._text(run, result, where))
        return tuple(out)

    def _text(self, keys: list[ToolKey], result: Result, where: str) -> Text:
        has_parameters = result.kind != "tool_search"
        lines = [
            f"<function>{self._definition(key, where, has_parameters=has_parameters)}</function>"
            for key in dict.fromkeys(keys)
        ]
        return Text(text="\n".join(("<functions>", *lines, "</functions>")))

    def _definition(self, key: ToolKey, where: str, *, has_parameters: bool) -> str:
        tool = self._tool(key)
        name: dict[str, object] = {"name": self.names.wire(key[1], key[0])}
        schema = tool.schema if tool is not None and has_parameters else None
        size = 0 if tool is None else len(tool.description or "") + len(schema or b"")
        if tool is None or size > self.room:
            self.book.note("tool_definition", where, key[1])
            return dumps(name).decode("utf-8")
        self.room -= size
        fields = name if tool.description is None else {"description": tool.description, **name}
        if schema is not None:
            fields = {**fields, "parameters": schema}
        return dumps(fields).decode("utf-8")

    def _tool(self, key: ToolKey) -> Tool | None:
        if self.known is None:
            # The first declaration wins, as in the list of tools that is sent.
            self.known = {key_of(tool): tool for tool in reversed(self.tools)}
        return self.known.get(key)
