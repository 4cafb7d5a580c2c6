"""Determines which commands a shell command line runs, and reports when they cannot be determined.

This parser of bash's grammar errs on the safe side. It may report a command that is not run (every word after `sudo` could be
one), and it says when it cannot determine which commands are run: `FoundCommands.hidden`. That is so for a name built from variables,
`eval` of an unknown text, arithmetic on variables (bash runs substitutions in their values), an alias, or a script from a
pipe. `FoundCommands.opaque` is weaker: the program is known, but it runs an argument or a file in a language of its own.

What a program does by itself is not examined: a Makefile, a hook of git, a program that starts another.
"""

import re
import shlex
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import dropwhile, takewhile

from msgspec import Struct

from dragoman.engine.programs import (
    BUILTIN_WRAPPERS,
    EVALUATING,
    GIVING_INPUT,
    HIDING_BUILTINS,
    INTERPRETERS,
    JOINING,
    NAMING_BUILTINS,
    READING_SCRIPTS,
    REPLACES,
    RUN_ARGUMENTS,
    RUNNING_VARIABLES,
    SCRIPT_SIGNS,
    SEARCHING,
    SHELLS,
    SYSTEM_FOLDERS,
    WRAPPERS,
    may_run_argument,
    option_values,
)

# The kernel accepts no longer command. A longer text is not examined.
MAX_COMMAND = 131_072
# People do not write so many levels of quotes and substitutions by hand.
MAX_NESTED = 12
# Nested scripts are parsed again; a command that needs this much work is suspicious.
MAX_WORK = 8 * MAX_COMMAND
# Wrappers are followed up to this many words: `sudo -u me env A=b nice -n 5 timeout 10 …`.
MAX_WRAPPED = 40
# Characters that are reported from each word after a wrapper on: no pattern for a command needs more.
MAX_LOOKED_AT = 200
MAX_RESERVED = 32
MAX_SPLITS = 8
# Places at which the command of a wrapper that joins its words may begin, behind its options.
MAX_JOINED = 4

_RESERVED = frozenset(
    ("if", "then", "elif", "else", "do", "while", "until", "!", "{", "}", "fi", "done", "esac", "&")
)
_BEFORE_NAME = frozenset(("function", "for", "select"))
_BEFORE_RESERVED = _RESERVED | _BEFORE_NAME
_LISTS = frozenset(("for", "select", "case"))
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*(?:\[[^\]]*\])?\+?=")
_BLANKS = " \t"
_ENDS_WORD = frozenset(" \t\n;&|()<>")
_LINE_ENDS = frozenset("\n\r")
# One command with exactly these words. Inside double quotes only substitutions count (`$(…)`, `${…}`, `$[…]`, backquotes),
# inside single quotes nothing does; `$'…'` has escapes of its own.
_ONE_COMMAND = re.compile(
    r"""(?: [^;&|<>(){}`\n\r\0'"\\$] | \\. | \\\Z | \$(?![({\['])
          | '[^']*' | "(?: [^"\\`$\0] | \\. | \$(?![({\[]) )*" )*""",
    re.VERBOSE | re.DOTALL,
)
_NUMBERS = re.compile(r"[\d\s+\-*/%()<>=!&|^~?:,]*")
_PLAIN_PARAMETER = re.compile(r"[#!]?[A-Za-z_]\w*\}|[@*#?$!\d-]+\}")
_PARAMETER = re.compile(r"(?:[A-Za-z_]\w*|[@*\d]+)(?::?[-+?=]|##?|%%?|//?|/[#%]|\^\^?|,,?)")
_REDIRECTED = re.compile(r"(?:\d+|\{\w+\})(?=[<>])")
_COMPARED = re.compile(r"-(?:eq|ne|lt|le|gt|ge|v|R)\b")


class FoundCommands(Struct, frozen=True):
    """The commands that a command line runs, as far as they can be determined.

    commands: each command, with a wrapper such as `sudo` and without. beginnings: the known first words of commands whose
    other words are unknown. hidden: why the commands cannot be determined. opaque: why a program may run others.
    """

    commands: tuple[str, ...] = ()
    beginnings: tuple[str, ...] = ()
    hidden: str = ""
    opaque: str = ""


