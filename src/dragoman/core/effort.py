"""How much a model should think, said in a word (OpenAI) or in tokens (Anthropic).

The words become budgets a client would have chosen itself; a budget becomes one of the three words that every reasoning
model knows. `low`, `medium` and `high` survive the way there and back. Nothing here knows a model's own limits.
"""

from collections.abc import Mapping

from dragoman.model.request import Effort

_BUDGETS: Mapping[Effort, int] = {
    "minimal": 1024,  # Anthropic's least
    "low": 2048,
    "medium": 8192,
    "high": 24_576,
    "xhigh": 32_768,
    "max": 63_999,  # what Anthropic's first thinking models took at most
}
# Claude Code asks for 1024, 4000, 10000 and 31999 tokens where its user says to think, harder and hardest.
_LOW_BELOW = 4096
_MEDIUM_BELOW = 16_384


def budget_from_effort(effort: Effort) -> int | None:
    """The budget for a word; None for `none`. A word nobody knows yet counts as `medium`."""
    if effort == "none":
        return None
    return _BUDGETS.get(effort, _BUDGETS["medium"])


def effort_from_budget(budget: int) -> Effort:
    """The nearest word for a budget; `none` for no tokens at all."""
    if budget <= 0:
        return "none"
    if budget < _LOW_BELOW:
        return "low"
    return "medium" if budget < _MEDIUM_BELOW else "high"
