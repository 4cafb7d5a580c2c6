"""Reads a user's words: words to find a tool by, and names, numbers and addresses for its arguments. Pure.

No language is understood. Names stand in quotation marks or begin with a capital; tools are found by the
words that they share with the text. Every pattern here is linear in the text.
"""

import re
from collections.abc import Iterable, Iterator

from msgspec import Struct

# A prompt may be a whole file; the user's own words are in its beginning.
MAX_TEXT = 20_000
# A longer name is a passage, not a name.
MAX_NAME = 200

_QUOTED = re.compile(
    rf"\"([^\"\n]{{1,{MAX_NAME}}})\"|“([^”\n]{{1,{MAX_NAME}}})”|«([^»\n]{{1,{MAX_NAME}}})»"
    rf"|`([^`\n]{{1,{MAX_NAME}}})`|(?<!\w)'([^'\n]{{1,{MAX_NAME}}})'(?!\w)"
)
_WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")
_LETTERS = re.compile(r"[^\W_]+")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_NUMBER = re.compile(r"(?<![\w.-])-?\d{1,15}(?:\.\d{1,15})?(?![\w-])")
_DATE = re.compile(r"(?<![\w-])\d{4}-\d{2}-\d{2}(?![\w-])")
_URL = re.compile(r"https?://[^\s\"'<>`]{1,2000}")
_PATH = re.compile(r"(?<![\w/:.~-])(?:~?/|\.{1,2}/)?[\w-][\w.-]{0,200}(?:/[\w.-]{1,200}){0,30}")
_AFTER = re.compile(r"\b(?:in|at|for|of|about|from|to|near|In|At|For|From)\s+([^\W\d_]+)")
_SENTENCE_ENDS = frozenset(".!?:;\n")


def vocabulary(words: str) -> frozenset[str]:
    """A set of words, each as written and without its plural."""
    listed = words.split()
    return frozenset((*listed, *map(_singular, listed)))


def _singular(word: str) -> str:
    if len(word) > 4 and word.endswith("ies"):
        return word[:-3] + "y"
    if len(word) > 3 and word.endswith("s") and not word.endswith("ss"):
        return word[:-1]
    return word


_STOP = vocabulary(
    "a an and any are as at be by can could did do does for from get give had has have how i if in into is it its let "
    "me my of on one or our out please should so some tell than that the their them then there these they this to up "
    "us use using was we were what when where which who why will with would you your"
)
# Sentences begin with these words, and the name follows: "Compare Paris with Rome."
_OPENERS = vocabulary(
    "book call check compare create describe explain fetch find fly hello hey hi list look lookup make need ok open "
    "read run say search send show summarise summarize translate try want write"
)


class UserWords(Struct, frozen=True):
    """`names`: candidates for strings, the likeliest first; `mentioned`: the stems of significant words."""

    text: str = ""
    mentioned: frozenset[str] = frozenset()
    names: tuple[str, ...] = ()
    numbers: tuple[float, ...] = ()
    dates: tuple[str, ...] = ()
    urls: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()


def read_words(text: str) -> UserWords:
    """Everything that is found in a text."""
    head = text[:MAX_TEXT]
    return UserWords(
        text=text,
        mentioned=stems(head),
        names=_names(head),
        numbers=tuple(float(found[0]) for found in _NUMBER.finditer(_URL.sub(" ", head))),
        dates=tuple(found[0] for found in _DATE.finditer(head)),
        urls=tuple(found[0].rstrip(".,;:!?)") for found in _URL.finditer(head)),
        paths=tuple(_paths(head)),
    )


def stems(text: str) -> frozenset[str]:
    """The significant words of a text without their plural; `getWeather` and `get_weather` are split too."""
    return frozenset(split_name(text)) - _STOP


def split_name(name: str) -> list[str]:
    """The words of a name or a text, in lower case and without their plural, in order."""
    return [_singular(word.lower()) for word in _LETTERS.findall(_HUMP.sub(" ", name))]


def _names(text: str) -> tuple[str, ...]:
    """Quoted words, then capitalised words, then words after a preposition; a sentence's first word if nothing else."""
    quoted = [next(filter(None, found.groups())) for found in _QUOTED.finditer(text)]
    runs = list(_capitalised(text))
    inside = [" ".join(run) for run, opens_sentence in runs if not opens_sentence or len(run) > 1]
    after = [word for word in _AFTER.findall(text) if word.islower() and word not in _STOP]
    openers = [run[0] for run, opens_sentence in runs if opens_sentence and len(run) == 1]
    return tuple(dict.fromkeys([*quoted, *inside, *after] or openers))


def _capitalised(text: str) -> Iterator[tuple[list[str], bool]]:
    """Runs of capitalised words, without words that any sentence may begin with."""
    run: list[str] = []
    opens = False
    end = -1
    for found in _WORD.finditer(text):
        word = found[0]
        is_next = text[end : found.start()] == " "
        if run and not (word[0].isupper() and is_next):
            yield from _trimmed(run, opens_sentence=opens)
            run = []
        if word[0].isupper():
            if not run:
                opens = _opens_sentence(text, found.start())
            run.append(word)
        end = found.end()
    if run:
        yield from _trimmed(run, opens_sentence=opens)


def _trimmed(run: list[str], *, opens_sentence: bool) -> Iterator[tuple[list[str], bool]]:
    """Remove words that are not names: `What`, `I'm` and `Compare` at the start of a sentence, `I` and `The` anywhere."""
    kept = list(run)
    while kept and _is_common(kept[0], opens_sentence=opens_sentence):
        kept.pop(0)
        opens_sentence = False
    if kept:
        yield kept, opens_sentence


def _is_common(word: str, *, opens_sentence: bool) -> bool:
    first = _LETTERS.findall(word)[0].lower()
    return first in _STOP or (opens_sentence and first in _OPENERS)


def _opens_sentence(text: str, start: int) -> bool:
    while start and text[start - 1] in " \t\"'“«`(":
        start -= 1
    return start == 0 or text[start - 1] in _SENTENCE_ENDS


def _paths(text: str) -> Iterable[str]:
    """Words that look like a file: with a slash, or with an ending such as `.md`."""
    for found in _PATH.finditer(text):
        path = found[0].rstrip(".-")
        name, dot, ending = path.rpartition(".")
        if "/" in path or (dot and name and 1 <= len(ending) <= 5 and ending.isalpha()):
            yield path
