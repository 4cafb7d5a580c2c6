"""A summary, asked of the model: one exchange that nobody watches."""

import logging
from collections.abc import AsyncIterator, Sequence

from msgspec import Struct

from dragoman.core.fold import merge_usage
from dragoman.engine.asking import Model
from dragoman.engine.runner.silence import Silence
from dragoman.errors import GatewayError
from dragoman.model.events import Completed, Event, PartEnded, UsageReported
from dragoman.model.outcome import Usage
from dragoman.model.parts import Text
from dragoman.model.request import Request

__all__ = ("Summary", "summarise")

logger = logging.getLogger("dragoman.engine")


class Summary(Struct, frozen=True):
    """`text` is empty where there is none: the answer broke off, or said nothing."""

    text: str = ""
    usage: Usage | None = None


async def summarise(model: Model, request: Request, idle_timeout: float) -> Summary:
    """Ask. A failure is logged and no more: the conversation goes on as it is."""
    try:
        async with Silence(idle_timeout) as silence, model.ask(request) as reads:
            return await _collect(reads, silence)
    except (GatewayError, TimeoutError) as error:
        logger.warning("no summary of the conversation: %s", error or "the answer did not go on")
    except Exception:
        logger.exception("no summary of the conversation: the model broke")
    return Summary()


async def _collect(reads: AsyncIterator[Sequence[Event]], silence: Silence) -> Summary:
    texts: list[str] = []
    usage: Usage | None = None
    is_whole = False
    async for events in reads:
        silence.heard()
        for event in events:
            match event:
                case PartEnded(value=Text(text=text)):
                    texts.append(text)
                case UsageReported():
                    usage = merge_usage(usage, event.usage)
                case Completed():
                    is_whole = True
                case _:
                    pass
    return Summary("\n\n".join(texts).strip() if is_whole else "", usage)
