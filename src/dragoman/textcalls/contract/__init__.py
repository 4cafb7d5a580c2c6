"""The Chat contract of Codex behind Obsidian Copilot: `<use_tool>` blocks beside the calls, and a turn that ends with them.

    policy       what an operator or a client asked for, as one value
    blocks       a call as a block, and what of it the client could not read back; `reference` is the client's own reader
    stage        the events of an answer in, the same under the policy out; `turn` is one choice of it
    chain        text calls, names and the stage in a row, as a gateway uses them
    results      the other way: results that came as a user's text, paired with the calls they answer

Pure: no I/O, no clock; who runs it keeps the time.
"""
