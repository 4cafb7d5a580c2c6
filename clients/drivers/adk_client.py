"""Google's Agent Development Kit with LiteLLM, as its users reach models that are not Gemini, whole and streamed."""

import os
from importlib import import_module
from typing import Any

from transcript import MAX_TURNS, Transcript

# Otherwise it asks the internet for a list of prices when it is imported.
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

# By name, because the project's own environment, in which types are checked, does not have them.
LiteLlm: Any = import_module("google.adk.models.lite_llm").LiteLlm
litellm: Any = import_module("litellm")
LlmAgent: Any = import_module("google.adk.agents").LlmAgent
InMemoryRunner: Any = import_module("google.adk.runners").InMemoryRunner
BaseTool: Any = import_module("google.adk.tools").BaseTool
run_config: Any = import_module("google.adk.agents.run_config")
types: Any = import_module("google.genai.types")

# How LiteLLM is asked for a dialect: by the first words of the model's name.
MODELS = {
    "adk-chat": ("openai/", "/v1"),
    "adk-responses": ("openai/responses/", "/v1"),
    "adk-anthropic": ("anthropic/", ""),
}


def connect(job: dict[str, Any]) -> Any:
    prefix, path = MODELS[job["client"]]
    # Responses of a model that it does not know are fetched whole, and the stream that it makes of them has the arguments twice.
    streamed = {"litellm_provider": "openai", "supports_native_streaming": True}
    litellm.register_model({job["model"]: streamed})
    return LiteLlm(
        model=prefix + job["model"],
        api_base=job["url"] + path,
        api_key=job["key"],
        num_retries=job["retries"],
    )


class Tool(BaseTool):  # type: ignore[misc]  # the class is known at run time only
    """A tool whose schema is given, not made from a function."""

    def __init__(self, tool: dict[str, Any], transcript: Transcript) -> None:
        base: Any = super()
        base.__init__(name=tool["name"], description=tool["description"])
        self._schema = tool["schema"]
        self._transcript = transcript

    def _get_declaration(self) -> Any:
        return types.FunctionDeclaration(
            name=self.name, description=self.description, parameters_json_schema=self._schema
        )

    async def run_async(self, *, args: dict[str, Any], tool_context: Any) -> Any:
        return self._transcript.call(tool_context.function_call_id, self.name, args)


def report_error(tool: Any, args: Any, tool_context: Any, error: Exception) -> dict[str, str]:
    """Without this the first error of a tool ends the run."""
    return {"error": str(error)}


async def converse(job: dict[str, Any], transcript: Transcript) -> None:
    agent = LlmAgent(
        name="agent",
        model=connect(job),
        instruction="You are a helpful assistant.",
        tools=[Tool(tool, transcript) for tool in job["tools"]],
        on_tool_error_callback=report_error,
    )
    runner = InMemoryRunner(agent=agent, app_name="clients")
    session = await runner.session_service.create_session(app_name="clients", user_id="user")
    mode = run_config.StreamingMode.SSE if job["mode"] == "stream" else None
    streamed = ""
    async for event in runner.run_async(
        user_id="user",
        session_id=session.id,
        new_message=types.Content(role="user", parts=[types.Part(text=job["prompt"])]),
        run_config=run_config.RunConfig(streaming_mode=mode, max_llm_calls=MAX_TURNS),
    ):
        if event.error_code:
            raise ValueError(f"{event.error_code}: {event.error_message}")
        parts: list[Any] = (event.content and event.content.parts) or []
        text = "".join(part.text for part in parts if part.text and not part.thought)
        if event.partial:
            streamed += text
        elif event.content is not None and event.content.role == "model":
            if job["mode"] == "stream" and streamed != text:
                raise ValueError(f"the pieces {streamed!r} are not the text {text!r}")
            streamed = ""
            transcript.say(text)
