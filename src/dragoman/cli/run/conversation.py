"""The questions and answers of one `dragoman run`. The conversation is saved after every turn and ends with an exit code.

A line that begins with a slash is a command (`/help`); a question that begins with a slash is written with two.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from msgspec import Struct, structs

from dragoman.agent import Agent, RunFailed
from dragoman.cli.run.display import Display, Watcher, ticking
from dragoman.cli.run.person import Person
from dragoman.cli.run.sessions import Sessions, StoredSession
from dragoman.cli.run.signals import Signals
from dragoman.cli.screen import CLEAN, INTERRUPTED, PROBLEMS, own_command
from dragoman.core.usage import add_usage
from dragoman.engine.events import EngineEvent, TurnEnded
from dragoman.engine.results import encodable
from dragoman.errors import ConfigError
from dragoman.model.outcome import FinishReason, Usage

COMMANDS: dict[str, str] = {
    "/help": "show these commands",
    "/model": "show the model, or ask another from now on: /model NAME",
    "/tools": "list the tools",
    "/resume": "continue the last saved conversation of this folder, or another: /resume SESSION",
    "/compact": "replace the older part of the conversation with a summary by the model",
    "/expand": "show the whole result of the last call, or of another: /expand NUMBER",
    "/quit": "end, as Ctrl-D does",
}
"""Each command, and what it does."""

KEYS = (
    "",
    "Enter     send the question",
    "Alt-Enter begin a new line, as a backslash at the end of the line does; a paste may have many lines",
    "Ctrl-C    empty the line, or interrupt the model; twice: quit",
    "Ctrl-D    end, if the line is empty",
    "Up, Down  earlier questions; Ctrl-R searches in them",
    "A question that begins with a slash: write two slashes.",
)
"""The keys, for `/help`."""


class SlashCommand(Struct, frozen=True):
    """A command as it was typed. `name` may be unknown."""

    name: str
    argument: str = ""


def read_line(line: str) -> str | SlashCommand:
    """The command of a line, or the question. Several lines are a question, and so is a path."""
    text = line.strip()
    if text.startswith("//"):
        return text[1:]
    if not text.startswith("/") or "\n" in text:
        return line
    name, _, argument = text.partition(" ")
    # A path has a second slash.
    return line if "/" in name[1:] else SlashCommand(name, argument.strip())


LIMITED = 3
"""A limit was reached before the model was done."""

SERVER_FAILED = 4
"""Answered, but an MCP server was not available, at the first request or at the end."""

_CODES: dict[str, int] = {
    "answered": CLEAN,
    "cancelled": INTERRUPTED,
    "failed": PROBLEMS,
    "handed_over": PROBLEMS,
}
_CUT: dict[FinishReason, str] = {
    "length": "the answer is cut: the model has reached its limit of tokens",
    "context_window": "the answer is cut: the conversation fills the model's context",
}
_TITLE = 80


class TerminalConversation:
    """One conversation with a person, or with a script. `session`: its newest state.

    make_agent: makes the agent for an `observer`, and for `turns` other than those of the session.
    tool_names: returns the names of the tools that there are now.
    """

    def __init__(
        self,
        make_agent: Callable[..., Agent],
        watcher: Watcher,
        sessions: Sessions,
        session: StoredSession,
        signals: Signals,
        tool_names: Callable[[], Sequence[str]],
    ) -> None:
        self.session = session
        self._make_agent = make_agent
        self._tool_names = tool_names
        self._agent = make_agent(observer=self._observe)
        self._watcher = watcher
        self._sessions = sessions
        self._signals = signals
        self._usage = session.usage  # the usage of the runs before this question
        self._finish: FinishReason | None = None
        self._cannot_save = False

    async def answer(self, question: str) -> int:
        """Ask the agent, show what happens, and return the exit code."""
        signals = self._signals
        signals.reset()
        signals.on_interrupt = self._interrupt
        self._usage = self.session.usage
        self._finish = None
        if not self.session.title:
            title = " ".join(question.split())[:_TITLE]
            self.session = structs.replace(self.session, title=title)
        try:
            async with ticking(self._watcher):
                # An argument, or what is typed, may be any bytes.
                reply = await self._agent.ask(encodable(question))
        except RunFailed as error:
            reply = error.reply
        except BaseException:
            self._save(None)
            raise
        finally:
            signals.on_interrupt = None
        self._save(reply.ended.total)
        cut = _CUT.get(self._finish or "stop") if reply.ended.reason == "answered" else None
        if cut is not None:
            self._watcher.note(cut, "bad")
        is_kept = self._sessions.is_kept and not self._cannot_save
        self._watcher.end(reply.ended, self.session.id if is_kept else "")
        return LIMITED if cut is not None else _CODES.get(reply.ended.reason, LIMITED)

    async def talk(self, person: Person) -> int:
        """Answer questions until the person ends the input."""
        while True:
            self._signals.on_interrupt = person.remind
            question = await person.next_question()
            if question is None:
                return CLEAN
            said = read_line(question)
            if isinstance(said, SlashCommand):
                if said.name == "/quit":
                    return CLEAN
                await self._obey(said)
            elif said.strip():
                await self.answer(said)
            self._signals.reset()

    async def _obey(self, command: SlashCommand) -> None:
        match command.name:
            case "/help":
                self._list(f"{name:<9} {what}" for name, what in COMMANDS.items())
                self._list(KEYS)
            case "/tools":
                self._list(self._tool_names())
            case "/model":
                self._change_model(command.argument)
            case "/resume":
                self._resume(command.argument)
            case "/compact":
                await self._compact()
            case "/expand":
                self._expand(command.argument)
            case _:
                self._watcher.note(
                    f"unknown command {command.name}: /help lists them; two slashes begin a question",
                    "bad",
                )

    def _list(self, lines: Iterable[str]) -> None:
        for line in lines:
            self._watcher.note(line, "plain")

    def _change_model(self, name: str) -> None:
        if name:
            self._agent.model_name = name
            self.session = structs.replace(self.session, model=name)
        self._list((f"the model is {self.session.model}",))

    def _resume(self, session_id: str) -> None:
        root = Path(self.session.root)
        try:
            session = self._sessions.load(session_id) if session_id else self._last_but_this(root)
        except ConfigError as error:
            self._watcher.note(error.message.removeprefix("--resume: "), "bad")
            return
        if session.root != self.session.root:
            self._watcher.note(
                f"expected a conversation of {self.session.root}, got one of {session.root}: "
                f"{own_command()} run --resume {session.id}",
                "bad",
            )
            return
        model = self.session.model
        self._agent = self._make_agent(observer=self._observe, turns=session.turns)
        self._agent.model_name = model
        self.session = structs.replace(session, model=model)
        self._list((f"continuing {session.id} with {model}: {session.title}",))

    def _last_but_this(self, root: Path) -> StoredSession:
        for each in self._sessions.all_of(root):
            if isinstance(each, StoredSession) and each.id != self.session.id:
                return each
        raise ConfigError(f"expected another saved conversation in {root}, found none")

    async def _compact(self) -> None:
        self._signals.on_interrupt = self._interrupt
        try:
            with self._watcher.waiting("the model writes a summary"):
                async with ticking(self._watcher):
                    is_compacted = await self._agent.compact()
        finally:
            self._signals.on_interrupt = None
        if is_compacted:
            self._save(None)
        else:
            self._watcher.note(
                "nothing was summarised: the conversation is short, or there is no summary"
            )

    def _expand(self, number: str) -> None:
        if number and not number.isdecimal():
            self._watcher.note(f"expected the number of a call, got {number!r}", "bad")
        elif isinstance(self._watcher, Display):
            self._watcher.expand(int(number) if number else None)

    async def _observe(self, event: EngineEvent) -> None:
        await self._watcher.observe(event)
        if isinstance(event, TurnEnded):
            self._finish = event.finish
            self._save(event.total)

    def _interrupt(self) -> None:
        self._watcher.note("interrupting (Ctrl-C again quits)")
        self._agent.interrupt()

    def _save(self, total: Usage | None) -> None:
        """Save the conversation so far. `total`: the usage of this question; None: the last one that was reported."""
        self.session = structs.replace(self.session, turns=self._agent.turns, updated=time.time())
        if total is not None:
            self.session = structs.replace(self.session, usage=add_usage(self._usage, total))
        try:
            self._sessions.save(self.session)
            self._cannot_save = False
        except OSError as error:
            if not self._cannot_save:
                self._cannot_save = True
                self._watcher.note(
                    f"this conversation cannot be saved: {error.strerror or error}", "bad"
                )
