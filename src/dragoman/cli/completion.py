"""`dragoman completion`: prints a script that completes the command line in a shell.

The script is made from the parser of the command, so it knows every command and option that there is. Names of models come
from the configuration: the script asks `dragoman completion --models`, which reads it and starts nothing.
"""

import argparse
import os
import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import cast

from msgspec import Struct

from dragoman.cli.options import Options
from dragoman.cli.screen import CLEAN, write
from dragoman.config.read import load_settings
from dragoman.errors import ConfigError
from dragoman.gateway.route import default_models
from dragoman.server.catalog import known_models

SUMMARY = "print a script that completes this command in bash, zsh or fish"

_HEADER = "# Completion of dragoman. Load it with: {how}\n"
_KINDS = ("chat=", "responses=", "messages=", "codex", "chatgpt-codex", "rehearsal")
_MODEL = "model"
_FILE = "file"
_FOLDER = "folder"
_BY_METAVAR = {"FILE": _FILE, "FOLDER": _FOLDER, "DIR": _FOLDER}


class Word(Struct, frozen=True):
    """An option or a positional argument.

    names: of an option. takes_value: whether a word belongs to it. values: the words that it may be. place: where other values
    come from: models, files or folders.
    """

    names: tuple[str, ...]
    summary: str
    takes_value: bool = False
    values: tuple[str, ...] = ()
    place: str = ""


class Command(Struct, frozen=True):
    name: str
    summary: str
    options: tuple[Word, ...]
    positionals: tuple[Word, ...]


