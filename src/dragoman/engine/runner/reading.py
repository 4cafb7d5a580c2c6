"""The answer of a model, read into an inbox, with a limit on silence. Runs as one task, which owns the exchange."""

import logging

from dragoman.core.failures import error_info
from dragoman.engine.asking import Model
from dragoman.engine.runner.inbox import Broke, Inbox
from dragoman.engine.runner.silence import Silence
from dragoman.errors import GatewayError
from dragoman.model.events import Completed, Failed
from dragoman.model.outcome import ErrorInfo
from dragoman.model.request import Request

__all__ = ("CLOSED_EARLY", "read_answer")

logger = logging.getLogger("dragoman.engine")

CLOSED_EARLY = ErrorInfo(kind="truncated", message="the answer ended before it was complete")

_ENDS = (Completed, Failed)


async def read_answer(model: Model, request: Request, inbox: Inbox, idle_timeout: float) -> None:
    """Bring every read of the answer; whatever goes wrong is told as `Broke`. The task's end tells that it is over."""
    silence = Silence(idle_timeout)
    try:
        async with silence:
            await _read(model, request, inbox, silence)
    except TimeoutError as error:
        message = (
            f"expected the answer to go on within {idle_timeout:g} s, and nothing came"
            if silence.is_broken
            else f"the model gave up: {error}"
        )
        inbox.tell(Broke(ErrorInfo(kind="timeout", message=message)))
    except GatewayError as error:
        inbox.tell(Broke(error_info(error)))
    except Exception as error:
        logger.exception("the model broke")
        inbox.tell(Broke(ErrorInfo(kind="server", message=f"the model broke: {error!r}")))


async def _read(model: Model, request: Request, inbox: Inbox, silence: Silence) -> None:
    async with model.ask(request) as reads:
        async for events in reads:
            if inbox.offer(events):
                # It is the observer that is waited for, and it may take its time.
                silence.pause()
                await inbox.wait_for_room()
            if events and isinstance(events[-1], _ENDS):
                return
            silence.heard()
