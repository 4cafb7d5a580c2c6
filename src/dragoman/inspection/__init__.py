"""What a recorded answer holds and what is wrong with it. Pure: bytes in, a report or text out.

    envelope   what surrounds the payloads: byte order mark, HTTP header block, SSE or JSON lines
    recognise  which dialect the payloads speak, by their own shape
    dumped     the gateway's dump: the answers of several requests in one file
    examine    reads it with that dialect's decoder and reports
    report     what is in it: calls, text, reasoning, usage, finish, problems
    rewrite    the answer in another dialect
    explain    what a reason or a problem means to the person who has it
    layout     the report as one screen of styled lines
    present    the report as JSON, as plain text, and its problems as lines

Above it stands the command line, which reads files and writes; below it the dialects.
"""
