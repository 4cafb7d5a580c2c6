"""Describes the tools that a search has loaded, for upstreams that read a result as text.

The result of a search for tools refers to definitions (`Opaque.tools`) and has no text for them. Its own dialect gets the
references unchanged. Every other gets the definitions as text, in the form that models know from their own prompts:

    <functions>
    <function>{"description":"…","name":"…","parameters":{…}}</function>
    </functions>

The names are those under which the upstream knows the tools. The result of a `tool_search` call, which comes with a
definition of each tool, is described without parameters: the tools are declared in the same request.
"""

from collections.abc import Mapping

from dragoman._json import dumps
from dragoman.core.aliases import NameMap
from dragoman.core.losses import ForeignNoter, LossBook
from dragoman.model.parts import Dialect, Media, Opaque, Result, Text
from dragoman.model.request import Tool

Content = tuple[Text | Media | Opaque, ...]

_Key = tuple[str | None, str]


class LoadedTools:
    """Describes the loaded tools of one request, which is written in `dialect`, or as text if it is None."""

    def __init__(
        self,
        tools: tuple[Tool, ...],
        names: NameMap,
        dialect: Dialect | None,
        book: LossBook,
        note_foreign: ForeignNoter,
    ) -> None:
        self._tools = tools
        self._note_foreign = note_foreign
        self._names = names
        self._dialect = dialect
        self._book = book
        self._known: Mapping[_Key, Tool] | None = None

    def is_foreign(self, part: object) -> bool:
        """Whether a part loads tools in a form that this dialect does not have."""
        return isinstance(part, Opaque) and bool(part.tools) and part.dialect != self._dialect

    def leave_out(self, part: Opaque, where: str) -> None:
        """Report what is lost of a foreign part that only declares tools: they are among the request's tools."""
        self._note_foreign(self._book, part.extra, where)

    def described(self, result: Result, where: str) -> Content:
        """The content of a result, with a text in place of each run of foreign references."""
        if not any(map(self.is_foreign, result.content)):
            return result.content
        out: list[Text | Media | Opaque] = []
        run: list[_Key] = []
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

    def _text(self, keys: list[_Key], result: Result, where: str) -> Text:
        has_parameters = result.kind != "tool_search"
        lines = [
            f"<function>{self._definition(key, where, has_parameters=has_parameters)}</function>"
            for key in dict.fromkeys(keys)
        ]
        return Text(text="\n".join(("<functions>", *lines, "</functions>")))

    def _definition(self, key: _Key, where: str, *, has_parameters: bool) -> str:
        tool = self._tool(key)
        fields: dict[str, object] = {"name": self._names.wire(key[1], key[0])}
        if tool is None:
            self._book.note("tool_definition", where, key[1])
        else:
            if tool.description is not None:
                fields = {"description": tool.description, **fields}
            if has_parameters and tool.schema is not None:
                fields["parameters"] = tool.schema
        return dumps(fields).decode("utf-8")

    def _tool(self, key: _Key) -> Tool | None:
        if self._known is None:
            # The first declaration wins, as in the list of tools that is sent.
            self._known = {
                (tool.namespace or None, tool.name): tool for tool in reversed(self._tools)
            }
        return self._known.get(key)