def command_text(argv: Sequence[str]) -> str:
    """The command line for a list of words. `bash -lc script` is the script."""
    script = script_of(argv)
    return shlex.join(argv) if script is None else script


def script_of(argv: Sequence[str]) -> str | None:
    """The script of a shell that is called with `-c` and nothing else; None for any other command."""
    if not argv or argv[0].rpartition("/")[2] not in SHELLS:
        return None
    for at, word in enumerate(argv[1:], 1):
        if not word.startswith(("-", "+")):
            return None
        if not word.startswith("--") and "c" in word and word.startswith("-"):
            # There may be options before the script, and arguments for it after it.
            return argv[at + 1] if len(argv) == at + 2 else None
    return None


@lru_cache(16)  # every rule of a policy asks again
def is_compound(command: str) -> bool:
    """Whether a shell would do more than run one command with exactly these words.

    Several lines count as compound, even in quotes: a person could overlook one.
    """
    is_plain = len(command) <= MAX_COMMAND and not _LINE_ENDS & {*command}
    return not is_plain or not _ONE_COMMAND.fullmatch(command)


@lru_cache(16)
def find_commands(command: str) -> FoundCommands:
    """The commands that a shell would run for this text."""
    found = _Found()
    if len(command) > MAX_COMMAND:
        found.hide("it is too long to be examined")
    found.read_script(command[:MAX_COMMAND], 0)
    if found.reads_input:
        for body in found.bodies:
            found.read_script(body, 1)
    return FoundCommands(tuple(found.commands), tuple(found.beginnings), found.hidden, found.opaque)


class _Found:
    """The commands found so far, and why others cannot be determined. Only the first reason is kept."""

    def __init__(self) -> None:
        self.commands: dict[str, None] = {}
        self.beginnings: dict[str, None] = {}
        self.hidden = ""
        self.opaque = ""
        self.bodies: list[str] = []  # of here-documents and here-strings
        self.reads_input = False  # some shell runs its standard input
        self.scripts: set[str] = set()  # the scripts that were parsed
        self.work = 0  # characters that were parsed

    def hide(self, reason: str) -> None:
        self.hidden = self.hidden or reason

    def read_script(self, text: str, depth: int) -> None:
        """Parse a text that a shell runs, unless it was parsed before."""
        # A line may go on within any sign or word: also read it as one line.
        for each in dict.fromkeys((text, _joined(text))):
            if each not in self.scripts:
                self.scripts.add(each)
                _Script(each, self, depth).read_all()

    def note_assignment(self, text: str) -> None:
        name = text.partition("=")[0].rstrip("+")
        if RUNNING_VARIABLES.fullmatch(name):
            self.hide(f"it sets {name}, which changes what is run")

    def mark_opaque(self, reason: str) -> None:
        self.opaque = self.opaque or reason


class _Word(Struct):
    """A word without its quotes. `known`: how many of its first characters the shell will not change; -1: all."""

    text: str
    known: int = -1
    is_quoted: bool = False

    @property
    def is_literal(self) -> bool:
        return self.known < 0

    @property
    def plain(self) -> str:
        """The text if the word can be a reserved word of the grammar, else an empty text."""
        return "" if self.is_quoted or not self.is_literal else self.text


