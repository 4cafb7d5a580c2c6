"""Answers as the vendors send them, rich in everything that is easily lost: streams as payloads, bodies as objects.

Written by hand after the vendors' documentation and SDK types; field for field the shape of the real thing. `frames`
puts payloads on the wire as the vendor does.
"""

import json
from collections.abc import Iterable

from vendor_chat import chat_bodies, chat_streams
from vendor_messages import messages_bodies, messages_streams
from vendor_pieces import Payload
from vendor_responses import responses_bodies, responses_streams


def frames(dialect: str, payloads: Iterable[Payload]) -> bytes:
    out: list[str] = []
    for payload in payloads:
        head = "" if dialect == "chat" else f"event: {payload['type']}\n"
        out.append(f"{head}data: {json.dumps(payload)}\n\n")
    return ("".join(out) + ("data: [DONE]\n\n" if dialect == "chat" else "")).encode()


STREAMS: dict[str, dict[str, list[Payload]]] = {
    "chat": dict(chat_streams()),
    "responses": dict(responses_streams()),
    "messages": dict(messages_streams()),
}
BODIES: dict[str, dict[str, Payload]] = {
    "chat": dict(chat_bodies()),
    "responses": dict(responses_bodies()),
    "messages": dict(messages_bodies()),
}
