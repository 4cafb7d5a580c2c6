"""Settings of Responses requests, and what the answer to such a request must say of them. Written apart from the encoder."""

from typing import Any

Payload = dict[str, Any]

DEFAULTS: Payload = {
    "background": False,
    "frequency_penalty": 0.0,
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "presence_penalty": 0.0,
    "previous_response_id": None,
    "prompt_cache_key": None,
    "reasoning": {"effort": None, "summary": None},
    "safety_identifier": None,
    "service_tier": "default",
    "store": True,
    "temperature": 1.0,
    "text": {"format": {"type": "text"}, "verbosity": "medium"},
    "tool_choice": "auto",
    "tools": [],
    "top_logprobs": 0,
    "top_p": 1.0,
    "truncation": "disabled",
}
FUNCTION: Payload = {
    "type": "function",
    "name": "get.weather",
    "description": "d\u2028",
    "parameters": {"type": "object", "properties": {"a": {"minimum": 1.50, "default": 1e2}}},
    "strict": True,
    "defer_loading": True,
}
GRAMMAR: Payload = {"type": "grammar", "syntax": "lark", "definition": "start: /a/"}
SCHEMA: Payload = {"type": "json_schema", "name": "n", "schema": {"type": "object"}}
SETTINGS: Payload = {
    "background": False,
    "frequency_penalty": -0.5,
    "instructions": 'Be "brief".\n',
    "max_output_tokens": 99,
    "max_tool_calls": 3,
    "metadata": {"a": "b"},
    "model": "the-clients-name",
    "parallel_tool_calls": False,
    "presence_penalty": 0.25,
    "previous_response_id": "resp_before",
    "prompt": {"id": "pmpt_1", "version": "2", "variables": {"a": "b"}},
    "prompt_cache_key": "key",
    "prompt_cache_options": {"mode": "implicit"},
    "prompt_cache_retention": "24h",
    "reasoning": {"effort": "low", "summary": "auto", "context": "all_turns"},
    "safety_identifier": "who",
    "service_tier": "priority",
    "store": False,
    "temperature": 0.2,
    "text": {"format": {"type": "json_object"}, "verbosity": "high"},
    "tool_choice": {"type": "function", "name": "get.weather"},
    "tools": [FUNCTION],
    "top_logprobs": 4,
    "top_p": 0.9,
    "truncation": "auto",
    "user": "u",
}
STATED: list[Payload] = [
    {},
    SETTINGS,
    *({name: value} for name, value in SETTINGS.items()),
    dict.fromkeys(SETTINGS, None) | {"model": "m"},
    {"text": {"verbosity": "low"}, "reasoning": {}, "service_tier": "auto", "instructions": ""},
    {"text": {"format": SCHEMA}},
    {"text": {"format": {**SCHEMA, "description": "d", "strict": True}}},
    {"tools": [{"type": "function", "name": "f"}, {"type": "web_search", "filters": None}]},
    {
        "tools": [
            {"type": "custom", "name": "c"},
            {"type": "custom", "name": "d", "format": GRAMMAR},
        ]
    },
    {
        "tools": [
            {"type": "namespace", "name": "n", "description": "", "tools": [FUNCTION]},
            FUNCTION,
        ]
    },
    {"tool_choice": "required"},
    {"tool_choice": {"type": "web_search"}},
    {"tool_choice": {"type": "custom", "name": "c"}},
    {
        "tool_choice": {
            "type": "allowed_tools",
            "mode": "required",
            "tools": [{"type": "function", "name": "a b"}],
        }
    },
]
UNREPEATED = {"client_metadata", "include", "input", "stream", "stream_options"}


def repeated(request: Payload) -> Payload:
    """What an answer must say of its request."""
    said = {
        name: value
        for name, value in request.items()
        if value is not None and name not in UNREPEATED
    }
    if said.get("service_tier") == "auto":
        del said["service_tier"]
    if isinstance(said.get("conversation"), str):
        said["conversation"] = {"id": said["conversation"]}
    if "tools" in said:
        said["tools"] = [_whole(tool) for tool in said["tools"]]
    if "reasoning" in said:
        said["reasoning"] = {**DEFAULTS["reasoning"], **said["reasoning"]}
    if "text" in said:
        said["text"] = {**DEFAULTS["text"], **said["text"]}
        form = said["text"]["format"]
        if form["type"] == "json_schema":
            said["text"]["format"] = {"description": None, "strict": False, **form}
    return {**DEFAULTS, **said}


def _whole(tool: Payload) -> Payload:
    if tool["type"] == "namespace":
        return {**tool, "tools": [_whole(each) for each in tool["tools"]]}
    absent = {"description": None, "parameters": None, "strict": None}
    return {**absent, **tool} if tool["type"] == "function" else tool
