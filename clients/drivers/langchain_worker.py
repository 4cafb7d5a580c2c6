"""Runs jobs with LangChain: one JSON object per line in, one per line out, as `worker.mjs` does for the SDKs of Node.

It runs in an environment of its own (`clients/.venv`) and imports nothing of the project.
"""

import json
import sys
from importlib import import_module
from typing import Any

# By name, because the project's own environment, in which types are checked, does not have them.
ChatAnthropic: Any = import_module("langchain_anthropic").ChatAnthropic
ChatOpenAI: Any = import_module("langchain_openai").ChatOpenAI
core: Any = import_module("langchain_core.messages")

MAX_TURNS = 6


def connect(job: dict[str, Any]) -> Any:
    common = {"model": job["model"], "api_key": job["key"], "max_retries": job["retries"]}
    if job["client"] == "langchain-anthropic":
        return ChatAnthropic(base_url=job["url"], max_tokens=4096, **common)
    responses = job["client"] == "langchain-responses"
    options = {"store": False} if responses else {}
    return ChatOpenAI(base_url=f"{job['url']}/v1", use_responses_api=responses, **common, **options)


def declare(tool: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "function",
        "function": {
            "name": tool["name"],
            "description": tool["description"],
            "parameters": tool["schema"],
        },
    }


def ask(model: Any, mode: str, messages: list[Any]) -> Any:
    if mode == "invoke":
        return model.invoke(messages)
    whole = None
    for chunk in model.stream(messages):
        whole = chunk if whole is None else whole + chunk
    return whole


def converse(job: dict[str, Any], report: dict[str, Any]) -> None:
    model = connect(job).bind_tools([declare(tool) for tool in job["tools"]])
    messages: list[Any] = [
        core.SystemMessage("You are a helpful assistant."),
        core.HumanMessage(job["prompt"]),
    ]
    for _ in range(MAX_TURNS):
        answer = ask(model, job["mode"], messages)
        report["texts"].append(answer.text)
        if answer.invalid_tool_calls:
            raise ValueError(f"invalid tool calls: {answer.invalid_tool_calls}")
        messages.append(answer)
        for call in answer.tool_calls:
            seen = {"id": call["id"], "name": call["name"], "text": None, "value": call["args"]}
            report["calls"].append(seen)
            value = json.dumps(call["args"], ensure_ascii=False, separators=(",", ":"))
            result = f"{call['name']} got {value}"
            messages.append(core.ToolMessage(result, tool_call_id=call["id"]))
        if not answer.tool_calls:
            return
    raise ValueError(f"the model still calls tools after {MAX_TURNS} turns")


def main() -> None:
    # Whatever a library prints must not get into the channel.
    channel, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        job = json.loads(line)
        report: dict[str, Any] = {"texts": [], "calls": [], "error": None}
        try:
            converse(job, report)
        except Exception as error:
            status = getattr(error, "status_code", None)
            kind = type(error).__name__
            report["error"] = {"kind": kind, "status": status, "message": str(error)[:2000]}
        print(json.dumps(report), file=channel, flush=True)


if __name__ == "__main__":
    main()
