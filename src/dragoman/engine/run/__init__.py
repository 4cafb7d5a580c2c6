"""The engine on an event loop: it performs what the pure parts of `engine` decide.

engine.py      what a program uses, and one run: turn after turn
live_turn.py   one turn: its machine, and the tasks that perform what it decides; each call with its time limit
model.py       the interface of a model, a limit on its silence, and its summary of a long conversation
"""

from dragoman.engine.run.engine import Engine
from dragoman.engine.run.live_turn import Observer
from dragoman.engine.run.model import Model

__all__ = ("Engine", "Model", "Observer")