class _Script:
    """Text in a shell's grammar, read once from its beginning to its end."""

    def __init__(self, text: str, found: _Found, depth: int) -> None:
        self._text = text
        self._found = found
        self._depth = depth
        self._at = 0
        self._is_redirected = False  # the current command has a redirection
        self._splits: list[int] = []  # how many words of the current command come before each `&>`
        self._has_test = False  # the text has a `[[`
        # Here-documents whose text follows the line.
        self._documents: list[tuple[str, bool, bool]] = []
        found.work += len(text)
        if depth >= MAX_NESTED or found.work > MAX_WORK:
            found.hide("it is nested too deeply")
            self._text = ""

    def read_all(self) -> None:
        self._commands("")

    # --- lists of commands -------------------------------------------------------------------------------------------

    def _commands(self, closer: str) -> None:
        """Read commands until the closer, or the end of the text."""
        words: list[_Word] = []
        cases = 0
        text = self._text
        self._depth += 1
        was_redirected, self._is_redirected = self._is_redirected, False
        splits, self._splits = self._splits, []
        while self._at < len(text):
            char = text[self._at]
            if text.startswith("\\\n", self._at):
                self._at += 2
            elif char == ")":
                self._end(words)
                self._at += 1
                if not cases and closer == ")":
                    break
                if not cases:
                    self._found.hide("its brackets do not match")
            elif char in " \t#\n;&|(<>":
                self._sign(char, words)
            elif redirected := _REDIRECTED.match(text, self._at):
                self._found.note_assignment(redirected[0].strip("{}"))
                self._at = redirected.end()
            else:
                words.append(self._word())
                change = self._note(words)
                if change > 0 and (cases or closer):
                    # This parser does not distinguish the bracket after a pattern of `case` from the closing one.
                    self._found.hide("it has a `case` inside another construct")
                cases = max(cases + change, 0)
        else:
            if closer:
                self._found.hide("its brackets do not match")
        self._end(words)
        if closer and self._documents:
            self._found.hide("its here-document does not end where it begins")
        self._is_redirected, self._splits = was_redirected, splits
        self._depth -= 1

    def _sign(self, char: str, words: list[_Word]) -> None:
        """Read a sign between words."""
        if char in _BLANKS:
            self._at += 1
        elif char == "#":
            self._skip_comment()
        elif char == "(":
            self._open(words)
        elif char in "<>" or self._text.startswith("&>", self._at):
            self._redirect(words)
        else:
            self._end(words)
            self._at += 1
            if char == "\n":
                self._read_documents()

    def _skip_comment(self) -> None:
        end = self._text.find("\n", self._at)
        self._at = len(self._text) if end < 0 else end

    def _note(self, words: list[_Word]) -> int:
        """Note what the last word changes for the next words. Returns 1 if it opens a `case`, -1 if it closes one, else 0."""
        if words[-1].text == "[[":
            self._test()
        change = {"case": 1, "esac": -1}.get(words[-1].plain, 0)
        if not change or self._is_redirected:  # after a redirection no word is reserved
            return 0
        at = 0
        while at < min(len(words) - 1, MAX_RESERVED) and words[at].plain in _BEFORE_RESERVED:
            at += 2 if words[at].plain in _BEFORE_NAME else 1
        if at >= MAX_RESERVED or words[min(at, len(words) - 1)].plain in ("time", "coproc"):
            self._found.hide("it has a `case` behind other words")
        return change if at == len(words) - 1 else 0

    def _open(self, words: list[_Word]) -> None:
        """A bracket: a subshell, arithmetic, a function, or the values of an array."""
        if self._depth >= MAX_NESTED:
            self._found.hide("it is nested too deeply")
            self._at = len(self._text)
            return
        is_array = bool(words) and self._text[self._at - 1] == "="
        if self._text.startswith("((", self._at):
            self._found.hide("it has arithmetic, which may run what a variable holds")
        if not is_array:
            self._end(words)
        self._at += 1
        # The values of an array are words; treating them as a command does no harm.
        self._commands(")")

    def _test(self) -> None:
        """Parse `[[ … ]]` as a command like any other, because `sh` may be a shell without `[[`.

        Text that bash reads differently is reported as hidden: comparisons of numbers, and patterns in which `#` begins no
        comment.
        """
        if self._has_test:
            return
        self._has_test = True
        if _COMPARED.search(self._text, self._at):
            self._found.hide("it compares numbers in [[ ]], which may run what a variable holds")
        elif "#" in self._text[self._at :]:
            self._found.hide("it has a # after [[")

    # --- one command -------------------------------------------------------------------------------------------------

    def _end(self, words: list[_Word]) -> None:
        """A command is complete."""
        self._is_redirected = False
        splits, self._splits = self._splits, []
        for at in splits:
            # A shell without `&>` ends the command at the `&`.
            self._end(words[at:])
        rest = list(dropwhile(lambda word: word.plain in _RESERVED, words))
        words.clear()
        if rest and rest[0].plain == "function":
            rest = rest[2:]
            return self._end(rest)
        if rest and rest[0].plain in _LISTS:
            self._found.note_assignment("".join(word.text for word in rest[1:2]))
            # `for name do command`: all other forms have a separator before their commands.
            rest = rest[3:] if len(rest) > 2 and rest[2].plain == "do" else []
            return self._end(rest) if rest else None
        if rest and _ASSIGNMENT.match(rest[0].text):
            self._found.commands[" ".join(_shown(word.text) for word in rest)] = None
        for word in takewhile(lambda word: _ASSIGNMENT.match(word.text), rest):
            if "[" in word.text.partition("=")[0]:
                self._found.hide(
                    "it sets a member of an array, whose number may run what a variable holds"
                )
            self._found.note_assignment(word.text)
        rest = list(dropwhile(lambda word: _ASSIGNMENT.match(word.text), rest))
        if rest:
            _Command(rest, self._found, self._depth).look()
        return None

    # --- redirections ------------------------------------------------------------------------------------------------

    def _redirect(self, words: list[_Word]) -> None:
        text = self._text
        if text.startswith(("<(", ">("), self._at):
            words.append(self._word())
            return
        self._is_redirected = True
        if text.startswith("&", self._at):
            self._splits.append(len(words))
            if len(self._splits) > MAX_SPLITS:
                self._splits.pop()
                self._found.hide("it has too many redirections")
        sign = re.compile(r"<<<|<<-?|&>>?|[<>][&|>]*&?|&").match(text, self._at)
        assert sign is not None  # noqa: S101 -- the caller checked the first character
        self._at = sign.end()
        while self._at < len(text) and (
            text[self._at] in _BLANKS or text.startswith("\\\n", self._at)
        ):
            self._at += 1 if text[self._at] in _BLANKS else 2
        begin = self._at
        target = self._word()
        if sign[0] == "<<<":
            self._found.bodies.append(target.text)
        elif sign[0].startswith("<<"):
            is_quoted = any(char in "'\"\\" for char in _joined(text[begin : self._at]))
            self._documents.append((target.text, is_quoted, sign[0] == "<<-"))

    def _read_documents(self) -> None:
        for end, is_quoted, is_indented in self._documents:
            lines: list[str] = []
            while self._at < len(self._text):
                stop = self._text.find("\n", self._at)
                stop = len(self._text) if stop < 0 else stop
                line = self._text[self._at : stop]
                self._at = stop + 1
                if (line.lstrip("\t") if is_indented else line) == end:
                    break
                lines.append(line)
            body = "\n".join(lines)
            self._found.bodies.append(body)
            if not is_quoted:
                inner = _Script(body, self._found, self._depth)
                inner.expand("")
        self._documents.clear()

    # --- words -------------------------------------------------------------------------------------------------------

    def _word(self) -> _Word:
        """The word that begins here."""
        text = self._text
        begin = self._at
        pieces: list[str] = []
        size, known = 0, -1
        is_quoted = False
        while self._at < len(text):
            char = text[self._at]
            is_known = True
            is_joined = text.startswith("\\\n", self._at)  # a line that goes on is no quote
            is_quoted = is_quoted or (char in "\\'\"" and not is_joined)
            if char == "\\":
                piece = (
                    "" if text.startswith("\\\n", self._at) else text[self._at + 1 : self._at + 2]
                )
                self._at += 2
            elif char == "'":
                piece = self._single()
            elif char == '"':
                piece, is_known = self._double()
            elif char in "$`" or text.startswith(("<(", ">("), self._at):
                piece, is_known = self._expansion(is_in_quotes=False)
            elif char in _ENDS_WORD:
                break
            else:
                # Patterns and braces expand to other words; an empty pair of braces is literal.
                piece = "{}" if text.startswith("{}", self._at) else char
                is_known = char not in "*?[{" or piece == "{}"
                self._at += len(piece)
            known = size if not is_known and known < 0 else known
            size += len(piece)
            pieces.append(piece)
        if self._at == begin:  # a sign where a word was expected
            self._at += 1
        whole = "".join(pieces)
        if whole in ("[", "[[", "{", "}"):
            known = -1
        return _Word(whole, known, is_quoted)

    def _single(self) -> str:
        end = self._text.find("'", self._at + 1)
        if end < 0:
            self._found.hide("its quotes do not match")
            end = len(self._text)
        inner = self._text[self._at + 1 : end]
        self._at = end + 1
        return inner

    def _double(self) -> tuple[str, bool]:
        self._at += 1
        return self.expand('"')

    def expand(self, closer: str) -> tuple[str, bool]:
        """Parse text as in double quotes, where only substitutions count, up to the closer or the end of the text."""
        text = self._text
        pieces: list[str] = []
        is_known = True
        while self._at < len(text):
            char = text[self._at]
            if char == closer:
                self._at += 1
                return "".join(pieces), is_known
            if char == "\\":
                after = text[self._at + 1 : self._at + 2]
                pieces.append(
                    "" if after == "\n" else after if after and after in '$`"\\}' else char + after
                )
                self._at += 2
            elif char == "`" and closer != '"':
                # In a here-document a backslash before a quote stays; in a parameter it depends on what is around it.
                begin, is_known = self._at, False
                for is_in_quotes in (False, True) if closer else (False,):
                    self._at = begin
                    self._backquoted(is_in_quotes=is_in_quotes)
                pieces.append(text[begin : self._at])
            elif char in "$`":
                piece, is_piece_known = self._expansion(is_in_quotes=True)
                is_known = is_known and is_piece_known
                pieces.append(piece)
            elif closer == "}" and text.startswith(("<(", ">("), self._at):
                is_known = False
                pieces.append(self._expansion(is_in_quotes=True)[0])
            elif closer == "}" and char == "'":
                pieces.append(self._single())
            elif closer == "}" and char == '"':
                inner, is_piece_known = self._double()
                is_known = is_known and is_piece_known
                pieces.append(inner)
            else:
                pieces.append(char)
                self._at += 1
        if closer:
            self._found.hide("its quotes do not match")
        return "".join(pieces), is_known

    def _expansion(self, *, is_in_quotes: bool) -> tuple[str, bool]:
        """Parse an expansion that begins with a dollar or backquote. Returns its text, and whether the shell keeps that text."""
        text, begin = self._text, self._at
        after = text[begin + 1 : begin + 2]
        is_known = False
        if self._depth >= MAX_NESTED:
            self._found.hide("it is nested too deeply")
            self._at = len(text)
        elif text[begin] == "`":
            self._backquoted(is_in_quotes=is_in_quotes)
        elif text[begin] in "<>":
            self._at += 2
            self._commands(")")
        elif text.startswith("$((", begin) and (end := _arithmetic_end(text, begin + 3)):
            self._at = end
        elif after == "(":
            if text.startswith("$((", begin):
                self._found.hide("it has arithmetic, which may run what a variable holds")
            self._at += 2
            self._commands(")")
        elif after == "{":
            self._parameter(is_in_quotes=is_in_quotes)
        elif after == "[":
            self._found.hide("it has arithmetic, which may run what a variable holds")
            self._at += 2
        elif after == "'" and not is_in_quotes:
            self._escaped()
        elif after == '"' and not is_in_quotes:
            self._at += 1
            return "", True
        elif variable := re.compile(r"\$(?:[A-Za-z_]\w*|[@*#?$!\d-])").match(text, begin):
            self._at = variable.end()
        else:
            self._at += 1
            is_known = True
        return text[begin : self._at], is_known

    def _backquoted(self, *, is_in_quotes: bool) -> None:
        at = self._at + 1
        escaped = '`\\$"' if is_in_quotes else "`\\$"
        pieces: list[str] = []
        while at < len(self._text) and self._text[at] != "`":
            if (
                self._text[at] == "\\"
                and (after := self._text[at + 1 : at + 2])
                and after in escaped
            ):
                at += 1
            pieces.append(self._text[at : at + 1])
            at += 1
        if at >= len(self._text):
            self._found.hide("its quotes do not match")
        self._at = at + 1
        _Script("".join(pieces), self._found, self._depth).read_all()

    def _escaped(self) -> None:
        """Parse `$'…'`; its escapes are not decoded."""
        end = re.compile(r"\$'(?:[^'\\]|\\.)*'", re.DOTALL).match(self._text, self._at)
        if end is None:
            self._found.hide("its quotes do not match")
        elif "\\'" in end[0]:
            self._found.hide("it has a quote within $'', which not every shell knows")
        self._at = len(self._text) if end is None else end.end()

    def _parameter(self, *, is_in_quotes: bool) -> None:
        """Parse `${…}`. In quotes, the meaning of quotes inside depends on the operator."""
        self._at += 2
        plain = _PLAIN_PARAMETER.match(self._text, self._at)
        if plain is not None:
            if plain[0][0] == "!" and len(plain[0]) > 2:
                self._found.hide("it uses a variable whose name another variable holds")
            self._at = plain.end()
            return
        known = _PARAMETER.match(self._text, self._at)
        if known is not None and known[0].endswith("="):
            self._found.note_assignment(known[0].rstrip(":="))
        if known is None and not re.compile(r"[A-Za-z_]\w*\[[@*\d]+\]\}").match(
            self._text, self._at
        ):
            self._found.hide("it changes a variable in a way that may run what it holds")
        self._depth += 1
        begin = self._at = self._at if known is None else known.end()
        self.expand("}")
        if is_in_quotes and any(char in "'\"" for char in self._text[begin : self._at]):
            self._found.hide("it has quotes within a variable within quotes")
        self._depth -= 1


