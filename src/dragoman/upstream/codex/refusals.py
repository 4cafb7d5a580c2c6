"""What the gateway says to requests of an app-server that are not calls of a client's tools. Pure.

With Codex's own tools switched off none of them should come. If one does it is declined, or answered with an error:
never granted, and never left open, because the turn would wait for ever.
"""

from collections.abc import Mapping

from dragoman.upstream.codex.jsonrpc import answer, refusal

__all__ = ("METHOD_NOT_FOUND", "decline")

METHOD_NOT_FOUND = -32601

_ANSWERS: Mapping[str, object] = {
    "item/commandExecution/requestApproval": {"decision": "decline"},
    "item/fileChange/requestApproval": {"decision": "decline"},
    "item/permissions/requestApproval": {"permissions": {}, "scope": "turn"},
    "mcpServer/elicitation/request": {"action": "decline", "content": None, "_meta": None},
    # Of the first protocol.
    "applyPatchApproval": {"decision": "denied"},
    "execCommandApproval": {"decision": "denied"},
}


def decline(method: str, number: bytes) -> bytes:
    """The line that answers such a request."""
    known = _ANSWERS.get(method)
    if known is not None:
        return answer(number, known)
    return refusal(number, METHOD_NOT_FOUND, f"{method[:100]}: not served by this gateway")
