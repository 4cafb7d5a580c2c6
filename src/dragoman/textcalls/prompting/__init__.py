"""The reverse of the scanner: tools, calls and results written into the prompt, for models without tools of their own."""

from dragoman.textcalls.prompting.prompt import (
    PROMPT_FORMATS,
    PromptedRequest,
    needs_prompting,
    prompt_tools,
)

__all__ = ("PROMPT_FORMATS", "PromptedRequest", "needs_prompting", "prompt_tools")
