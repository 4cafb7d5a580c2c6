"""Whoever answers requests, as the engine sees it: a request in, events out."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from dragoman.model.events import Event
from dragoman.model.request import Request

__all__ = ("Model",)


class Model(Protocol):
    """A model behind any upstream."""

    def ask(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[Sequence[Event]]]:
        """The answer while it arrives: the events of each read, in the grammar of `model.events`.

        An answer that breaks off ends in `Failed`. Leaving the context ends the exchange at once, however far it is.

        Raises:
            GatewayError: there is no answer: nobody could be reached, or the request was refused.
        """
        ...
