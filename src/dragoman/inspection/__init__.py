"""Describes recorded answers and whole exchanges. Pure: bytes in, a report or text out.

One answer, for `dragoman inspect`:

    recording        the payloads of a recorded answer and their dialect; the answer in another dialect
    report           the contents: calls, text, reasoning, usage, finish, problems; also for the gateway's dump
    layout           the report as one screen of styled lines, as JSON and as plain text
    terminal_text    text that is safe to show on a terminal
    recorded_answer  a recorded answer as an exchange, for the inspector's page

An exchange with both wires, for the inspector, receipts and recordings:

    exchange         the bytes and times that a gateway captures
    wire_reading     the frames and events of one wire
    call_rows        the calls on both wires, compared; event_links: what each event became
    exchange_report  the description of an exchange; exchange_form: its JSON types
    conversations    which requests belong to one conversation
    receipt          receipts, and their verification
    redaction        takes the secrets out
    exchange_files   an exchange as the files of a recording, and back
    replay           finds the recording of a request, and compares the calls of two answers

Above this package are the server and the command line, which do the I/O; below it are the dialects.
"""