def _joined(text: str) -> str:
    """The text without the ends of lines that go on. A backslash after another one joins no lines."""
    return re.sub(r"(?<!\\)((?:\\\\)*)\\\n", r"\1", text)


def _arithmetic_end(text: str, begin: int) -> int:
    """The end of `$((…))` if it contains only numbers; 0 if it contains anything else."""
    numbers = _NUMBERS.match(text, begin)
    end = begin if numbers is None else numbers.end()
    return end if text[max(end - 2, begin) : end] == "))" else 0


class _Command:
    """One command: its words, and the programs that they run."""

    def __init__(self, words: Sequence[_Word], found: _Found, depth: int) -> None:
        self._words = words
        self._found = found
        self._depth = depth

    def look(self) -> None:
        words, found = self._words, self._found
        name = words[0].text
        base = name.rpartition("/")[2]
        if not words[0].is_literal:
            found.hide(f"the name of a command is put together when it runs: {name[:80]}")
        self._add(words)
        if base != name:
            self._add([_Word(base, words[0].known), *words[1:]])
            folder = name.rpartition("/")[0]
            if folder not in SYSTEM_FOLDERS and not (folder == "" and name.startswith("/")):
                found.mark_opaque(f"it runs a program of the folder: {name[:80]}")
        if base == "eval":
            self._evaluate(words[1:])
        elif base == "trap":
            self._evaluate(list(dropwhile(lambda word: word.text == "--", words[1:]))[:1])
        elif base in (".", "source"):
            found.mark_opaque("it runs a script")
        elif base in SHELLS:
            self._shell(words[1:])
        elif base in WRAPPERS:
            self._wrapper(base)
        else:
            self.look_at_program(base)

    def _add(self, words: Sequence[_Word]) -> None:
        """Record a command as text, or its beginning if not all of its words are known."""
        self._found.commands[" ".join(_shown(word.text) for word in words)] = None
        for at, word in enumerate(words):
            if not word.is_literal:
                before = [_shown(each.text) for each in words[:at]]
                self._found.beginnings[" ".join([*before, word.text[: word.known]])] = None
                return

    def look_at_program(self, base: str) -> None:
        """A program that is neither a shell nor a wrapper."""
        words, found = self._words, self._found
        arguments = words[1:]
        if INTERPRETERS.fullmatch(base):
            found.mark_opaque(f"{base} runs a program in a language of its own")
        elif base in HIDING_BUILTINS:
            found.hide(f"{base} may change what is run")
        elif base in NAMING_BUILTINS:
            if any(_may_evaluate(base, word) for word in arguments):
                found.hide(f"{base} may run what a variable holds")
            for word in arguments:
                is_assigned = _ASSIGNMENT.match(word.text) and base not in ("test", "[", "printf")
                if is_assigned or base in ("read", "getopts"):
                    found.note_assignment(word.text)
        elif base in RUN_ARGUMENTS and (
            any(not word.is_literal and not word.is_quoted for word in arguments)
            or may_run_argument(base, [word.text for word in arguments])
        ):
            found.hide(f"{base} may run what an argument says")

    def _evaluate(self, words: Sequence[_Word]) -> None:
        if all(word.is_literal for word in words):
            text = " ".join(word.text for word in words)
            self._found.read_script(text.removeprefix("-- "), self._depth + 1)
        else:
            self._found.hide("it evaluates a text that is put together when it runs")

    def _shell(self, words: Sequence[_Word]) -> None:
        """A shell that is called as a command: examine its script, wherever it is among the words."""
        flags = [at for at, word in enumerate(words) if re.fullmatch(r"-\w*c\w*", word.text)]
        if not flags:
            operands = [word for word in words if not word.text.startswith(("-", "+"))]
            if operands and not any(word.text in ("-s", "-i") for word in words):
                self._found.mark_opaque("it runs a script")
            else:
                self._found.reads_input = True
                self._found.hide("a shell runs what it is given as input")
            return
        for word in words[flags[0] + 1 :]:
            if not word.is_literal:
                self._found.hide("a shell runs a text that is put together when it runs")
            elif not word.text.startswith(("-", "+")):
                self._found.read_script(word.text, self._depth + 1)

    def _wrapper(self, base: str) -> None:
        """A wrapper: any of the words after it may be the command, and any of them a script."""
        words, found = self._words, self._found
        first = _first_wrapped(base, words)
        if len(words) - first >= MAX_WRAPPED:
            found.hide("it has too many words to be looked at")
        self.check_wrapped(base)
        gives_input = any(_base(word) in GIVING_INPUT for word in words)
        more = [_Word("…", 0)] if gives_input else []
        is_of_env = any(_base(word) == "env" for word in words)
        for at in range(first, min(len(words), first + MAX_WRAPPED)):
            word = words[at]
            if _ASSIGNMENT.match(word.text):
                found.note_assignment(word.text)
            rest = [*words[at : at + MAX_LOOKED_AT], *more]
            self._add(rest)
            inner = word.text.rpartition("/")[2]
            if inner != word.text:
                self._add([_Word(inner, word.known), *rest[1:]])
            if inner in SHELLS or (inner in EVALUATING and base in BUILTIN_WRAPPERS):
                _Command(rest, found, self._depth).look()
            elif inner in WRAPPERS:
                _Command(rest, found, self._depth).check_wrapped(inner)
            elif _is_program(word):
                _Command(rest, found, self._depth).look_at_program(inner)
            self._look_into(rest, is_of_env=is_of_env)

    def check_wrapped(self, base: str) -> None:
        """Report as hidden a wrapped command that is built from input or variables."""
        words, found = self._words[1:], self._found
        if base in GIVING_INPUT and any(REPLACES.match(word.text) for word in words):
            found.hide(f"{base} puts its input into the command")
        for word in words:
            if not word.is_literal:
                found.hide(f"{base} runs what is put together when it runs")
            if base not in SEARCHING and base not in JOINING and _is_program(word):
                break
        program = next(filter(_is_program, words), _Word(""))
        if base in GIVING_INPUT:
            inner = _base(program)
            if inner in WRAPPERS or inner in SHELLS or inner in EVALUATING:
                found.hide(f"{base} gives its input to {inner}")
        if base in READING_SCRIPTS or (base == "parallel" and not program.text):
            found.reads_input = True
            found.hide(f"{base} runs what it is given as input")
        if base in JOINING:
            self._read_joined(base, program)

    def _read_joined(self, base: str, program: _Word) -> None:
        """The script that a wrapper makes of the words after its options. Only the wrapper knows where the options end."""
        words = self._words[1:]
        begins = [at for at, word in enumerate(words) if not word.text.startswith("-")]
        for at in begins[:MAX_JOINED]:
            joined = " ".join(word.text for word in words[at : at + MAX_LOOKED_AT])
            self._found.read_script(joined, self._depth + 1)
        scripts = [word.text for word in words if re.search(r"\s", word.text)]
        if base == "parallel" and any("{" in text for text in (program.text, *scripts)):
            self._found.hide("parallel may put its input into a script")

    def _look_into(self, words: Sequence[_Word], *, is_of_env: bool) -> None:
        """A script in one word: `flock file -c '…'`, `env -S'…' …`, `script -qc'…'`, `env --split-string='…' …`."""
        word, text = words[0], words[0].text
        more = [shlex.quote(each.text) if each.is_literal else each.text for each in words[1:]]
        scripts = {text} if SCRIPT_SIGNS.search(text) else set[str]()
        scripts |= {" ".join([value, *more]) for value in option_values(text)}
        if any(sign in text for sign in "'\"\\"):
            with suppress(ValueError):  # a shell does not run quotes that do not match
                scripts.add(shlex.join(shlex.split(text)))
        if scripts and not word.is_literal:
            self._found.hide("it runs a text that is put together when it runs")
        if is_of_env and text in scripts:
            scripts.add(" ".join([text, *more]))
        if is_of_env:
            # It takes more for an assignment than a shell does.
            scripts |= {f"env {script}" for script in scripts if script != text or " " in text}
        for script in sorted(scripts):
            self._found.read_script(script, self._depth + 1)


