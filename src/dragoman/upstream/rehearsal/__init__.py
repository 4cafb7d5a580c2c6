"""The rehearsal: a deterministic stand-in for a model, for trying clients and tools without a key or a network.

scenarios.py     what a model name asks for
stage.py         a request in, the delivery of its answer out
  conversation.py  what the user said, which results came back
  choose.py        which tool is called                          words.py     what a text offers
  calls.py         with what input                               harmless.py  what a call may not do
    arguments.py     values for a JSON schema                    numbers.py strings.py patterns.py merging.py
  script.py        the whole answer                              limits.py seal.py tokens.py
  delivery.py      in pieces of a dialect's bytes
reply.py         read piece by piece; the only module that waits
upstream.py      the above as an Upstream
"""

from dragoman.upstream.rehearsal.scenarios import SCENARIOS
from dragoman.upstream.rehearsal.upstream import RehearsalUpstream

__all__ = ("SCENARIOS", "RehearsalUpstream")
