"""The settings of a request (all but its conversation and tools) that differ between dialects only in their names.

Each dialect has one table (`SettingTable`) that reads and writes its settings. The dialect itself handles settings that
differ in more than their names.

Reasoning is requested by an effort word (OpenAI) or a budget of tokens (Anthropic). A word becomes a budget that a client
would choose itself; a budget becomes one of the three words that every reasoning model knows. `low`, `medium` and `high`
survive the round trip. This module does not know the limits of models.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from operator import attrgetter

from dragoman._json import Raw, as_object
from dragoman.core.aliases import short_user
from dragoman.core.fields import Fields
from dragoman.core.losses import LossBook
from dragoman.errors import MalformedJson, RequestRefused
from dragoman.model.request import Effort, Request

Reader = Callable[[Fields, str], object]

# Values that equal the default behaviour: dropping them loses nothing.
_IDLE: Mapping[str, tuple[object, ...]] = {
    "choices": (0, 1),
    "frequency_penalty": (0,),
    "logprobs": (False,),
    "parallel_calls": (True,),
    "presence_penalty": (0,),
    "store": (False,),
    "top_logprobs": (0,),
}


def request_fields(body: bytes) -> dict[str, Raw]:
    """The fields of a request body.

    Raises:
        RequestRefused: the body is not a JSON object in UTF-8.
    """
    try:
        if not body.isascii():
            body.decode("utf-8")
        return as_object(body, is_utf8=True)
    except UnicodeDecodeError as error:
        raise RequestRefused(f"expected UTF-8: {error}", code="invalid_json") from error
    except MalformedJson as error:
        raise RequestRefused(error.message, code="invalid_json") from error


# The constructor of a request, for attributes that a table read by their types.
make_request: Callable[..., Request] = Request


class SettingTable:
    """The settings of one dialect. `plain` maps the name on the wire to the attribute of `Request` and its reader.

    `others` has the same form; the table reads these settings, but the dialect writes them itself. The dialect reads and
    writes the fields in `apart`. `values`: the plain settings of a request, None for those that it does not state.
    """

    def __init__(
        self,
        plain: Mapping[str, tuple[str, Reader]],
        others: Mapping[str, tuple[str, Reader]],
        apart: Collection[str] = (),
    ) -> None:
        self._names = tuple(plain)
        self.values: Callable[[Request], tuple[object, ...]] = attrgetter(
            *(attribute for attribute, _ in plain.values())
        )
        self._nothing = (None,) * len(plain)
        self._readers = {**plain, **others}
        self._apart = frozenset(apart)
        self.fields = self._apart | self._readers.keys()

    def read(self, fields: Fields) -> tuple[dict[str, object], dict[str, Raw]]:
        """The attributes of a `Request` that these fields state, and the fields that the table does not have.

        A null field counts as absent.

        Raises:
            RequestRefused: a field has a value of another type.
        """
        readers = self._readers
        stated: dict[str, object] = {}
        rest: dict[str, Raw] = {}
        for name, raw in fields.items():
            known = readers.get(name)
            if known is not None:
                attribute, read = known
                value = read(fields, name)
                if value is not None:
                    stated[attribute] = value
            elif name not in self._apart:
                rest[name] = raw
        return stated, rest

    def write(self, request: Request) -> dict[str, object]:
        """The plain settings that a request states, by their names on the wire."""
        values = self.values(request)
        if values == self._nothing:  # as in most requests
            return {}
        return {name: value for name, value in zip(self._names, values) if value is not None}  # noqa: B905 -- of one length


def put(fields: dict[str, object], name: str, value: object) -> None:
    """Set a field, or remove it if the value is None."""
    if value is None:
        fields.pop(name, None)
    else:
        fields[name] = value


def unsaid_noter(codes: Mapping[str, tuple[str, str]]) -> Callable[[Request, LossBook], None]:
    """Return a function that reports settings for which a dialect has no field as losses.

    codes: for each attribute, the loss code and the client's field.
    """
    values: Callable[[Request], tuple[object, ...]] = attrgetter(*codes)
    nothing = values(Request())

    def note(request: Request, book: LossBook) -> None:
        stated = values(request)
        if stated == nothing:
            return
        for (attribute, (code, where)), value in zip(codes.items(), stated, strict=True):
            if value is not None and value not in _IDLE.get(attribute, ()):
                book.note(code, where)

    return note


def note_include(request: Request, book: LossBook, given: Iterable[str] = ()) -> None:
    """Report the `include` entries of a request as lost, except those that are `given` anyway."""
    wanted = [name for name in request.include if name not in given]
    if wanted:
        book.note("include", "include", ", ".join(wanted))


def settle_user(request: Request, book: LossBook) -> str | None:
    """The user id of a request, shortened or dropped (a loss) if it is too long for strict servers."""
    user = request.user
    if user is None or short_user(user) == user:
        return user
    return short_user(user) if book.note("long_user", "user") == "carry" else None


_BUDGETS: Mapping[Effort, int] = {
    "minimal": 1024,  # Anthropic's least
    "low": 2048,
    "medium": 8192,
    "high": 24_576,
    "xhigh": 32_768,
    "max": 63_999,  # the maximum of Anthropic's first reasoning models
}
# Claude Code sends budgets of 1024, 4000, 10000 and 31999 tokens, by how hard its user asks it to think.
_LOW_BELOW = 4096
_MEDIUM_BELOW = 16_384


def budget_from_effort(effort: Effort) -> int | None:
    """The budget for an effort word; None for `none`. An unknown word counts as `medium`."""
    if effort == "none":
        return None
    return _BUDGETS.get(effort, _BUDGETS["medium"])


def effort_from_budget(budget: int) -> Effort:
    """The nearest effort word for a budget; `none` for a budget of zero."""
    if budget <= 0:
        return "none"
    if budget < _LOW_BELOW:
        return "low"
    return "medium" if budget < _MEDIUM_BELOW else "high"
