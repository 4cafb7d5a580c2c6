"""The rehearsal: a deterministic stand-in for a model, for trying clients and tools without a key or a network.

upstream.py     takes a request of any dialect, and returns the answer in pieces of the dialect's bytes
scenarios.py    the behaviours that model names select
answer.py       the whole answer, as an Outcome
  tasks.py        what people try first with a coding agent, and the calls that do it
  tools.py        which tool is called, and with what input
  arguments.py    values for a JSON schema; schema.py reads it, strings.py makes the texts
  words.py        names, numbers and other values in the user's words
"""

from dragoman.upstream.rehearsal.scenarios import SCENARIOS
from dragoman.upstream.rehearsal.upstream import RehearsalUpstream

__all__ = ("SCENARIOS", "RehearsalUpstream")
