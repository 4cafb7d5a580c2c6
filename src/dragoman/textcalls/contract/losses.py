"""What a `<use_tool>` block cannot say, by the rules of the client that reads it."""

from dragoman.core.losses import LossRule, LossTable

__all__ = ("LOSSES",)

LOSSES: LossTable = {
    "use_tool_value": LossRule(
        "Obsidian Copilot would read another value from the block; dropped: the block is left out",
        "carry",
    ),
    "use_tool_null": LossRule(
        "a block has no null; dropped: the parameter is left out, carried: it is the word `null`",
        "drop",
    ),
}
