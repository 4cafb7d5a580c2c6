"""Commands that a person types instead of a question: `/help`. A question that begins with a slash is written with two."""

from msgspec import Struct

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
