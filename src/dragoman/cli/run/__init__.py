"""`dragoman run`: an agent in the terminal, on any upstream.

command.py        options                                  starting.py: what they lead to
conversation.py   questions, answers, interruptions, exit codes
  keeping, asking   sessions.py: conversations as files    questions.py: lines from a person    signals.py: Ctrl-C
  showing           display.py: for a person, on live.py    event_lines.py: `--json`             describing.py: in words
tools.py          what the agent may do here               instructions.py: what it is told

Only `command.py` is imported before the command runs: the rest needs the gateway's dependencies.
"""

from dragoman.cli.run.command import configure

__all__ = ("configure",)
