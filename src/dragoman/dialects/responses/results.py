"""Result items, both ways: what tools gave back, of every kind.

A result that is a string or a list of content parts is read as such. The structured kinds (shell, tool search, approval)
keep the JSON of their one output field as text, so that any model can read it and this dialect can put it back.
"""

from typing import assert_never

from dragoman._json import Raw, is_strict
from dragoman.core.results import mark_error, unmark_error
from dragoman.dialects.responses.content import media_fields, read_content, split_data_url
from dragoman.dialects.responses.fields import (
    Fields,
    extra_of,
    is_present,
    own_fields,
    read_list,
    read_object,
    read_status,
    read_text,
    read_uncut,
    source_text,
    text_source,
)
from dragoman.dialects.responses.wire import RESULT_OF_KIND, ResultSpec
from dragoman.model.parts import Executor, Media, Opaque, Refusal, Result, Text

__all__ = ("read_result", "result_fields", "result_spec")


def read_result(spec: ResultSpec, fields: Fields, executor: Executor) -> Result:
    item_id = read_text(fields, "id") or None
    named = read_text(fields, "name") or None
    pair = read_text(fields, spec.pair) or ""
    known = {"type", "id", "status", spec.pair, spec.field}
    if not pair:
        known.add("name")
        # Local shell outputs carry the call's id as their own; an output that names its tool answers no call at all.
        pair = "" if named is not None else item_id or ""
    content, is_error = _output(spec, fields)
    if spec.kind == "apply_patch" and read_text(fields, "status") == "failed":
        is_error = True
    return Result(
        call_id=pair,
        content=content,
        is_error=is_error,
        kind=spec.kind,
        name=named,
        executor="provider" if read_text(fields, "execution") == "server" else executor,
        status=read_status(fields),
        item_id=item_id,
        extra=extra_of(fields, known),
    )


def _output(spec: ResultSpec, fields: Fields) -> tuple[tuple[Text | Media | Opaque, ...], bool]:
    value = fields.get(spec.field)
    if value is None or not is_present(value):
        return (), False
    if spec.form == "image":
        return (_screenshot(value),), False
    text = None if spec.form == "json" else read_uncut(fields, spec.field)
    if text is not None:
        said, is_error = unmark_error(text)
        return (Text(text=said),), is_error
    entries = read_list(value) if spec.form == "content" else None
    if entries is None:
        return (Text(text=source_text(value)),), False
    return _contents(entries)


def _contents(entries: list[Raw]) -> tuple[tuple[Text | Media | Opaque, ...], bool]:
    parts: list[Text | Media | Opaque] = []
    is_error = False
    for entry in entries:
        part = read_content(entry, read_object(entry))
        if isinstance(part, Refusal):
            part = Text(text=part.text)
        if isinstance(part, Text) and not parts:
            said, is_error = unmark_error(part.text)
            if is_error:
                part = Text(text=said, extra=part.extra)
        parts.append(part)
    return tuple(parts), is_error


def _screenshot(value: Raw) -> Media:
    fields = read_object(value)
    url = read_text(fields, "image_url")
    inline = split_data_url(url) if url else None
    return Media(
        kind="image",
        media_type=inline[0] if inline else None,
        data=inline[1] if inline else None,
        url=None if inline else url,
        file_id=read_text(fields, "file_id"),
        detail=read_text(fields, "detail"),
        extra=extra_of(fields, ("image_url", "file_id", "detail")),
    )


def result_spec(result: Result) -> ResultSpec | None:
    """The item for a result; None for what another vendor's own tools gave back."""
    spec = RESULT_OF_KIND.get(result.kind)
    if spec is None and result.executor != "provider":
        return RESULT_OF_KIND["function"]
    return spec


def result_fields(result: Result, spec: ResultSpec) -> dict[str, object]:
    """Everything but `id` and `status`."""
    out: dict[str, object] = {"type": spec.type}
    # A local shell's output may have the call's id for its own, and no other.
    if result.call_id and (spec.kind != "local_shell" or result.call_id != result.item_id):
        out[spec.pair] = result.call_id
    if result.name is not None and spec.kind == "function" and not result.call_id:
        out["name"] = result.name
    match spec.form:
        case "image":
            out[spec.field] = _screenshot_fields(result)
        case "json":
            out[spec.field] = _json_output(result, spec)
        case "text":
            if result.content or spec.kind != "apply_patch":
                out[spec.field] = _marked(result, _joined(result))
        case "content":
            out[spec.field] = _content_output(result)
        case _:
            assert_never(spec.form)
    return {**out, **own_fields(result.extra)}


def _joined(result: Result) -> str:
    return "\n".join(part.text for part in result.content if isinstance(part, Text))


def _marked(result: Result, text: str) -> str:
    # A failed patch says so by its status.
    return mark_error(text) if result.is_error and result.kind != "apply_patch" else text


def _content_output(result: Result) -> object:
    """A string where one text is all there is, else a list of parts."""
    content = result.content
    if not content:
        return _marked(result, "")
    first = content[0]
    if len(content) == 1 and isinstance(first, Text) and not own_fields(first.extra):
        return _marked(result, first.text)
    out: list[object] = []
    if result.is_error and not isinstance(first, Text):
        out.append({"type": "input_text", "text": mark_error("")})
    for number, part in enumerate(content):
        match part:
            case Text():
                text = _marked(result, part.text) if number == 0 else part.text
                out.append({"type": "input_text", "text": text, **own_fields(part.extra)})
            case Media():
                out.append(media_fields(part) or {"type": "input_text", "text": f"[{part.kind}]"})
            case Opaque():
                out.append(part.raw)
            case _:
                assert_never(part)
    return out


def _screenshot_fields(result: Result) -> dict[str, object]:
    for part in result.content:
        if isinstance(part, Media):
            fields = media_fields(part) or {}
            own = own_fields(part.extra)
            kept = {key: value for key, value in fields.items() if key in ("image_url", "file_id")}
            detail: dict[str, object] = {} if part.detail is None else {"detail": part.detail}
            return {"type": "computer_screenshot", **kept, **detail, **own}
    return {"type": "computer_screenshot"}


def _json_output(result: Result, spec: ResultSpec) -> object:
    text = _joined(result)
    if text and is_strict(text):
        return text_source(text)
    if spec.kind == "shell":
        exit_code = 1 if result.is_error else 0
        outcome = {"type": "exit", "exit_code": exit_code}
        return [{"stdout": text, "stderr": "", "outcome": outcome}]
    return False if spec.kind == "mcp_approval" else []
