"""Reports the contents and the problems of a recorded answer. Pure: bytes in, a report or text out.

    recording      the payloads of a recorded answer and their dialect; the answer in another dialect
    report         the contents: calls, text, reasoning, usage, finish, problems; also for the gateway's dump
    layout         the report as one screen of styled lines, as JSON and as plain text
    terminal_text  text that is safe to show on a terminal

Above this package is the command line, which reads files and writes output; below it are the dialects.
"""
