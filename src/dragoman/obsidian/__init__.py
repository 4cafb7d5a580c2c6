"""Chat Completions as Obsidian Copilot expects them from Codex: `<use_tool>` blocks in the text beside the calls.

    settings     the `[chat]` settings and the `PROXY_…` environment variables
    policy       the policy for one request: from its header first, then from the settings
    request      calls and results that the client sent as text, turned back into calls and results
    answer       the events of an answer under the policy
    blocks       a call written as a block, and how the client reads that block

Nothing here does I/O or reads a clock. The gateway keeps the time.
"""

from dragoman.obsidian.blocks import extract_use_tool_blocks, is_read_back, to_obsidian_xml

__all__ = ("extract_use_tool_blocks", "is_read_back", "to_obsidian_xml")
