"""The line editor, on a terminal that can move its cursor. It is prompt_toolkit's.

It sees a paste as one piece (bracketed paste), so a paste of any length and number of lines is one text. Enter sends the text;
Alt-Enter, or a backslash at its end, begins a new line. Ctrl-C empties the line; on an empty line it is a signal, as usual.
"""

import os
import signal
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TextIO, cast

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import DummyHistory, History
from prompt_toolkit.input import create_input
from prompt_toolkit.input.typeahead import clear_typeahead
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.shortcuts import CompleteStyle

from dragoman._json import dumps, loads
from dragoman.cli.run.keyboard import TypeAhead, can_read, until_silent
from dragoman.config.environment import write_private
from dragoman.errors import MalformedJson

_LINE_ENDS = (Keys.ControlM, Keys.ControlJ)
MAX_HISTORY = 1_000
"""Questions in the history. Older ones are dropped when a run starts."""
MAX_HISTORY_TEXT = 32_768
"""Characters of a question in the history: a longer one is a pasted document."""


class QuestionHistory(History):
    """The questions of one user, as JSON lines in a file that only its owner can read.

    may_keep: whether a question may be stored. One that begins with a space never is.
    """

    def __init__(self, path: Path, may_keep: Callable[[str], bool]) -> None:
        super().__init__()
        self._path = path
        self._may_keep = may_keep

    def load_history_strings(self) -> Iterable[str]:
        """The newest first."""
        try:
            lines = self._path.read_bytes().splitlines()
        except OSError:
            return []
        found: list[str] = []
        for line in lines[-MAX_HISTORY:]:
            with suppress(MalformedJson):
                text = cast("object", loads(line))
                if isinstance(text, str):
                    found.append(text)
        if len(lines) > MAX_HISTORY:
            with suppress(OSError):
                write_private(self._path, b"".join(dumps(text) + b"\n" for text in found))
        return reversed(found)

    def store_string(self, string: str) -> None:
        if string[:1].isspace() or len(string) > MAX_HISTORY_TEXT or not self._may_keep(string):
            return
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        with suppress(OSError):  # a history that cannot be written is no reason to stop
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(self._path, flags, 0o600)
            with os.fdopen(descriptor, "ab") as stream:
                stream.write(dumps(string.encode("utf-8", "replace").decode()) + b"\n")


class _CommandCompleter(Completer):
    """Completes the first word of a line that begins with a slash."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterable[Completion]:
        del complete_event
        typed = document.text_before_cursor
        if typed.startswith("/"):
            for name in self._names:
                if name.startswith(typed):
                    yield Completion(name, start_position=-len(typed))


class LineEditor:
    """Reads from one terminal with an editor, and draws on the same terminal. It is a `Keyboard`."""

    def __init__(
        self,
        stdin: TextIO,
        stream: TextIO,
        ahead: TypeAhead,
        *,
        history: History,
        commands: Sequence[str] = (),
        has_colours: bool = True,
    ) -> None:
        self._descriptor = stdin.fileno()
        self._ahead = ahead
        self._hint = ""
        self._input = create_input(stdin)
        # No question about the position of the cursor: a late answer of the terminal would count as typed.
        depth = None if has_colours else ColorDepth.DEPTH_1_BIT
        output = Vt100_Output.from_pty(stream, os.environ.get("TERM"), depth, enable_bell=False)
        output.enable_cpr = False
        self._questions: PromptSession[str] = PromptSession(
            history=history,
            completer=_CommandCompleter(commands),
            complete_while_typing=False,
            complete_style=CompleteStyle.READLINE_LIKE,
            reserve_space_for_menu=0,
            multiline=True,
            prompt_continuation="  ",
            key_bindings=self._question_keys(),
            enable_suspend=True,
            input=self._input,
            output=output,
        )
        self._answers: PromptSession[str] = PromptSession(
            history=DummyHistory(),
            key_bindings=_keys(),
            enable_suspend=True,
            input=self._input,
            output=output,
        )

    async def read(self, prompt: str) -> str | None:
        return await self._prompt(self._answers, prompt, lambda: "")

    async def read_question(self, prompt: str) -> str | None:
        return await self._prompt(self._questions, prompt, self._ahead.take)

    def remind(self, prompt: str, text: str) -> None:
        del prompt  # the editor draws it again itself
        self._hint = text
        self._questions.app.invalidate()

    async def _prompt(
        self, session: "PromptSession[str]", prompt: str, default: Callable[[], str]
    ) -> str | None:
        self._hint = ""
        with self._ahead.paused(), suppress(EOFError):
            self._ahead.add(await until_silent(self._descriptor))
            clear_typeahead(self._input)
            return await session.prompt_async(
                lambda: f"{self._hint}\n{prompt}" if self._hint else prompt,
                default=default(),
                set_exception_handler=False,
                handle_sigint=False,
            )
        return None

    def _question_keys(self) -> KeyBindings:
        keys = _keys()

        @keys.add("enter")
        def send(event: KeyPressEvent) -> None:
            buffer = event.current_buffer
            if buffer.document.text_before_cursor.endswith("\\"):
                buffer.delete_before_cursor()
                buffer.insert_text("\n")
            elif event.key_processor.input_queue or can_read(self._descriptor):
                buffer.insert_text("\n")  # a paste on a terminal that does not mark pastes
            else:
                self._hint = ""
                buffer.validate_and_handle()

        @keys.add("escape", "enter")
        def begin_line(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text("\n")

        @keys.add("<any>")
        def insert(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text(_take_run(event))

        del send, begin_line, insert
        return keys


def _take_run(event: KeyPressEvent) -> str:
    """The text of a key, and of those that have come with it, on a terminal that does not mark pastes.

    With one key at a time, the editor would copy its whole text for each key, for undo: gigabytes for a hundred kilobytes. An Enter at the
    very end, or after a backslash, stays: it has a meaning of its own.
    """
    queue = event.key_processor.input_queue
    taken: list[str] = [event.data * event.arg]
    while queue:
        key = queue[0]
        is_line_end = key.key in _LINE_ENDS
        if not is_line_end and (key.key != key.data or len(key.data) != 1):
            break
        is_last = len(queue) == 1 or queue[1].key != queue[1].data
        if is_line_end and (is_last or taken[-1].endswith("\\")):
            break
        taken.append("\n" if is_line_end else key.data)
        queue.popleft()
    return "".join(taken)


def _keys() -> KeyBindings:
    keys = KeyBindings()

    @keys.add("c-c")
    def interrupt(event: KeyPressEvent) -> None:
        if event.current_buffer.text:
            event.current_buffer.reset()
        else:
            signal.raise_signal(signal.SIGINT)

    del interrupt
    return keys
