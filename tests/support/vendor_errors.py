"""Errors as each vendor sends them: bodies of error statuses, and failures inside a stream. From their documentation."""

import json
from typing import Any

STATUSES = (400, 401, 403, 404, 413, 429, 500, 503, 529)
ANTHROPIC_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    503: "overloaded_error",
    529: "overloaded_error",
}
_OPENAI_TYPES = {
    400: ("invalid_request_error", None),
    401: ("invalid_request_error", "invalid_api_key"),
    403: ("invalid_request_error", "unsupported_country_region_territory"),
    404: ("invalid_request_error", "model_not_found"),
    413: ("invalid_request_error", None),
    429: ("tokens", "rate_limit_exceeded"),
    500: ("server_error", None),
    503: ("server_error", "server_is_overloaded"),
    529: ("server_error", None),
}


def error_body(dialect: str, status: int, message: str) -> dict[str, Any]:
    if dialect == "messages":
        error = {"type": ANTHROPIC_TYPES[status], "message": message}
        return {"type": "error", "error": error, "request_id": "req_vendor"}
    kind, code = _OPENAI_TYPES[status]
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def failure_frame(dialect: str, message: str, number: int = 0) -> bytes:
    """What a vendor sends inside a stream that it cannot finish, after `number` frames."""
    match dialect:
        case "chat":
            payload: Any = {"error": {"message": message, "type": "server_error", "code": None}}
            return b"data: " + json.dumps(payload).encode() + b"\n\n"
        case "messages":
            payload = {"type": "error", "error": {"type": "overloaded_error", "message": message}}
            return b"event: error\ndata: " + json.dumps(payload).encode() + b"\n\n"
        case _:
            response: dict[str, Any] = {
                "id": "resp_vendor1",
                "object": "response",
                "created_at": 1750000000,
                "status": "failed",
                "error": {"code": "server_error", "message": message},
                "incomplete_details": None,
                "model": "upstream-model",
                "output": [],
                "parallel_tool_calls": True,
                "tool_choice": "auto",
                "tools": [],
                "usage": None,
            }
            payload = {"type": "response.failed", "sequence_number": number, "response": response}
            return b"event: response.failed\ndata: " + json.dumps(payload).encode() + b"\n\n"
