"""MCP servers that behave badly, one by each name; written without the SDK, which would not let them.

    python rough.py NAME

What must be seen from outside is written into the folder RECORDS, one file an event, with the process's id.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import cast

Message = dict[str, object]
Table = Mapping[str, object]

TOOL: Message = {"name": "work", "inputSchema": {"type": "object"}}


def record(event: str) -> None:
    Path(os.environ["RECORDS"], event).write_text(str(os.getpid()), encoding="utf-8")


def write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def answer(request: Table, result: object) -> None:
    write(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}) + "\n")


def say(text: str) -> Message:
    return {"content": [{"type": "text", "text": text}]}


def tool(name: str, **more: object) -> Message:
    return {**TOOL, "name": name, **more}


def parameter(request: Table, name: str) -> str | None:
    params = request.get("params")
    found = cast("Table", params).get(name) if isinstance(params, dict) else None
    return None if found is None else str(found)


def called(request: Table) -> str:
    return parameter(request, "name") or ""


def serve(
    call: Callable[[Message], None],
    tools: object = (TOOL,),
    *,
    list_tools: Callable[[Message], None] | None = None,
    on_answer: Callable[[str], object] = lambda _: None,
) -> None:
    """Answer what must be answered, and leave calls to `call`."""
    for line in sys.stdin:
        request: Message = json.loads(line)
        if "result" in request:
            on_answer(line)
        match request.get("method"):
            case "initialize":
                version = "2025-11-25"
                info = {"name": "rough", "version": "1"}
                capabilities = {"tools": {"listChanged": True}}
                answer(
                    request,
                    {"protocolVersion": version, "capabilities": capabilities, "serverInfo": info},
                )
            case "tools/list":
                if list_tools is not None:
                    list_tools(request)
                else:
                    answer(request, {"tools": tools})
            case "tools/call":
                call(request)
            case "notifications/cancelled":
                record("cancelled")
            case _:
                pass


def works(request: Message) -> None:
    answer(request, say("worked"))


def start_another() -> None:
    """A process of the same group that holds none of our pipes."""
    command = [sys.executable, "-c", "import time; time.sleep(3600)"]
    none = subprocess.DEVNULL
    child = subprocess.Popen(command, stdin=none, stdout=none, stderr=none)
    Path(os.environ["RECORDS"], "another").write_text(str(child.pid), encoding="utf-8")


def silent() -> None:
    """Starts, and never says a word."""
    record("started")
    for _ in sys.stdin:
        pass


def dies() -> None:
    """Ends during the handshake."""
    print("there is no licence", file=sys.stderr, flush=True)
    sys.exit(4)


def dies_twice() -> None:
    """Starts only the third time."""
    starts = Path(os.environ["RECORDS"], "starts")
    count = int(starts.read_text(encoding="utf-8")) if starts.exists() else 0
    starts.write_text(str(count + 1), encoding="utf-8")
    if count < 2:
        sys.exit(5)
    serve(works)


def crashes() -> None:
    """Ends in the middle of a call of `crash`; `work` succeeds."""

    def call(request: Message) -> None:
        if called(request) == "crash":
            os._exit(3)
        answer(request, say(str(os.getpid())))

    serve(call, [tool("crash"), tool("work")])


def hangs() -> None:
    """Never answers a call, and records the notifications about it."""

    def call(request: Message) -> None:
        record("called")

    serve(call)


def mute() -> None:
    """Closes its output in the middle of a call, and lives on."""

    def call(request: Message) -> None:
        os.close(1)
        time.sleep(3600)

    serve(call)


def stubborn() -> None:
    """Ends neither with its input nor when it is asked to, and has started another process."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    start_another()
    record("started")
    serve(works)
    time.sleep(3600)


def breeds() -> None:
    """Ends quietly itself, and leaves another process behind."""
    start_another()
    serve(works)


def leaves_pipes() -> None:
    """Ends in the middle of a call, while another process holds its pipes."""

    def call(request: Message) -> None:
        command = [sys.executable, "-c", "import time; time.sleep(3600)"]
        child = subprocess.Popen(command)
        Path(os.environ["RECORDS"], "another").write_text(str(child.pid), encoding="utf-8")
        os._exit(3)

    serve(call)


