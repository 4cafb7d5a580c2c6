"""Results that came as a user's text, paired with the calls they answer.

Obsidian Copilot up to 3.1.5 keeps a conversation as text: the assistant's turn holds the `<use_tool>` blocks, and the
user's next turn says `Tool 'NAME' result: …`, one after the other in the order of the blocks, a blank line between them.
Upstreams with calls of their own get both back as calls and results. A result may quote such a line itself, so a pair of
turns counts only if the lines name exactly the tools that the blocks call, in their order; everything else stays text.

A client that keeps the calls of an answer beside its text sends both back: blocks that only repeat the calls of their turn
are taken out, or the model would learn to write them.
"""

import re

from msgspec.structs import replace

from dragoman.core.ids import Minter
from dragoman.model.outcome import Repair
from dragoman.model.parts import Call, Part, Reasoning, Result, Text
from dragoman.model.request import Request, Turn
from dragoman.textcalls.whole import FoundCall, TextScan, scan_text

__all__ = ("pair_written_results",)

_RESULT = re.compile(r"(?:\A|\n\n)Tool '([^'\n]+)' result: ?")
_OPENS = "Tool '"
_FORMAT = "use_tool"
_OPENER = "<use_tool>"


def pair_written_results(request: Request) -> tuple[Request, tuple[Repair, ...]]:
    """The request with written calls and results in place of their text; the same object if there are none.

    Tools must be declared: where none are, no upstream has anything to pair.
    """
    if not request.tools or not any(_is_looked_at(turn) for turn in request.turns):
        return request, ()
    turns: list[Turn] = []
    repairs: list[Repair] = []
    for index, turn in enumerate(request.turns):
        plain = _without_copies(turn, request)
        if plain is not turn:
            repairs.append(Repair("written_copies", f"messages[{index}]"))
            turns.append(plain)
            continue
        paired = _pair(turns[-1], turn, request, index) if turns and _says_result(turn) else None
        if paired is None:
            turns.append(turn)
            continue
        turns[-1:] = paired
        called = ", ".join(part.name for part in paired[0].parts if isinstance(part, Call))
        repairs.append(Repair("written_results", f"messages[{index}]", called))
    return (replace(request, turns=tuple(turns)), tuple(repairs)) if repairs else (request, ())


def _is_looked_at(turn: Turn) -> bool:
    return _says_result(turn) or _may_hold_copies(turn)


def _may_hold_copies(turn: Turn) -> bool:
    return (
        turn.role == "assistant"
        and any(isinstance(part, Call) for part in turn.parts)
        and any(isinstance(part, Text) and _OPENER in part.text for part in turn.parts)
    )


def _without_copies(turn: Turn, request: Request) -> Turn:
    """The turn without blocks that say the calls it has, one for each and in their order."""
    if not _may_hold_copies(turn):
        return turn
    parts: list[Part] = []
    said: list[str] = []
    for part in turn.parts:
        if isinstance(part, Text) and _OPENER in part.text:
            scan = scan_text(part.text, request.tools, formats=_FORMAT)
            said += [call.name for call in scan.calls]
            text = scan.text.rstrip()
            parts += [replace(part, text=text)] if text else []
        else:
            parts.append(part)
    called = [part.name for part in turn.parts if isinstance(part, Call)]
    return replace(turn, parts=tuple(parts)) if said == called else turn


def _says_result(turn: Turn) -> bool:
    return turn.role == "user" and (_text(turn.parts) or "").startswith(_OPENS)


def _text(parts: tuple[Part, ...]) -> str | None:
    """The words of a turn that has nothing else; None if it has."""
    texts = [part.text for part in parts if isinstance(part, Text)]
    return "".join(texts) if texts and len(texts) == len(parts) else None


def _pair(asked: Turn, answered: Turn, request: Request, index: int) -> list[Turn] | None:
    """The assistant's turn with its calls, and a turn for each result; None if it is not certain that they are."""
    thoughts = tuple(part for part in asked.parts if isinstance(part, Reasoning))
    words = _text(tuple(part for part in asked.parts if part not in thoughts))
    said = _text(answered.parts)
    if asked.role != "assistant" or words is None or said is None:
        return None
    # Blocks have no namespaces and no free text: a call of such a tool is not certain to be one.
    tools = [tool for tool in request.tools if tool.kind == "function" and tool.namespace is None]
    scan = scan_text(words, tools, formats=_FORMAT)
    heads = list(_RESULT.finditer(said))
    if not scan.calls or [head[1] for head in heads] != [call.name for call in scan.calls]:
        return None
    ends = [*(head.start() for head in heads[1:]), len(said)]
    texts = [said[head.end() : end] for head, end in zip(heads, ends, strict=True)]
    mint = Minter(f"written#{index}")
    calls = [_call(found, mint("call_")) for found in scan.calls]
    results = [
        Turn(role="tool", parts=(Result(call_id=call.call_id, name=call.name, content=(Text(text=text),)),))
        for call, text in zip(calls, texts, strict=True)
    ]  # fmt: skip
    return [replace(asked, parts=(*thoughts, *_words_left(scan), *calls)), *results]


def _call(found: FoundCall, call_id: str) -> Call:
    return Call(call_id=found.call_id or call_id, name=found.name, input=found.arguments)


def _words_left(scan: TextScan) -> tuple[Text, ...]:
    text = scan.text.rstrip()
    return (Text(text=text),) if text else ()
