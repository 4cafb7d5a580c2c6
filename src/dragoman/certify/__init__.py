"""`dragoman certify`: sends an upstream the requests of real clients, and finds the settings that correct for what it gets wrong.

    requests   the requests: small ones with one question each, and those of Codex and Claude Code
    asker      sends one of them with the gateway's own plan, and reads the answer as the client would get it
    judgement  decides whether an answer is right, and if not, why
    probes     each request with its judgement, and the settings that may help
    run        asks all of them; tries the settings and keeps those that help
    report     the findings, and the settings as a section of `dragoman.toml`

There is no list of vendors: a setting counts only if a request succeeds with it. `requests`, `judgement`, `probes` and `report` do no
I/O.
"""
