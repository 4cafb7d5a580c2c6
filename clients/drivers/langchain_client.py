"""LangChain's three chat models, whole and streamed. The loop over the turns is here, as LangChain leaves it to its users."""

from importlib import import_module
from typing import Any

from transcript import MAX_TURNS, Transcript

# By name, because the project's own environment, in which types are checked, does not have them.
ChatAnthropic: Any = import_module("langchain_anthropic").ChatAnthropic
ChatOpenAI: Any = import_module("langchain_openai").ChatOpenAI
core: Any = import_module("langchain_core.messages")


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


async def converse(job: dict[str, Any], transcript: Transcript) -> None:
    model = connect(job).bind_tools([declare(tool) for tool in job["tools"]])
    messages: list[Any] = [
        core.SystemMessage("You are a helpful assistant."),
        core.HumanMessage(job["prompt"]),
    ]
    for _ in range(MAX_TURNS):
        answer = ask(model, job["mode"], messages)
        transcript.say(answer.text)
        if answer.invalid_tool_calls:
            raise ValueError(f"invalid tool calls: {answer.invalid_tool_calls}")
        messages.append(answer)
        for call in answer.tool_calls:
            result = transcript.call(call["id"], call["name"], call["args"])
            messages.append(core.ToolMessage(result, tool_call_id=call["id"]))
        if not answer.tool_calls:
            return
    raise ValueError(f"the model still calls tools after {MAX_TURNS} turns")
