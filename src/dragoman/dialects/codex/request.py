"""A request as the three things `codex app-server` is told: a thread, a turn, and the conversation before it.

    {"thread": {…of thread/start…}, "turn": {…of turn/start…}, "items": […of thread/inject_items…]}

Nobody speaks this to us, and it goes over no wire as it stands: `upstream.codex` says the three, or finds the turn that
the last items continue. What keeps Codex's own tools and prompts out of a thread is `SWITCHED_OFF`.
"""

from collections.abc import Mapping

from dragoman._json import dumps_document
from dragoman.core.effort import effort_from_budget
from dragoman.core.losses import LossBook, note_namespaces, note_request_fields
from dragoman.core.pairing import pair_results
from dragoman.dialects.base import EncodedRequest, Target
from dragoman.dialects.codex.history import History, split_instructions
from dragoman.dialects.codex.losses import DEFAULT_TARGET, LOSSES, note_foreign
from dragoman.dialects.codex.names import wire_names
from dragoman.dialects.codex.tools import is_named, offer_tools
from dragoman.model.outcome import LossAction
from dragoman.model.parts import Call
from dragoman.model.request import ReasoningSettings, Request, ResponseFormat

__all__ = ("CONFIGURED_MODELS", "SWITCHED_OFF", "encode_request")

CONFIGURED_MODELS = frozenset({"", "codex", "default"})
"""Names of no model: they stand for the one that Codex is configured with."""

_OFF = (
    *("features.shell_tool", "features.unified_exec", "features.view_image", "features.goals"),
    *("features.multi_agent", "features.apps", "features.plugins", "features.tool_suggest"),
    *("features.skill_search", "features.sleep_tool", "features.image_generation", "features.hooks"),
    *("tools.experimental_request_user_input.enabled", "tools.update_plan.enabled"),
    *("include_environment_context", "include_permissions_instructions", "include_apps_instructions"),
    *("include_collaboration_mode_instructions", "skills.include_instructions", "skills.bundled.enabled"),
)  # fmt: skip

SWITCHED_OFF: Mapping[str, object] = {
    **dict.fromkeys(_OFF, False),
    "web_search": "disabled",
    "project_doc_max_bytes": 0,
    # A program that Codex would start at the end of each turn.
    "notify": [],
    # A history that is too long is the client's to shorten; Codex would do it unasked, with a request of its own.
    "model_auto_compact_token_limit": 9_000_000_000,
    # A thread that nobody listens to any more is forgotten at once, not after half an hour.
    "thread_unload_delay_secs": 0,
}
"""Settings of a thread, by their dotted names, with which only the client's tools and words reach the model."""

_TIERS = frozenset({"priority", "flex", "fast"})
# What these say is what happens anyway.
_IDLE_TIERS = frozenset({None, "auto", "default"})
_SUMMARIES = frozenset({"auto", "concise", "detailed", "none"})
_VERBOSITIES = frozenset({"low", "medium", "high"})
# Codex asks for it by itself and tells it in its raw items.
_INCLUDED = frozenset({"reasoning.encrypted_content"})


def encode_request(
    request: Request,
    target: Target = DEFAULT_TARGET,
    policy: Mapping[str, LossAction] | None = None,
) -> EncodedRequest:
    """The request for an app-server.

    Raises:
        RequestRefused: the policy refuses to leave something out.
    """
    book = LossBook(LOSSES, policy)
    note_request_fields(book, request.extra)
    note_namespaces(book, request.namespaces, note_foreign)
    turns, pairing = pair_results(request.turns)
    used = [
        (part.namespace, part.name)
        for turn in turns
        for part in turn.parts
        if isinstance(part, Call) and part.executor == "client"
    ]
    names = wire_names(tuple(filter(is_named, request.tools)), used, target.names)
    instructions, conversation = split_instructions(turns, book)
    offer = offer_tools(request.tools, request.tool_choice, names, target, book)
    thread: dict[str, object] = {"baseInstructions": instructions, "dynamicTools": offer.tools}
    if request.model not in CONFIGURED_MODELS:
        thread["model"] = request.model
    if request.verbosity in _VERBOSITIES:
        thread["config"] = {"model_verbosity": request.verbosity}
    elif request.verbosity is not None:
        book.note("verbosity", "verbosity", request.verbosity)
    body = {
        "thread": thread,
        "turn": _turn(request, book),
        "items": History(names, target, book).write(conversation),
    }
    _note_unsaid(request, book)
    repairs = (*pairing, *offer.repairs)
    return EncodedRequest(dumps_document(body), names, book.losses, repairs)


