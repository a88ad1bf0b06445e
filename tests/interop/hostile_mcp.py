"""An MCP server that misbehaves in the way that MODE says.

    python hostile_mcp.py MODE [FOLDER]

It speaks the older revision of the protocol over its input and output, or the newer
one where its mode says so, without an SDK, which would not allow invalid messages. FOLDER keeps its state across restarts.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time

MODE = sys.argv[1]
FOLDER = sys.argv[2] if len(sys.argv) > 2 else "."
NEWER = MODE == "newer"
OBJECT = {"type": "object"}
ANSWERS = {}
CANCELLED = []
ASKED = {}
TOOLS = []


def raw(data):
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def send(message):
    raw(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")


def send_text(ident, text, **more):
    content = [{"type": "text", "text": text}]
    if NEWER:
        more["resultType"] = "complete"
    send({"id": ident, "result": {"content": content, **more}})


def note(name, line):
    with open(os.path.join(FOLDER, name), "a", encoding="utf-8") as file:
        file.write(line + "\n")


def count(name):
    try:
        with open(os.path.join(FOLDER, name), encoding="utf-8") as file:
            return len(file.readlines())
    except FileNotFoundError:
        return 0


def tool(annotations=None, schema=None):
    def register(function):
        listed = {"name": function.__name__, "inputSchema": schema or OBJECT}
        if annotations:
            listed["annotations"] = annotations
        TOOLS.append(listed)
        ANSWERS[function.__name__] = function
        return function

    return register


PURE = {"readOnlyHint": True}


@tool(PURE)
def hello(call):
    send_text(call["id"], "hello from %d" % os.getpid())


@tool()
def die(call):
    note("died", "once")
    sys.stderr.write("I am dying\n")
    os._exit(7)


@tool(PURE)
def die_first(call):
    note("tried", "once")
    if count("tried") == 1:
        os._exit(8)
    send_text(call["id"], "alive at the %d. try" % count("tried"))


@tool({"idempotentHint": True})
def die_always(call):
    note("always", "once")
    os._exit(9)


def progress(call, at, total, message):
    token = call["params"]["_meta"]["progressToken"]
    params = {"progressToken": token, "progress": at, "total": total, "message": message}
    send({"method": "notifications/progress", "params": params})


@tool()
def hang(call):
    CANCELLED.append(call["id"])
    progress(call, 1, 4, "hanging")


@tool()
def until_cancelled(call):
    ASKED["waits"] = call["id"]
    settle()


def settle():
    """Answers both calls, once the call that hangs was cancelled: first the
    cancelled call, then the one that waits."""
    if "waits" in ASKED and "cancelled" in ASKED:
        send_text(CANCELLED[0], "too late")
        send_text(ASKED["waits"], "cancelled: %s" % (ASKED["cancelled"] == CANCELLED[0]))


@tool()
def flood(call):
    line = b'{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"'
    line += b"x" * 60_000 + b'"}}\n'
    while True:
        raw(line)


@tool()
def unsolicited_output(call):
    while True:
        raw(b"this is no message\n" * 100)


@tool()
def garbage(call):
    raw(b"Hello!\n{\n[]\n\n\xff\xfe\x00\n{\"jsonrpc\":\"2.0\"}\n5\nnull\n")
    send_text(call["id"], "after the garbage")


@tool()
def no_end(call):
    while True:
        raw(b"x" * 1_000_000)


@tool(PURE)
def huge(call):
    note("huge", "once")
    send_text(call["id"], "x" * 100_000_000)


@tool()
def big(call):
    send_text(call["id"], "x" * 12_000_000)


@tool()
def bad_utf8(call):
    text = b'{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"a\xffb"}]}}\n'
    raw(text % call["id"])


@tool()
def odd(call):
    send({"id": call["id"], "result": {"content": [{"type": "smell", "of": "rain"}]}})


@tool()
def invalid_content(call):
    send({"id": call["id"], "result": {"content": "nope"}})


@tool()
def violates_output_schema(call):
    send_text(call["id"], "five", structuredContent={"a": 5})


TOOLS[-1]["outputSchema"] = {"type": "object", "properties": {"a": {"type": "string"}}}


@tool()
def refuses(call):
    send({"id": call["id"], "error": {"code": -32000, "message": "not\ntoday " + "x" * 5000}})


@tool()
def fails(call):
    send_text(call["id"], "it did not work", isError=True)


@tool()
def environment(call):
    send_text(call["id"], json.dumps(dict(os.environ)))


@tool()
def asks_with_defaults(call):
    ASKED.update(call=call["id"], said={}, alone=True)
    fields = {"name": {"type": "string", "default": "Ada"}, "age": {"type": "integer"}}
    form = {"type": "object", "properties": fields, "required": ["name"]}
    question = {"method": "elicitation/create", "params": {"message": "who?", "requestedSchema": form}}
    answered = call["params"].get("inputResponses")
    if not NEWER:
        send({"id": "e", **question})
    elif answered:
        send_text(call["id"], json.dumps(answered))
    else:
        question["params"]["mode"] = "form"
        wants = {"resultType": "input_required", "inputRequests": {"e": question}}
        send({"id": call["id"], "result": wants})


@tool()
def asks_oddly(call):
    ASKED.update(call=call["id"], said={}, alone=True)
    form = {"type": "object", "properties": {"a": call["params"]["arguments"]["field"]}}
    send({"id": "e", "method": "elicitation/create", "params": {"message": "who?", "requestedSchema": form}})


@tool()
def asks(call):
    ASKED.update(call=call["id"], said={})
    send({"id": "e", "method": "elicitation/create", "params": {"message": "who?", "requestedSchema": {"type": "object", "properties": {}}}})
    send({"id": "s", "method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 5}})
    send({"id": "r", "method": "roots/list"})
    send({"id": "x", "method": "secrets/list"})


def handle_response(message):
    said = ASKED["said"]
    said[message["id"]] = message.get("result", message.get("error", {}).get("code"))
    if len(said) == 4 or ASKED.get("alone"):
        send_text(ASKED["call"], json.dumps(said, sort_keys=True))


@tool()
def asks_with_state(call):
    """Asks for the input in `requests`, with the state in `state`, as often as `times`
    says, and then answers with what it was sent."""
    given = call["params"]["arguments"]
    note("asked", json.dumps({key: call["params"].get(key) for key in ("requestState", "inputResponses")}))
    if count("asked") > given.get("times", 1):
        with open(os.path.join(FOLDER, "asked"), encoding="utf-8") as file:
            send_text(call["id"], file.read())
        return
    wants = {"resultType": "input_required", "inputRequests": given.get("requests", {})}
    send({"id": call["id"], "result": {**wants, "requestState": given.get("state", "s%d" % count("asked"))}})


@tool()
def task(call):
    """Answers with a task. `script` is what the server says about it, one item for each
    request; the last one is repeated."""
    given = call["params"]["arguments"]
    note("created", json.dumps(call["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"]))
    with open(os.path.join(FOLDER, "script"), "w", encoding="utf-8") as file:
        json.dump(given["script"], file)
    send({"id": call["id"], "result": {"resultType": "task", **TASK, "status": "working", **given.get("task", {})}})


TASK = {"taskId": "task-7", "createdAt": "2026-07-28T00:00:00Z", "lastUpdatedAt": "2026-07-28T00:00:00Z", "ttlMs": None}


def handle_task(message):
    ident, params = message["id"], message["params"]
    if message["method"] == "tasks/get":
        note("polled", params["taskId"])
        with open(os.path.join(FOLDER, "script"), encoding="utf-8") as file:
            script = json.load(file)
        now = script[min(count("polled"), len(script)) - 1]
        if now == "die":
            os._exit(6)
        if "code" in now:
            send({"id": ident, "error": now})
        else:
            send({"id": ident, "result": {"resultType": "complete", **TASK, **now}})
    elif message["method"] == "tasks/update":
        note("updated", json.dumps(params["inputResponses"]))
        send({"id": ident, "result": {"resultType": "complete"}})
    else:
        note("task_cancelled", params["taskId"])
        send({"id": ident, "result": {"resultType": "complete"}})


@tool()
def asks_forever(call):
    for ident in range(10_000_000):
        send({"id": ident, "method": "ping"})


@tool()
def grow(call):
    TOOLS.append({"name": "grown", "inputSchema": OBJECT})
    send({"method": "notifications/tools/list_changed"})
    send_text(call["id"], "grown")


@tool()
def start_children(call):
    """Connects to a port, and has a child that holds the connection too: the
    other side sees its end when both are gone."""
    line = socket.create_connection(("127.0.0.1", int(call["params"]["arguments"]["port"])))
    line.set_inheritable(True)
    subprocess.Popen(["sleep", "1000"], close_fds=False, stdin=subprocess.DEVNULL)
    line.sendall(b"here\n")
    ASKED["line"] = line
    send_text(call["id"], "both")


LIES = [
    {"name": "good", "inputSchema": OBJECT},
    {"name": "text", "inputSchema": "none"},
    {"name": "broken", "inputSchema": {"type": "object", "properties": {"a": {"type": 5}}}},
    {"name": "new\nline", "inputSchema": OBJECT},
    {"name": "good", "inputSchema": OBJECT},
    {"name": "n" * 10_000, "inputSchema": OBJECT},
    {"name": 5, "inputSchema": OBJECT},
    {"name": "round", "inputSchema": {"type": "object", "properties": {"a": {"$ref": "#"}}}},
    {"name": "wordy", "description": "w" * 100_000, "inputSchema": OBJECT},
    "no tool at all",
]


def listed(params):
    if MODE == "lies":
        return {"tools": LIES}
    if MODE == "endless":
        page = int(params.get("cursor", "0"))
        named = [{"name": "t%d" % page, "inputSchema": OBJECT}]
        return {"tools": named, "nextCursor": str(page + 1)}
    if MODE == "many_tools":
        return {"tools": [{"name": "t%d" % at, "inputSchema": OBJECT} for at in range(1000)]}
    return {"tools": TOOLS}


def handle(message):
    method = message.get("method")
    if method is None:
        handle_response(message)
    elif method == "server/discover" and NEWER:
        able = {"tools": {}, "extensions": {"io.modelcontextprotocol/tasks": {}}}
        known = {"supportedVersions": ["2026-07-28"], "capabilities": able}
        send({"id": message["id"], "result": {"resultType": "complete", "ttlMs": 0, "cacheScope": "private", **known}})
    elif method == "initialize" and NEWER:
        send({"id": message["id"], "error": {"code": -32601, "message": "not any more"}})
    elif method == "initialize":
        note("capabilities", json.dumps(message["params"]["capabilities"]))
        info = {"name": "hostile\x07", "title": "A hostile one", "version": "0"}
        able = {"tools": {"listChanged": True}}
        agreed = {"protocolVersion": "2025-11-25", "capabilities": able, "serverInfo": info}
        send({"id": message["id"], "result": agreed})
    elif method == "tools/list":
        note("listed", "once")
        if MODE == "dies_listing":
            os._exit(5)
        if MODE == "mute_first" and count("listed") == 1:
            return
        page = listed(message.get("params") or {})
        if NEWER:
            page = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private", **page}
        send({"id": message["id"], "result": page})
    elif method == "tools/call":
        ANSWERS[message["params"]["name"]](message)
    elif method in ("tasks/get", "tasks/update", "tasks/cancel"):
        handle_task(message)
    elif method == "notifications/cancelled":
        ASKED["cancelled"] = message["params"]["requestId"]
        settle()
    elif "id" in message:
        send({"id": message["id"], "error": {"code": -32601, "message": "unknown"}})


def main():
    note("started", "once")
    if MODE == "dies_at_start":
        sys.stderr.write("the key %s is none\n" % os.environ.get("API_KEY", "?"))
        sys.exit(3)
    if MODE == "slow_again" and count("started") > 1:
        # It answers once the file `go` exists.
        while not os.path.exists(os.path.join(FOLDER, "go")):
            time.sleep(0.02)
    if MODE == "late" and not os.path.exists(os.path.join(FOLDER, "waited")):
        # Its first start is so slow that two handshakes wait for it.
        waiting = [json.loads(sys.stdin.buffer.readline()) for _ in range(2)]
        note("waited", ", ".join(message["method"] for message in waiting))
        for message in waiting:
            handle(message)
    for line in sys.stdin.buffer:
        message = json.loads(line)
        if MODE == "touchy" and message.get("method") == "server/discover":
            sys.exit(4)
        if MODE == "deaf" and message.get("method") == "server/discover":
            note("passed_over", "once")
            continue
        if MODE != "silent":
            handle(message)
    if MODE == "ignores_sigterm":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True:
            sys.stdin.read()
            subprocess.run(["sleep", "1000"], check=False)


main()
