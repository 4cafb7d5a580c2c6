"""The request as it is sent to the upstream under the policy: written calls and results become calls and results.

Obsidian Copilot up to 3.1.5 keeps a conversation as text: the assistant's turn has the `<use_tool>` blocks, and the
user's next turn has `Tool 'NAME' result: …` for each block, in the same order, with a blank line between them. An upstream
with structured calls gets both back as calls and results. A result may quote such a line itself, so two turns are paired
only if the lines name exactly the tools that the blocks call, in their order. Everything else stays text.

A client that keeps the calls of an answer beside its text sends both back. Blocks that only repeat the calls of their
turn are removed, because the model would learn to write them.
"""

import re

from msgspec.structs import replace

from dragoman.core.ids import Minter
from dragoman.model.outcome import Repair
from dragoman.model.parts import Call, Part, Reasoning, Result, Text
from dragoman.model.request import Request, Turn
from dragoman.obsidian.policy import ObsidianPolicy
from dragoman.textcalls.offers import Offers, offers_of
from dragoman.textcalls.scanner import scan_text

_RESULT = re.compile(r"(?:\A|\n\n)Tool '([^'\n]+)' result: ?")
_OPENS = "Tool '"
_FORMAT = "use_tool"
_OPENER = "<use_tool>"


def apply_to_request(
    request: Request, policy: ObsidianPolicy
) -> tuple[Request, tuple[Repair, ...]]:
    """The request under the policy; the same object if nothing changes."""
    repairs: tuple[Repair, ...] = ()
    if policy.pairs_results:
        request, repairs = pair_written_results(request)
    if policy.parallel_calls is not None and request.parallel_calls is None and request.tools:
        request = replace(request, parallel_calls=policy.parallel_calls)
    return request, repairs


def pair_written_results(request: Request) -> tuple[Request, tuple[Repair, ...]]:
    """The request with calls and results in place of their text; the same object if no text can be paired.

    If no tools are declared, the upstream cannot get structured calls, so the request stays unchanged.
    """
    turns = request.turns
    if not request.tools or not any(_has_result(each) or _may_repeat_calls(each) for each in turns):
        return request, ()
    offers = offers_of(request.tools)
    # Blocks have neither namespaces nor free text, so they cannot be matched to such tools with certainty.
    certain = Offers(
        tool for tool in request.tools if tool.kind == "function" and tool.namespace is None
    )
    changed: list[Turn] = []
    repairs: list[Repair] = []
    for index, turn in enumerate(turns):
        plain = _without_repeated_blocks(turn, offers)
        if plain is not turn:
            repairs.append(Repair("written_copies", f"messages[{index}]"))
            changed.append(plain)
            continue
        paired = _pair(changed[-1], turn, certain, index) if changed and _has_result(turn) else None
        if paired is None:
            changed.append(turn)
            continue
        changed[-1:] = paired
        called = ", ".join(part.name for part in paired[0].parts if isinstance(part, Call))
        repairs.append(Repair("written_results", f"messages[{index}]", called))
    return (replace(request, turns=tuple(changed)), tuple(repairs)) if repairs else (request, ())


def _may_repeat_calls(turn: Turn) -> bool:
    return (
        turn.role == "assistant"
        and any(isinstance(part, Call) for part in turn.parts)
        and any(isinstance(part, Text) and _OPENER in part.text for part in turn.parts)
    )


def _without_repeated_blocks(turn: Turn, offers: Offers) -> Turn:
    """The turn without its blocks, if they name the calls that it has, in the same order."""
    if not _may_repeat_calls(turn):
        return turn
    parts: list[Part] = []
    in_blocks: list[str] = []
    for part in turn.parts:
        if isinstance(part, Text) and _OPENER in part.text:
            scan = scan_text(part.text, offers, formats=_FORMAT)
            in_blocks += [call.name for call in scan.calls]
            text = scan.text.rstrip()
            parts += [replace(part, text=text)] if text else []
        else:
            parts.append(part)
    called = [part.name for part in turn.parts if isinstance(part, Call)]
    return replace(turn, parts=tuple(parts)) if in_blocks == called else turn


def _has_result(turn: Turn) -> bool:
    return turn.role == "user" and (_text(turn.parts) or "").startswith(_OPENS)


def _text(parts: tuple[Part, ...]) -> str | None:
    """The text of a turn that consists only of text; None for any other turn."""
    texts = [part.text for part in parts if isinstance(part, Text)]
    return "".join(texts) if texts and len(texts) == len(parts) else None


def _pair(asked: Turn, answered: Turn, offers: Offers, index: int) -> list[Turn] | None:
    """The assistant's turn with its calls, and a turn for each result; None if the pairing is not certain."""
    reasoning = tuple(part for part in asked.parts if isinstance(part, Reasoning))
    text = _text(tuple(part for part in asked.parts if part not in reasoning))
    answers = _text(answered.parts)
    if asked.role != "assistant" or text is None or answers is None:
        return None
    scan = scan_text(text, offers, formats=_FORMAT)
    heads = list(_RESULT.finditer(answers))
    if not scan.calls or [head[1] for head in heads] != [call.name for call in scan.calls]:
        return None
    ends = [*(head.start() for head in heads[1:]), len(answers)]
    texts = [answers[head.end() : end] for head, end in zip(heads, ends, strict=True)]
    mint = Minter(f"written#{index}")
    calls = [
        Call(call_id=mint("call_"), name=each.name, input=each.arguments) for each in scan.calls
    ]
    results = [
        Turn(role="tool", parts=(Result(call_id=call.call_id, name=call.name, content=(Text(text=each),)),))
        for call, each in zip(calls, texts, strict=True)
    ]  # fmt: skip
    rest = scan.text.rstrip()
    texts_left = (Text(text=rest),) if rest else ()
    return [replace(asked, parts=(*reasoning, *texts_left, *calls)), *results]