def _first_wrapped(base: str, words: Sequence[_Word]) -> int:
    """The index of the first word that may be the command; past the end if none may."""
    if base not in SEARCHING:
        return 1
    places = (at + 1 for at, word in enumerate(words) if word.text in SEARCHING[base])
    return next(places, len(words))


def _base(word: _Word) -> str:
    """The name of a program without its folder."""
    return word.text.rpartition("/")[2]


def _is_program(word: _Word) -> bool:
    """Whether a word after a wrapper can be the command, rather than an option, a number or an assignment."""
    text = word.text
    is_other = (
        text.startswith("-") or _ASSIGNMENT.match(text) or re.fullmatch(r"[\d.]+[smhd]?", text)
    )
    return bool(text) and not is_other


def _may_evaluate(base: str, word: _Word) -> bool:
    """Whether an argument of a builtin that takes names of variables can be more than a name."""
    text = word.text
    if base in ("test", "["):
        return text in ("-v", "-R")
    if base == "printf":
        return text.startswith("-v")
    if base == "set":
        return bool(re.fullmatch(r"[-+]\w*x\w*|xtrace", text)) and not word.is_quoted
    if base in ("declare", "typeset", "local", "export", "readonly") and re.fullmatch(
        r"-\w*[inA]\w*", text
    ):
        return True
    return "[" in text.partition("=")[0] or (not word.is_literal and word.known == 0)


def _shown(text: str) -> str:
    """A word as rules write it: in quotes if it has blanks, else unchanged."""
    return text if text and not any(char.isspace() for char in text) else shlex.quote(text)
