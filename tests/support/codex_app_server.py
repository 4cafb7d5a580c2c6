"""A stand-in for `codex app-server`: a program that speaks its protocol from a script, and misbehaves where scripted.

    settings = app_server(tmp_path, [[text("Let me look."), call("call_1", "get", '{"x": 1}')], [text("Done.")]])

A thread plays the responses in order, and begins after those whose calls have results in the injected history, as a
model without memory would. It logs every message it gets: `heard(tmp_path)`.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the program itself starts without it, and so at once
    from dragoman.config.settings import UpstreamSettings

Json = dict[str, Any]

_SCRIPT = "script.json"
_HEARD = "heard.jsonl"
_PIDS = "pids"


# --- for tests ---------------------------------------------------------------------------------------------------------


def app_server(
    folder: Path,
    responses: list[list[Json]] | None = None,
    behaviour: Json | None = None,
    **settings: Any,
) -> "UpstreamSettings":
    """An upstream whose child plays these responses.

    behaviour: `garbage` (lines printed first), `mute` (methods that get no answer), `refuse` (method: [code, message]),
    `exit_on` (method: exit code; `exit_once` if only the first child does), `flood` (bytes on standard error),
    `stubborn` (does not end with its input), `grandchild` (starts a process that would outlive it), `config` (what
    config/read returns), `account_limits` (what each `account/rateLimits/read` returns, the last for ever), `ask` (requests of its own before the first item), `limits`, `error` (the turn fails with it),
    `retry` (it begins the first response anew), `silent` (nothing after turn/start), `late_call` (calls are asked for
    after the response is over), `never_complete` (the response has no end), `complete_held`, `complete_on_steer` (the turn ends while
    calls wait), `slow` (seconds before each item), `slow_answers` (method: seconds before its answer), `own_tools` (names of tools
    that it runs itself), `exit_after_items`, `close_after_items` (its output), `fail_after_results`, `stray_call` (a call for another thread), `nameless` (threads have no id), `broken_item` (bytes that are no UTF-8, deep in a message),
    `broken_line` (a line that is no message, inside a turn).
    """
    from dragoman.config.settings import UpstreamSettings  # noqa: PLC0415

    folder.mkdir(parents=True, exist_ok=True)
    script = {"responses": responses or [], **(behaviour or {})}
    (folder / _SCRIPT).write_text(json.dumps(script), encoding="utf-8")
    command = (sys.executable, __file__, str(folder))
    given: Json = {"connect_timeout": 5.0, **settings}
    return UpstreamSettings(kind="codex", command=command, **given)


def text(words: str, item_id: str = "msg_1") -> Json:
    return {"type": "text", "text": words, "id": item_id}


def reasoning(summary: str, seal: str = "c2VhbA==") -> Json:
    return {"type": "reasoning", "summary": summary, "seal": seal}


def call(call_id: str, name: str, arguments: str = "{}") -> Json:
    return {"type": "call", "call_id": call_id, "name": name, "arguments": arguments}


def custom(call_id: str, name: str, source: str) -> Json:
    """A call of a tool of Codex's own."""
    return {"type": "custom", "call_id": call_id, "name": name, "input": source}


def heard(folder: Path, method: str | None = None) -> list[Json]:
    """The messages that the children got, in order; those of one method, if it is given."""
    file = folder / _HEARD
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    messages: list[Json] = [json.loads(line) for line in lines]
    return (
        messages if method is None else [each for each in messages if each.get("method") == method]
    )


def params_of(folder: Path, method: str) -> list[Json]:
    return [message["params"] for message in heard(folder, method)]


def answers(folder: Path) -> list[Json]:
    """What the children's own requests were answered with."""
    return [message for message in heard(folder) if "method" not in message]


def pids(folder: Path) -> list[int]:
    """The processes that were started, children of children included."""
    file = folder / _PIDS
    return [int(line) for line in file.read_text().split()] if file.exists() else []


def alive(folder: Path) -> list[int]:
    """Those of them that still run."""
    return [pid for pid in pids(folder) if _runs(pid)]


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state != "Z"


# --- the program -------------------------------------------------------------------------------------------------------