def configure(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = """\
  bash   source <(dragoman completion bash)     in ~/.bashrc
  zsh    source <(dragoman completion zsh)      in ~/.zshrc, after compinit
  fish   dragoman completion fish | source      in ~/.config/fish/config.fish

exit codes: 0 printed"""
    parser.add_argument(
        "shell", metavar="SHELL", nargs="?", choices=tuple(_SCRIPTS), help=", ".join(_SCRIPTS)
    )
    parser.add_argument(
        "--models",
        action="store_true",
        help="print the models that the configuration names, one per line, and nothing else",
    )

    parser.set_defaults(run=_complete)


def _complete(options: Options) -> int:
    from dragoman.cli import make_parser  # noqa: PLC0415 - it asks this module for its options

    if options.models:
        write("".join(f"{name}\n" for name in _models()).encode())
        return CLEAN
    if options.shell is None:
        raise ConfigError(f"expected a SHELL: {', '.join(_SCRIPTS)}")
    write(_SCRIPTS[options.shell](commands_of(make_parser())).encode())
    return CLEAN


def _models() -> Iterator[str]:
    """The names in the configuration. It is only read, so a file in this folder needs no trust for it."""
    with suppress(ConfigError):
        settings = load_settings(None, os.environ, on_found=lambda _file, _environ: None)
        names = (*default_models(settings), *(each.name for each in known_models(settings)))
        # Bash expands the words that it offers, so a name that it reads in any other way would be run.
        yield from (name for name in dict.fromkeys(names) if shlex.quote(name) == name)


# --- what the parser knows --------------------------------------------------------------------------------------------


def commands_of(parser: argparse.ArgumentParser) -> list[Command]:
    """The command itself, with an empty name, and each of its commands."""
    parsers = [each for action in _actions(parser) for each in _parsers(action).items()]
    return [_command("", parser), *(_command(name, each) for name, each in parsers)]


def _actions(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    return parser._actions  # noqa: SLF001 - argparse has no public name for it


def _parsers(action: argparse.Action) -> dict[str, argparse.ArgumentParser]:
    """The commands, if this is the action that reads their names: only its choices are a dictionary."""
    choices = action.choices
    return cast("dict[str, argparse.ArgumentParser]", choices) if isinstance(choices, dict) else {}


def _command(name: str, parser: argparse.ArgumentParser) -> Command:
    words = [_word(action) for action in _actions(parser) if not _parsers(action)]
    return Command(
        name,
        (parser.description or "").removesuffix("."),
        tuple(word for word in words if word.names),
        tuple(word for word in words if not word.names),
    )


def _word(action: argparse.Action) -> Word:
    metavar = action.metavar if isinstance(action.metavar, str) else ""
    values = tuple(str(each) for each in action.choices or ())
    place = _BY_METAVAR.get(metavar, "")
    if action.dest == "upstream":
        values = _KINDS
    elif action.dest == "model":
        place = _MODEL
    summary = (action.help or "").partition(" (default")[0].partition("; ")[0]
    return Word(tuple(action.option_strings), summary, action.nargs != 0, values, place)


# --- bash -------------------------------------------------------------------------------------------------------------


def bash_script(commands: list[Command]) -> str:
    root, *others = commands
    names = " ".join(each.name for each in others)
    return "".join(
        (
            _HEADER.format(how="source <(dragoman completion bash)"),
            "_dragoman() {\n",
            '    local word="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}" command="" index\n',
            # Bash splits words at `=` and `:`; a value of `--upstream` is completed up to its `=`.
            '    [[ $before == "=" ]] && before="${COMP_WORDS[COMP_CWORD-2]}"\n',
            '    [[ $word == "=" ]] && { before="${COMP_WORDS[COMP_CWORD-1]}"; word=""; }\n',
            "    COMPREPLY=()\n",
            "    for ((index = 1; index < COMP_CWORD; index++)); do\n",
            '        if [[ ${COMP_WORDS[index]} == "--" ]]; then compopt -o default; return; fi\n',
            f'        case "$command ${{COMP_WORDS[index]}}" in {_alternatives(others)}) command="${{COMP_WORDS[index]}}" ;; esac\n',
            "    done\n",
            '    case "$command $before" in\n',
            *(_bash_values(each) for each in others),
            "    esac\n",
            '    case "$command" in\n',
            f'    "") COMPREPLY=($(compgen -W {shlex.quote(names + " " + _option_names(root))} -- "$word")) ;;\n',
            *(_bash_words(each) for each in others),
            "    esac\n",
            "}\n",
            "complete -F _dragoman dragoman\n",
        )
    )


def _alternatives(commands: list[Command]) -> str:
    return "|".join(f'" {each.name}"' for each in commands)


def _option_names(command: Command) -> str:
    return " ".join(name for word in command.options for name in word.names)


def _bash_values(command: Command) -> str:
    """What may follow an option that takes a value."""
    lines = ""
    for word in command.options:
        if word.takes_value:
            pattern = "|".join(f'"{command.name} {name}"' for name in word.names)
            lines += f"    {pattern}) {_bash_reply(word)}; return ;;\n"
    return lines


def _bash_reply(word: Word) -> str:
    if word.place == _MODEL:
        return 'COMPREPLY=($(compgen -W "$(dragoman completion --models 2>/dev/null)" -- "$word"))'
    if word.place == _FOLDER:
        return 'compopt -o filenames; COMPREPLY=($(compgen -d -- "$word"))'
    if word.values:
        spaces = "compopt -o nospace; " if any(each.endswith("=") for each in word.values) else ""
        return f'{spaces}COMPREPLY=($(compgen -W {shlex.quote(" ".join(word.values))} -- "$word"))'
    return "compopt -o default" if word.place == _FILE else ":"


def _bash_words(command: Command) -> str:
    """Options and positional arguments."""
    options = _option_names(command)
    reply = f'    {command.name}) if [[ $word == -* ]]; then COMPREPLY=($(compgen -W {shlex.quote(options)} -- "$word"))\n'
    for word in command.positionals[:1]:
        reply += f"        else {_bash_reply(word)}\n"
    return f"{reply}        fi ;;\n"


# --- zsh --------------------------------------------------------------------------------------------------------------


def zsh_script(commands: list[Command]) -> str:
    root, *others = commands
    lines = [
        "#compdef dragoman\n",
        _HEADER.format(how="source <(dragoman completion zsh)"),
        '_dragoman_models() { compadd -- ${(f)"$(dragoman completion --models 2>/dev/null)"} }\n',
        "_dragoman() {\n",
        "    local line state\n",
        f"    _arguments -C {' '.join(_zsh_options(root))} '1: :->command' '*:: :->rest'\n",
        '    case "$state" in\n',
        "    command)\n        local -a commands=(\n",
        *(
            f"            {shlex.quote(f'{each.name}:{_zsh_text(each.summary)}')}\n"
            for each in others
        ),
        "        )\n        _describe command commands ;;\n",
        '    rest)\n        case "${line[1]}" in\n',
    ]
    for each in others:
        words = [*_zsh_options(each), *_zsh_positionals(each)]
        lines.append(f"        {each.name}) _arguments {' '.join(words)} ;;\n")
    lines += ["        esac ;;\n", "    esac\n", "}\n", "compdef _dragoman dragoman\n"]
    return "".join(lines)


def _zsh_text(text: str) -> str:
    """A text inside a specification of `_arguments`, where brackets and colons have a meaning."""
    return "".join(f"\\{sign}" if sign in "[]:\\" else sign for sign in text)


def _zsh_options(command: Command) -> Iterator[str]:
    for word in command.options:
        value = f":value:{_zsh_action(word)}" if word.takes_value else ""
        for name in word.names:
            yield shlex.quote(f"{name}[{_zsh_text(word.summary)}]{value}")


def _zsh_positionals(command: Command) -> Iterator[str]:
    for index, word in enumerate(command.positionals, 1):
        yield shlex.quote(f"{index}: :{_zsh_action(word)}")


def _zsh_action(word: Word) -> str:
    if word.place == _MODEL:
        return "_dragoman_models"
    if word.values:
        return f"({' '.join(word.values)})"
    return {_FILE: "_files", _FOLDER: "_files -/"}.get(word.place, " ")


# --- fish -------------------------------------------------------------------------------------------------------------


def fish_script(commands: list[Command]) -> str:
    root, *others = commands
    names = " ".join(each.name for each in others)
    is_first = f"not __fish_seen_subcommand_from {names}"
    lines = [_HEADER.format(how="dragoman completion fish | source"), "complete -c dragoman -f\n"]
    lines += [_fish(is_first, f"-a {each.name}", each.summary) for each in others]
    lines += [_fish(is_first, _fish_names(word), word.summary) for word in root.options]
    for each in others:
        is_here = f"__fish_seen_subcommand_from {each.name}"
        lines += [
            _fish(is_here, f"{_fish_names(word)}{_fish_values(word)}", word.summary)
            for word in each.options
        ]
        lines += [
            _fish(is_here, _fish_values(word).replace(" -x", "").strip(), "")
            for word in each.positionals[:1]
            if word.values or word.place
        ]
    return "".join(lines)


def _fish(condition: str, what: str, summary: str) -> str:
    about = f" -d {_fish_quoted(summary)}" if summary else ""
    return f"complete -c dragoman -n {_fish_quoted(condition)} {what}{about}\n"


def _fish_quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _fish_names(word: Word) -> str:
    return " ".join(
        f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in word.names
    )


def _fish_values(word: Word) -> str:
    if not word.takes_value:
        return ""
    if word.place == _MODEL:
        return " -x -a '(dragoman completion --models 2>/dev/null)'"
    if word.values:
        return f" -x -a {_fish_quoted(' '.join(word.values))}"
    if word.place == _FOLDER:
        return " -x -a '(__fish_complete_directories)'"
    return " -r -F" if word.place == _FILE else " -x"


_SCRIPTS: Mapping[str, Callable[[list[Command]], str]] = {
    "bash": bash_script,
    "zsh": zsh_script,
    "fish": fish_script,
}
"""The shells that can complete, and the function that makes the script of each."""
