"""The reverse of the scanner: writes tools, calls and results into the prompt, for models without native tool calls."""

from dragoman.textcalls.prompting.prompt import (
    PROMPT_FORMATS,
    PromptedRequest,
    needs_prompting,
    prompt_tools,
)

__all__ = ("PROMPT_FORMATS", "PromptedRequest", "needs_prompting", "prompt_tools")