def modern() -> None:
    """Knows only the protocol of 2026: no handshake, and changes are sent to listeners."""
    tools = [TOOL]
    listener: object = None
    for line in sys.stdin:
        request: Message = json.loads(line)
        whole = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
        match request.get("method"):
            case "initialize":
                error = {"code": -32022, "message": "no handshake here"}
                write(json.dumps({"jsonrpc": "2.0", "id": request["id"], "error": error}) + "\n")
            case "server/discover":
                capabilities = {"tools": {"listChanged": True}}
                known = {"supportedVersions": ["2026-07-28"], "capabilities": capabilities}
                answer(request, {**known, **whole})
            case "tools/list":
                answer(request, {"tools": tools, **whole})
            case "subscriptions/listen":
                listener = request["id"]
                notify(listener, "subscriptions/acknowledged", {"toolsListChanged": True})
            case "tools/call":
                tools.append(tool("more"))
                answer(request, {**say("worked"), "resultType": "complete"})
                notify(listener, "tools/list_changed", None)
            case _:
                pass


def serve_2026(
    call: Callable[[Message], None],
    *,
    initialize: Callable[[Message], None],
    whole: Message | None = None,
    tools: object = (TOOL,),
) -> None:
    """A server without a handshake. `whole`: what the protocol demands of each result."""
    more = (
        {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"} if whole is None else whole
    )
    for line in sys.stdin:
        request: Message = json.loads(line)
        match request.get("method"):
            case "initialize":
                initialize(request)
            case "server/discover":
                can: Message = {"tools": {}}
                answer(request, {"supportedVersions": ["2026-07-28"], "capabilities": can, **more})
            case "tools/list":
                answer(request, {"tools": tools, **more})
            case "tools/call":
                call(request)
            case _:
                pass


def refuse(request: Message, code: int, message: str) -> None:
    error = {"code": code, "message": message}
    write(json.dumps({"jsonrpc": "2.0", "id": request["id"], "error": error}) + "\n")


def no_handshake(request: Message) -> None:
    refuse(request, -32601, "Method not found")


def echoes_version() -> None:
    """Knows only the protocol of 2026, and answers the handshake with its version all the same."""

    def initialize(request: Message) -> None:
        info = {"name": "rough", "version": "1"}
        can: Message = {"tools": {}}
        version = "2026-07-28"
        answer(request, {"protocolVersion": version, "capabilities": can, "serverInfo": info})

    def call(request: Message) -> None:
        answer(request, {**say("worked"), "resultType": "complete"})

    serve_2026(call, initialize=initialize)


def bare() -> None:
    """Of 2026, and leaves out what its results could say of themselves."""
    serve_2026(works, initialize=no_handshake, whole={})


def asks_first() -> None:
    """Answers a call with a question, and returns the answers that it got."""
    form = {
        "type": "object",
        "properties": {"name": {"type": "string", "default": "Ada"}, "sure": {"type": "boolean"}},
    }
    question = {"message": "Who is it for?", "requestedSchema": form}
    wanted = {"who": {"method": "elicitation/create", "params": question}}

    def call(request: Message) -> None:
        params = cast("Table", request["params"])
        if called(request) == "endless" or "inputResponses" not in params:
            state = {"requestState": "état 1"} if called(request) != "stateless" else {}
            answer(request, {"resultType": "input_required", "inputRequests": wanted, **state})
            return
        output = {key: params.get(key) for key in ("inputResponses", "requestState")}
        answer(request, {**say(json.dumps(output, sort_keys=True)), "resultType": "complete"})

    serve_2026(
        call, initialize=no_handshake, tools=[tool("ask"), tool("stateless"), tool("endless")]
    )


def asks_by_itself() -> None:
    """Asks for a value although nothing was called, once there is a file `go` in its folder; writes the answer into `answered`."""

    def ask() -> None:
        while not Path("go").exists():
            time.sleep(0.01)
        form = {"type": "object", "properties": {"name": {"type": "string"}}}
        params = {"message": "Who are you?", "requestedSchema": form}
        question = {"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": params}
        write(json.dumps(question) + "\n")

    threading.Thread(target=ask, daemon=True).start()
    serve(works, on_answer=lambda line: Path("answered").write_text(line, encoding="utf-8"))


def wants_a_model() -> None:
    """Answers a call with a request for what we do not offer."""
    params: Message = {"messages": [], "maxTokens": 1}
    wanted = {"think": {"method": "sampling/createMessage", "params": params}}

    def call(request: Message) -> None:
        answer(request, {"resultType": "input_required", "inputRequests": wanted})

    serve_2026(call, initialize=no_handshake)


def own_codes() -> None:
    """Refuses a call with the number that the SDK has for a lost connection."""

    def call(request: Message) -> None:
        refuse(request, -32000, "the saw is out of order")

    serve(call)


def repeats() -> None:
    """Says which arguments it got."""

    def call(request: Message) -> None:
        params = cast("Table", request["params"])
        answer(request, say(json.dumps(params["arguments"], sort_keys=True)))

    schema = {
        "type": "object",
        "properties": {
            "needed": {"type": ["string", "null"]},
            "days": {"type": "integer"},
            "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "inner": {"type": "object", "properties": {"depth": {"$ref": "#/$defs/number"}}},
        },
        "required": ["needed"],
        "$defs": {"number": {"type": "number"}},
        "additionalProperties": False,
    }
    serve(call, [tool("repeat", inputSchema=schema)])


def notify(listener: object, method: str, notifications: object) -> None:
    params: Message = {"_meta": {"io.modelcontextprotocol/subscriptionId": listener}}
    if notifications is not None:
        params["notifications"] = notifications
    note = {"jsonrpc": "2.0", "method": f"notifications/{method}", "params": params}
    write(json.dumps(note) + "\n")


def deaf() -> None:
    """Reads nothing more after the handshake and the list of its tools."""

    def list_tools(request: Message) -> None:
        answer(request, {"tools": [TOOL]})
        record("deaf")
        time.sleep(3600)

    serve(works, list_tools=list_tools)


def floods() -> None:
    """Answers a call with a line that does not end."""

    def call(request: Message) -> None:
        if called(request) == "mutter":
            for _ in range(200):
                sys.stderr.write("x" * 100_000 + "\n" * 50)
            answer(request, say("muttered"))
        while called(request) == "flood":
            write("x" * 1_000_000)
        answer(request, say("worked"))

    serve(call, [tool("flood"), tool("mutter"), tool("work")])


def junk() -> None:
    """Says what is no message, before and between its messages."""

    def call(request: Message) -> None:
        write('working…\n\n{"half": \n[1]\n{"jsonrpc": "1.0"}\n')
        write('{"jsonrpc": "2.0", "id": true, "result": 5}\n')
        os.write(1, b"\xff\xfe\n")
        answer(request, say("worked"))

    write("Welcome to the junk server!\n\n")
    serve(call)


LIES: dict[str, object] = {
    "not_a_result": [1, 2],
    "no_content": {"content": "text"},
    "unknown_part": {"content": [{"type": "smell", "smell": "x"}]},
    "text_is_a_number": {"content": [{"type": "text", "text": 5}]},
    "picture_is_no_base64": {
        "content": [{"type": "image", "data": "%%%", "mimeType": "image/png"}]
    },
    "picture_has_no_type": {"content": [{"type": "image", "data": "AAAA", "mimeType": "a\nb"}]},
    "structure_does_not_fit": {"content": [], "structuredContent": {"count": "many"}},
    "pattern_takes_for_ever": {"content": [], "structuredContent": {"count": "a" * 60 + "b"}},
    "structure_is_missing": {"content": [{"type": "text", "text": "x"}]},
    "only_structure": {"content": [], "structuredContent": {"é": [1, 2.5, None]}},
    "long_text": {"content": [{"type": "text", "text": "x" * 1_000_000}]},
    "many_parts": {"content": [{"type": "text", "text": "x"}] * 5_000},
    "large_picture": {
        "content": [{"type": "image", "data": "AAAA" * 3_000_000, "mimeType": "image/png"}]
    },
}


def lies() -> None:
    """Answers with what the protocol, or its own schema, does not allow; or with too much."""
    schema = {
        "type": "object",
        "properties": {"count": {"type": "integer"}},
        "required": ["count"],
    }
    pattern = {"type": "object", "properties": {"count": {"type": "string", "pattern": "^(a+)+$"}}}
    promised = {
        "structure_does_not_fit": schema,
        "structure_is_missing": schema,
        "pattern_takes_for_ever": pattern,
    }
    tools = [
        tool(name, **({"outputSchema": promised[name]} if name in promised else {}))
        for name in LIES
    ]

    def call(request: Message) -> None:
        answer(request, LIES[called(request)])

    serve(call, tools)


def lies_about_tools() -> None:
    """Its list of tools is not a list."""
    serve(works, [{"name": "work", "inputSchema": 5}])


def pages() -> None:
    """Lists its tools on pages, the last of which says that there is another."""

    def list_tools(request: Message) -> None:
        cursor = parameter(request, "cursor") or "0"
        following = min(int(cursor) + 1, 3)
        listed = [tool(f"tool{cursor}"), tool("again")]
        answer(request, {"tools": listed, "nextCursor": str(following)})

    serve(works, list_tools=list_tools)


def lists_too_many() -> None:
    """Lists more tools than any model can choose among, on one page."""
    serve(works, [tool(f"tool{number}") for number in range(1_500)])


def announces() -> None:
    """Says without end that its tools have changed; and after a call they have."""
    listed = [TOOL]

    def call(request: Message) -> None:
        listed.append(tool(f"tool{len(listed)}"))
        note = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
        write((json.dumps(note) + "\n") * 200)
        answer(request, say("worked"))

    serve(call, listed)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
