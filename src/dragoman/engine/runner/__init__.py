"""The engine at work on an event loop: it does what the pure parts of `engine` decide.

engine.py     what a program uses
run.py        one run: turn after turn
playing.py    one turn: its machine, and the tasks that do what it decides
reading.py    the answer, read with a limit on silence
calling.py    one call, contained
inbox.py      what the tasks tell the run
summing.py    a summary of a long conversation
"""

from dragoman.engine.runner.engine import Engine
from dragoman.engine.runner.observing import Observer

__all__ = ("Engine", "Observer")
