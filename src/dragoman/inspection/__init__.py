"""What a recorded answer contains and what is wrong with it. Pure: bytes in, a report or text out.

    recording      the payloads of a recorded answer, and which dialect they speak; the answer in another dialect
    report         what is in it: calls, text, reasoning, usage, finish, problems; also for the gateway's dump
    layout         the report as one screen of styled lines, as JSON and as plain text
    terminal_text  text that is safe to show on a terminal

Above this package stands the command line, which reads files and writes; below it stand the dialects.
"""
