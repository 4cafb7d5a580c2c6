"""Who watches a run."""

from collections.abc import Awaitable, Callable

from dragoman.engine.events import EngineEvent

__all__ = ("Observer",)

Observer = Callable[[EngineEvent], Awaitable[None]]
"""Told of everything, one thing at a time, in order. It is awaited: while it takes its time, nothing more is read. One that
raises ends the run, and its exception comes out of it."""