class _Thread:
    """A thread and its turn: which response comes next, and which calls wait."""

    def __init__(self, number: int) -> None:
        self.id = f"thread-{number}"
        self.turn = f"turn-{number}"
        self.items: list[Json] = []
        self.place = 0
        self.waiting: dict[str, int] = {}
        self.total = 0
        self.is_over = False


class _Server:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._script: Json = json.loads((folder / _SCRIPT).read_text(encoding="utf-8"))
        self._threads: dict[str, _Thread] = {}
        self._requests = 0
        self._asked: dict[int, tuple[_Thread, str]] = {}

    def run(self) -> None:
        self._note_pid(os.getpid())
        if "flood" in self._script:
            self._flood(self._script["flood"])
        if self._script.get("grandchild"):
            sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
            self._note_pid(sleeper.pid)
        for line in self._script.get("garbage", []):
            print(line, flush=True)
        for line in sys.stdin:
            with (self._folder / _HEARD).open("a", encoding="utf-8") as file:
                file.write(line)
            self._take(json.loads(line))
        while self._script.get("stubborn"):
            time.sleep(1)

    def _note_pid(self, pid: int) -> None:
        with (self._folder / _PIDS).open("a", encoding="utf-8") as file:
            file.write(f"{pid}\n")

    def _flood(self, size: int) -> None:
        line = b"x" * 99 + b" token=abcdefgh\n"
        for _ in range(size // len(line)):
            sys.stderr.buffer.write(line)
        sys.stderr.buffer.flush()

    def _take(self, message: Json) -> None:
        method = message.get("method")
        if method is None:
            self._resolve(message)
        elif "id" in message:
            self._answer(message, method, message.get("params") or {})

    def _answer(self, message: Json, method: str, params: Json) -> None:
        script = self._script
        if method in script.get("exit_on", {}):
            marker = self._folder / "exited"
            if not (script.get("exit_once") and marker.exists()):
                marker.touch()
                print("it is all too much", file=sys.stderr, flush=True)
                os._exit(script["exit_on"][method])
        time.sleep(script.get("slow_answers", {}).get(method, 0))
        if method in script.get("mute", []):
            return
        if method in script.get("refuse", {}):
            code, words = script["refuse"][method]
            self._send({"id": message["id"], "error": {"code": code, "message": words}})
            return
        if method == "account/rateLimits/read" and "account_limits" not in script:
            words = "codex account authentication required to read rate limits"
            self._send({"id": message["id"], "error": {"code": -32600, "message": words}})
            return
        after = {"turn/start": self._begin, "turn/interrupt": self._interrupt}.get(method)
        self._send({"id": message["id"], "result": self._result(method, params)})
        if after is not None:
            after(self._threads[params["threadId"]])

    def _result(self, method: str, params: Json) -> Json:
        match method:
            case "initialize":
                return {"userAgent": "stand-in/0.166.0"}
            case "config/read":
                return {"config": self._script.get("config", {})}
            case "account/rateLimits/read":
                reports: list[Json] = self._script["account_limits"]
                limits = reports.pop(0) if len(reports) > 1 else reports[0]
                return {"rateLimits": limits, "rateLimitsByLimitId": {"codex": limits}}
            case "thread/start":
                thread = _Thread(len(self._threads) + 1)
                thread.id += f"-{os.getpid()}"
                self._threads[thread.id] = thread
                if self._script.get("nameless"):
                    return {}
                return {"thread": {"id": thread.id}, "model": params.get("model", "configured")}
            case "thread/inject_items":
                self._threads[params["threadId"]].items += params["items"]
                return {}
            case "turn/start":
                thread = self._threads[params["threadId"]]
                return {"turn": {"id": thread.turn, "status": "inProgress"}}
            case "turn/steer":
                if self._script.get("complete_on_steer"):
                    self._complete(self._threads[params["threadId"]], "completed")
                return {"turnId": params["expectedTurnId"]}
            case _:
                return {}

    def _begin(self, thread: _Thread) -> None:
        answered = {
            item["call_id"] for item in thread.items if item["type"] == "function_call_output"
        }
        for response in self._script["responses"]:
            ids = {item["call_id"] for item in response if item["type"] == "call"}
            if not ids or not ids <= answered:
                break
            thread.place += 1
        self._note(thread, "turn/started", turn={"id": thread.turn, "startedAt": 1800000000})
        if "limits" in self._script:
            self._send(
                {
                    "method": "account/rateLimits/updated",
                    "params": {"rateLimits": self._script["limits"]},
                }
            )
        if self._script.get("silent"):
            return
        if "error" in self._script:
            self._fail(thread, self._script["error"])
            return
        if self._script.get("broken_item"):
            place = {"threadId": thread.id, "item": {"type": "?"}}
            line = json.dumps({"method": "item/started", "params": place}).encode()
            sys.stdout.buffer.write(line.replace(b"?", b"\xff") + b"\n")
            sys.stdout.flush()
        if "broken_line" in self._script:
            sys.stdout.write(self._script["broken_line"] + "\n")
            sys.stdout.flush()
        if self._script.get("stray_call"):
            self._ask(_Thread(99), "item/tool/call", callId="x", tool="get", arguments={})
        for method in self._script.get("ask", []):
            self._ask(thread, method, itemId="item-1")
        self._respond(thread)

    def _respond(self, thread: _Thread) -> None:
        """One model response: its items, then either its calls wait or the turn is over."""
        script = self._script
        items: list[Json] = script["responses"][thread.place]
        thread.place += 1
        if script.get("retry") and thread.place == 1:
            self._retry(thread, items)
        calls: list[Json] = []
        for item in items:
            time.sleep(script.get("slow", 0))
            getattr(self, f"_say_{item['type']}")(thread, item)
            if item["type"] == "call":
                calls.append(item)
                if not script.get("late_call"):
                    self._ask_for(thread, item)
        if script.get("exit_after_items"):
            os._exit(9)
        if script.get("close_after_items"):
            os.close(1)
            time.sleep(60)
        thread.total += 15
        usage = {"inputTokens": 10, "outputTokens": 5, "totalTokens": 15}
        if not script.get("never_complete"):
            self._note(
                thread, "rawResponse/completed", turnId=thread.turn, responseId="r", usage=usage
            )
        if script.get("late_call"):
            for item in calls:
                self._ask_for(thread, item)
        if calls and script.get("complete_held"):
            time.sleep(0.2)
            self._complete(thread, "completed")
        if not calls:
            self._after(thread)

    def _after(self, thread: _Thread) -> None:
        """A response has ended and its calls are answered."""
        self._note(
            thread,
            "thread/tokenUsage/updated",
            turnId=thread.turn,
            tokenUsage={
                "total": {"totalTokens": thread.total, "inputTokens": thread.total},
                "last": {"totalTokens": 15, "inputTokens": 10},
            },
        )
        if thread.place < len(self._script["responses"]) and self._has_calls(thread.place - 1):
            self._respond(thread)
        else:
            self._complete(thread, "completed")

    def _has_calls(self, place: int) -> bool:
        return any(item["type"] == "call" for item in self._script["responses"][place])

    def _retry(self, thread: _Thread, items: list[Json]) -> None:
        if self._script["retry"] == "told":
            self._item(thread, "item/started", {"type": "agentMessage", "id": "msg_1", "text": ""})
            self._note(
                thread, "item/agentMessage/delta", turnId=thread.turn, itemId="msg_1", delta="Half"
            )
        error = {"message": "Reconnecting... 1/5", "codexErrorInfo": "other"}
        self._note(thread, "error", turnId=thread.turn, error=error, willRetry=True)
        assert items

    def _say_text(self, thread: _Thread, item: Json) -> None:
        message = {"type": "agentMessage", "id": item["id"], "text": ""}
        self._item(thread, "item/started", message)
        words = item["text"]
        for start in range(0, len(words), 7):
            delta = words[start : start + 7]
            self._note(
                thread,
                "item/agentMessage/delta",
                turnId=thread.turn,
                itemId=item["id"],
                delta=delta,
            )
        self._item(thread, "item/completed", {**message, "text": words})
        content = [{"type": "output_text", "text": words}]
        self._raw(thread, type="message", id=item["id"], role="assistant", content=content)

    def _say_reasoning(self, thread: _Thread, item: Json) -> None:
        part: Json = {"type": "reasoning", "id": "rs_1", "summary": [], "content": []}
        self._item(thread, "item/started", part)
        place = {"turnId": thread.turn, "itemId": "rs_1", "summaryIndex": 0}
        self._note(thread, "item/reasoning/summaryTextDelta", **place, delta=item["summary"])
        self._raw(thread, type="reasoning", id="rs_1", encrypted_content=item["seal"])
        self._item(thread, "item/completed", {**part, "summary": [item["summary"]]})

    def _say_call(self, thread: _Thread, item: Json) -> None:
        fields = {key: item[key] for key in ("call_id", "name", "arguments")}
        self._raw(thread, type="function_call", id=f"fc_{item['call_id']}", **fields)

    def _say_custom(self, thread: _Thread, item: Json) -> None:
        fields = {key: item[key] for key in ("call_id", "name", "input")}
        self._raw(thread, type="custom_tool_call", id=f"ctc_{item['call_id']}", **fields)
        self._raw(
            thread, type="custom_tool_call_output", call_id=item["call_id"], output="no environment"
        )

    def _ask_for(self, thread: _Thread, item: Json) -> None:
        """What Codex does with a call: runs its own tools, asks for the client's, answers what is no JSON itself."""
        try:
            arguments = json.loads(item["arguments"])
        except ValueError:
            self._raw(
                thread,
                type="function_call_output",
                call_id=item["call_id"],
                output="failed to parse",
            )
            return
        if item["name"] in self._script.get("own_tools", []):
            self._raw(
                thread, type="function_call_output", call_id=item["call_id"], output="ran here"
            )
            return
        part = {"type": "dynamicToolCall", "id": item["call_id"], "tool": item["name"]}
        self._item(thread, "item/started", {**part, "arguments": arguments, "namespace": None})
        number = self._ask(
            thread,
            "item/tool/call",
            callId=item["call_id"],
            namespace=None,
            tool=item["name"],
            arguments=arguments,
        )
        thread.waiting[item["call_id"]] = number

    def _ask(self, thread: _Thread, method: str, **params: Any) -> int:
        number = self._requests
        self._requests += 1
        self._asked[number] = (thread, str(params.get("callId", "")))
        self._send(
            {
                "method": method,
                "id": number,
                "params": {"threadId": thread.id, "turnId": thread.turn, **params},
            }
        )
        return number

    def _resolve(self, message: Json) -> None:
        thread, call_id = self._asked.pop(message["id"])
        if not call_id or thread.is_over:
            return
        del thread.waiting[call_id]
        part = {"type": "dynamicToolCall", "id": call_id, "tool": "", "status": "completed"}
        self._item(thread, "item/completed", part)
        entries = message.get("result", {}).get("contentItems", [])
        output = "".join(entry.get("text", "") for entry in entries)
        self._raw(thread, type="function_call_output", call_id=call_id, output=output)
        if not thread.waiting:
            if self._script.get("fail_after_results"):
                self._fail(thread, {"message": "the stream was cut", "codexErrorInfo": "other"})
            else:
                self._after(thread)

    def _interrupt(self, thread: _Thread) -> None:
        if not thread.is_over:
            self._complete(thread, "interrupted")

    def _fail(self, thread: _Thread, error: Json) -> None:
        self._note(thread, "error", turnId=thread.turn, error=error, willRetry=False)
        self._complete(thread, "failed", error)

    def _complete(self, thread: _Thread, status: str, error: Json | None = None) -> None:
        thread.is_over = True
        turn: Json = {"id": thread.turn, "status": status, "error": error, "items": []}
        self._note(thread, "turn/completed", turn=turn)

    def _item(self, thread: _Thread, method: str, item: Json) -> None:
        self._note(thread, method, turnId=thread.turn, item=item)

    def _raw(self, thread: _Thread, **item: Any) -> None:
        self._item(thread, "rawResponseItem/completed", item)

    def _note(self, thread: _Thread, method: str, **params: Any) -> None:
        self._send({"method": method, "params": {"threadId": thread.id, **params}})

    def _send(self, message: Json) -> None:
        print(json.dumps(message), flush=True)


if __name__ == "__main__":
    _Server(Path(sys.argv[1])).run()