def _turn(request: Request, book: LossBook) -> dict[str, object]:
    turn: dict[str, object] = {}
    if request.service_tier in _TIERS:
        turn["serviceTier"] = request.service_tier
    elif request.service_tier not in _IDLE_TIERS:
        book.note("service_tier", "service_tier", request.service_tier or "")
    if request.reasoning is not None:
        turn |= _reasoning(request.reasoning, book)
    if request.response_format is not None:
        turn |= _format(request.response_format, book)
    return turn


def _reasoning(settings: ReasoningSettings, book: LossBook) -> dict[str, object]:
    turn: dict[str, object] = {}
    effort = settings.effort
    if effort is None and settings.budget is not None:
        book.note("reasoning_settings", "reasoning", f"{settings.budget} tokens")
        effort = effort_from_budget(settings.budget)
    if effort is None and settings.enabled is False:
        effort = "none"
    if effort is not None:
        turn["effort"] = effort
    if settings.summary in _SUMMARIES:
        turn["summary"] = settings.summary
    elif settings.summary is not None:
        book.note("reasoning_settings", "reasoning.summary", settings.summary)
    note_foreign(book, settings.extra, "reasoning")
    return turn


def _format(form: ResponseFormat, book: LossBook) -> dict[str, object]:
    note_foreign(book, form.extra, "response_format")
    if form.kind == "json_schema" and form.schema is not None:
        unsaid = [
            name for name in ("name", "description", "strict") if getattr(form, name) is not None
        ]
        if unsaid:
            book.note("response_format", "response_format", ", ".join(unsaid))
        return {"outputSchema": form.schema}
    if form.kind != "text":
        book.note("response_format", "response_format", form.kind)
    return {}


# Where a client said it, if that is not where the code says.
_ASKED_AS = {
    "cache_key": "prompt_cache_key",
    "parallel_calls": "parallel_tool_calls",
    "previous_response": "previous_response_id",
}


def _note_unsaid(request: Request, book: LossBook) -> None:
    absent: dict[str, object] = {
        "cache_key": request.cache_key,
        "frequency_penalty": request.frequency_penalty,
        "logit_bias": request.logit_bias,
        "max_tokens": request.max_tokens,
        "metadata": request.metadata,
        "parallel_calls": True if request.parallel_calls is False else None,
        "presence_penalty": request.presence_penalty,
        "previous_response": request.previous_id,
        "seed": request.seed,
        "store": True if request.store else None,
        "temperature": request.temperature,
        "top_k": request.top_k,
        "top_p": request.top_p,
        "user": request.user,
    }
    for code, value in absent.items():
        if value is not None:
            book.note(code, _ASKED_AS.get(code, code))
    if request.safety_id is not None:
        book.note("user", "safety_identifier")
    if request.logprobs:
        book.note("logprobs", "logprobs")
    if request.top_logprobs:
        book.note("logprobs", "top_logprobs")
    if request.stop:
        book.note("stop_sequences", "stop", f"{len(request.stop)} of them")
    if request.choices is not None and request.choices > 1:
        book.note("choices", "n", str(request.choices))
    if unknown := set(request.include) - _INCLUDED:
        book.note("include", "include", ", ".join(sorted(unknown)))
