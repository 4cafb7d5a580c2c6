"""LlamaIndex: its function agent over the three classes of models, whole and streamed."""

from importlib import import_module
from typing import Any

from transcript import MAX_TURNS, Transcript

# By name, because the project's own environment, in which types are checked, does not have them.
Anthropic: Any = import_module("llama_index.llms.anthropic").Anthropic
OpenAILike: Any = import_module("llama_index.llms.openai_like").OpenAILike
OpenAIResponses: Any = import_module("llama_index.llms.openai").OpenAIResponses
LLMMetadata: Any = import_module("llama_index.core.llms").LLMMetadata
tools: Any = import_module("llama_index.core.tools")
workflow: Any = import_module("llama_index.core.agent.workflow")

WINDOW = 128_000


class AnyModel(Anthropic):  # type: ignore[misc]  # the class is known at run time only
    """The class knows the names of Claude only, and refuses others."""

    @property
    def metadata(self) -> Any:
        return LLMMetadata(
            context_window=WINDOW,
            num_output=self.max_tokens,
            is_function_calling_model=True,
            model_name=self.model,
        )


def connect(job: dict[str, Any]) -> Any:
    common = {"model": job["model"], "api_key": job["key"], "max_retries": job["retries"]}
    if job["client"] == "llama-anthropic":
        return AnyModel(base_url=job["url"], max_tokens=4096, **common)
    common |= {"api_base": f"{job['url']}/v1", "context_window": WINDOW}
    if job["client"] == "llama-responses":
        return OpenAIResponses(**common)
    return OpenAILike(is_chat_model=True, is_function_calling_model=True, **common)


class Metadata(tools.ToolMetadata):  # type: ignore[misc]  # the class is known at run time only
    """A tool whose schema is given, not made from a function."""

    schema: dict[str, Any]

    def get_parameters_dict(self) -> dict[str, Any]:
        return self.schema


def declare(tool: dict[str, Any], transcript: Transcript) -> Any:
    async def call(**value: Any) -> str:
        return transcript.call(None, tool["name"], value)

    metadata = Metadata(name=tool["name"], description=tool["description"])
    metadata.schema = tool["schema"]
    return tools.FunctionTool(async_fn=call, metadata=metadata)


async def converse(job: dict[str, Any], transcript: Transcript) -> None:
    agent = workflow.FunctionAgent(
        llm=connect(job),
        system_prompt="You are a helpful assistant.",
        tools=[declare(tool, transcript) for tool in job["tools"]],
        streaming=job["mode"] == "stream",
    )
    handler = agent.run(user_msg=job["prompt"], max_iterations=MAX_TURNS)
    streamed = ""
    async for event in handler.stream_events():
        if isinstance(event, workflow.AgentStream):
            streamed += event.delta
        elif isinstance(event, workflow.AgentOutput):
            text = event.response.content or ""
            if job["mode"] == "stream" and streamed != text:
                raise ValueError(f"the pieces {streamed!r} are not the text {text!r}")
            streamed = ""
            transcript.say(text)
    await handler
