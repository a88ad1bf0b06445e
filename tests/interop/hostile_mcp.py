"""An MCP server that violates the protocol, sends too much, hangs or exits.

    python hostile_mcp.py MODE [FOLDER]

The server uses the older revision of the protocol over stdin and stdout, or the newer one in mode
`newer_protocol`. It is written without an SDK, because an SDK would not send invalid messages.
FOLDER keeps its state across restarts.

Modes:
    default              misbehaves only in the tools whose names say so
    newer_protocol       like `default`, with the newer revision of the protocol
    dies_at_start        exits before the handshake
    exits_on_discover    exits at the first request of the newer handshake
    ignores_discover     never answers the first request of the newer handshake
    slow_start           on its first start, reads two requests before it answers them
    slow_restart         on later starts, waits until the file `allow_restart` exists
    silent               never answers a request
    invalid_tools        lists invalid tools among valid ones
    endless_tool_pages   lists one tool per page, on an endless number of pages
    many_tools           lists 1000 tools
    dies_while_listing   exits when it should list its tools
    ignores_first_list   never answers the first request for its tools
    ignores_sigterm      keeps running after the end of its input and after SIGTERM
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
USES_NEWER_PROTOCOL = MODE == "newer_protocol"
OBJECT_SCHEMA = {"type": "object"}
READ_ONLY = {"readOnlyHint": True}
# Definitions of the tools, in the order of the list that clients get.
TOOLS = []
# Tool name -> function that handles calls of the tool.
HANDLERS = {}
# Ids of the calls of `hang`.
HANGING_CALL_IDS = []
# State of open calls. Each key is described where it is set.
CALL_STATE = {}


def write_raw(data):
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def send(message):
    write_raw(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")


def send_text_result(call_id, text, **extra_fields):
    content = [{"type": "text", "text": text}]
    if USES_NEWER_PROTOCOL:
        extra_fields["resultType"] = "complete"
    send({"id": call_id, "result": {"content": content, **extra_fields}})


def send_progress(call, progress, total, message):
    token = call["params"]["_meta"]["progressToken"]
    params = {"progressToken": token, "progress": progress, "total": total, "message": message}
    send({"method": "notifications/progress", "params": params})


def path_of(file_name):
    return os.path.join(FOLDER, file_name)


def append_line(file_name, line):
    with open(path_of(file_name), "a", encoding="utf-8") as file:
        file.write(line + "\n")


def increment(file_name):
    """Adds one to a counter. Its value is the number of lines of the file."""
    append_line(file_name, "1")


def line_count(file_name):
    try:
        with open(path_of(file_name), encoding="utf-8") as file:
            return len(file.readlines())
    except FileNotFoundError:
        return 0


def tool(annotations=None, schema=None):
    """Registers a function as the tool of the same name."""

    def register(function):
        definition = {"name": function.__name__, "inputSchema": schema or OBJECT_SCHEMA}
        if annotations:
            definition["annotations"] = annotations
        TOOLS.append(definition)
        HANDLERS[function.__name__] = function
        return function

    return register


@tool(READ_ONLY)
def hello(call):
    send_text_result(call["id"], "hello from %d" % os.getpid())


@tool()
def die(call):
    increment("die_calls")
    sys.stderr.write("I am dying\n")
    os._exit(7)


@tool(READ_ONLY)
def die_on_first_call(call):
    increment("die_on_first_call_calls")
    attempts = line_count("die_on_first_call_calls")
    if attempts == 1:
        os._exit(8)
    send_text_result(call["id"], "alive on attempt %d" % attempts)


@tool({"idempotentHint": True})
def die_always(call):
    increment("die_always_calls")
    os._exit(9)


@tool()
def hang(call):
    """Reports progress and does not answer."""
    HANGING_CALL_IDS.append(call["id"])
    send_progress(call, 1, 4, "hanging")


@tool()
def answer_when_allowed(call):
    """Reports progress, and answers when the file `allow_answer` exists."""
    send_progress(call, 1, 2, "waiting")
    while not os.path.exists(path_of("allow_answer")):
        time.sleep(0.02)
    send_text_result(call["id"], "answered by %d" % os.getpid())


@tool()
def wait_for_cancellation(call):
    """Answers once a call was cancelled."""
    CALL_STATE["waiting_call_id"] = call["id"]
    respond_after_cancellation()


def respond_after_cancellation():
    """Answers the first call of `hang` and then the call of `wait_for_cancellation`, once a client
    has called `wait_for_cancellation` and has cancelled a call."""
    if "waiting_call_id" in CALL_STATE and "cancelled_call_id" in CALL_STATE:
        hanging_call_id = HANGING_CALL_IDS[0]
        send_text_result(hanging_call_id, "too late")
        is_hanging_call = CALL_STATE["cancelled_call_id"] == hanging_call_id
        send_text_result(CALL_STATE["waiting_call_id"], "cancelled: %s" % is_hanging_call)


@tool()
def endless_notifications(call):
    line = b'{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"'
    line += b"x" * 60_000 + b'"}}\n'
    while True:
        write_raw(line)


@tool()
def endless_text_lines(call):
    while True:
        write_raw(b"this is no message\n" * 100)


@tool()
def flood_after_answer(call):
    """Answers, and then writes without end: `output` says what."""
    send_text_result(call["id"], "answered")
    notification = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
    stdout_lines = {
        "notifications": json.dumps(notification).encode() + b"\n",
        "responses": b'{"jsonrpc":"2.0","id":4000000,"result":{}}\n',
        "blank_lines": b"\n",
    }
    line = stdout_lines.get(call["params"]["arguments"]["output"])
    while True:
        if line:
            write_raw(line * 100)
        else:
            sys.stderr.buffer.write(b"x" * 10_000)
            sys.stderr.buffer.flush()


@tool()
def garbage(call):
    write_raw(b"Hello!\n{\n[]\n\n\xff\xfe\x00\n{\"jsonrpc\":\"2.0\"}\n5\nnull\n")
    send_text_result(call["id"], "after the garbage")


@tool()
def endless_line(call):
    while True:
        write_raw(b"x" * 1_000_000)


@tool(READ_ONLY)
def result_100_mb(call):
    increment("result_100_mb_calls")
    send_text_result(call["id"], "x" * 100_000_000)


@tool()
def result_12_mb(call):
    send_text_result(call["id"], "x" * 12_000_000)


@tool()
def invalid_utf8(call):
    line = b'{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"a\xffb"}]}}\n'
    write_raw(line % call["id"])


@tool()
def unknown_content_type(call):
    send({"id": call["id"], "result": {"content": [{"type": "unknown", "body": "rain"}]}})


@tool()
def invalid_content(call):
    send({"id": call["id"], "result": {"content": "not a list"}})


@tool()
def violates_output_schema(call):
    send_text_result(call["id"], "five", structuredContent={"a": 5})


TOOLS[-1]["outputSchema"] = {"type": "object", "properties": {"a": {"type": "string"}}}


@tool()
def error_response(call):
    send({"id": call["id"], "error": {"code": -32000, "message": "not\ntoday " + "x" * 5000}})


@tool()
def error_result(call):
    send_text_result(call["id"], "it did not work", isError=True)


@tool()
def environment(call):
    send_text_result(call["id"], json.dumps(dict(os.environ)))


def begin_server_requests(call, **state):
    """Stores the call that is answered after the client has answered the requests of this server:
    its id and the responses so far. Calls with `single_request` are answered after one response."""
    CALL_STATE.update(requesting_call_id=call["id"], responses={}, **state)


def elicitation(form):
    return {"method": "elicitation/create", "params": {"message": "who?", "requestedSchema": form}}


@tool()
def elicit_with_defaults(call):
    """Asks for a form with a default value and answers with the response."""
    begin_server_requests(call, single_request=True)
    fields = {"name": {"type": "string", "default": "Ada"}, "age": {"type": "integer"}}
    request = elicitation({"type": "object", "properties": fields, "required": ["name"]})
    responses = call["params"].get("inputResponses")
    if not USES_NEWER_PROTOCOL:
        send({"id": "elicitation", **request})
    elif responses:
        send_text_result(call["id"], json.dumps(responses))
    else:
        request["params"]["mode"] = "form"
        requests = {"elicitation": request}
        result = {"resultType": "input_required", "inputRequests": requests}
        send({"id": call["id"], "result": result})


@tool()
def elicit_with_field_schema(call):
    """Asks for a form with one field, whose schema is the argument `field_schema`."""
    begin_server_requests(call, single_request=True)
    field_schema = call["params"]["arguments"]["field_schema"]
    form = {"type": "object", "properties": {"a": field_schema}}
    send({"id": "elicitation", **elicitation(form)})


@tool()
def send_four_requests(call):
    """Sends four requests to the client and answers with the four responses."""
    begin_server_requests(call)
    send({"id": "elicitation", **elicitation({"type": "object", "properties": {}})})
    sampling_params = {"messages": [], "maxTokens": 5}
    send({"id": "sampling", "method": "sampling/createMessage", "params": sampling_params})
    send({"id": "roots", "method": "roots/list"})
    send({"id": "unknown", "method": "secrets/list"})


def handle_response(message):
    responses = CALL_STATE["responses"]
    error_code = message.get("error", {}).get("code")
    responses[message["id"]] = message.get("result", error_code)
    if len(responses) == 4 or CALL_STATE.get("single_request"):
        send_text_result(CALL_STATE["requesting_call_id"], json.dumps(responses, sort_keys=True))


@tool()
def require_input(call):
    """Requires input for the first `times` calls: the requests in `requests`, with the request
    state in `state`. Later calls are answered with the input of all calls."""
    arguments = call["params"]["arguments"]
    received = {key: call["params"].get(key) for key in ("requestState", "inputResponses")}
    append_line("require_input_calls", json.dumps(received))
    calls = line_count("require_input_calls")
    if calls > arguments.get("times", 1):
        with open(path_of("require_input_calls"), encoding="utf-8") as file:
            send_text_result(call["id"], file.read())
        return
    result = {"resultType": "input_required", "inputRequests": arguments.get("requests", {})}
    result["requestState"] = arguments.get("state", "s%d" % calls)
    send({"id": call["id"], "result": result})


TASK = {
    "taskId": "task-7",
    "createdAt": "2026-07-28T00:00:00Z",
    "lastUpdatedAt": "2026-07-28T00:00:00Z",
    "ttlMs": None,
}


@tool()
def task(call):
    """Answers with a task. `script` has the responses to later `tasks/get` requests, one for each;
    the last one is repeated. If the response is "die", the server exits."""
    arguments = call["params"]["arguments"]
    client_capabilities = call["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"]
    append_line("task_call_capabilities", json.dumps(client_capabilities))
    with open(path_of("task_script"), "w", encoding="utf-8") as file:
        json.dump(arguments["script"], file)
    fields = {**TASK, "status": "working", **arguments.get("task", {})}
    send({"id": call["id"], "result": {"resultType": "task", **fields}})


def handle_task_request(message):
    request_id, params = message["id"], message["params"]
    if message["method"] == "tasks/get":
        append_line("task_polls", params["taskId"])
        with open(path_of("task_script"), encoding="utf-8") as file:
            script = json.load(file)
        response = script[min(line_count("task_polls"), len(script)) - 1]
        if response == "die":
            os._exit(6)
        if "code" in response:
            send({"id": request_id, "error": response})
        else:
            send({"id": request_id, "result": {"resultType": "complete", **TASK, **response}})
    elif message["method"] == "tasks/update":
        append_line("task_updates", json.dumps(params["inputResponses"]))
        send({"id": request_id, "result": {"resultType": "complete"}})
    else:
        append_line("task_cancellations", params["taskId"])
        send({"id": request_id, "result": {"resultType": "complete"}})


@tool()
def endless_requests(call):
    for request_id in range(10_000_000):
        send({"id": request_id, "method": "ping"})


@tool()
def add_tool(call):
    TOOLS.append({"name": "added_tool", "inputSchema": OBJECT_SCHEMA})
    send({"method": "notifications/tools/list_changed"})
    send_text_result(call["id"], "added")


@tool()
def start_child(call):
    """Connects to a port and starts a child process that inherits the connection: the connection
    is closed once both processes are gone."""
    port = int(call["params"]["arguments"]["port"])
    connection = socket.create_connection(("127.0.0.1", port))
    connection.set_inheritable(True)
    subprocess.Popen(["sleep", "1000"], close_fds=False, stdin=subprocess.DEVNULL)
    connection.sendall(b"connected\n")
    # Keeps the connection open.
    CALL_STATE["connection"] = connection
    send_text_result(call["id"], "started")


RECURSIVE_SCHEMA = {"type": "object", "properties": {"a": {"$ref": "#"}}}
INVALID_TYPE_SCHEMA = {"type": "object", "properties": {"a": {"type": 5}}}

# The tools of mode `invalid_tools`: two are valid, one of them twice.
INVALID_TOOLS = [
    {"name": "good", "inputSchema": OBJECT_SCHEMA},
    {"name": "text_schema", "inputSchema": "none"},
    {"name": "invalid_type_schema", "inputSchema": INVALID_TYPE_SCHEMA},
    {"name": "new\nline", "inputSchema": OBJECT_SCHEMA},
    {"name": "good", "inputSchema": OBJECT_SCHEMA},
    {"name": "n" * 10_000, "inputSchema": OBJECT_SCHEMA},
    {"name": 5, "inputSchema": OBJECT_SCHEMA},
    {"name": "recursive_schema", "inputSchema": RECURSIVE_SCHEMA},
    {"name": "long_description", "description": "w" * 100_000, "inputSchema": OBJECT_SCHEMA},
    "not an object",
]


def numbered_tool(number):
    return {"name": "t%d" % number, "inputSchema": OBJECT_SCHEMA}


def tool_page(params):
    """Returns one page of the list of tools."""
    if MODE == "invalid_tools":
        return {"tools": INVALID_TOOLS}
    if MODE == "endless_tool_pages":
        page = int(params.get("cursor", "0"))
        return {"tools": [numbered_tool(page)], "nextCursor": str(page + 1)}
    if MODE == "many_tools":
        return {"tools": [numbered_tool(number) for number in range(1000)]}
    return {"tools": TOOLS}


def handle(message):
    method = message.get("method")
    uncached = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
    if method is None:
        handle_response(message)
    elif method == "server/discover" and USES_NEWER_PROTOCOL:
        capabilities = {"tools": {}, "extensions": {"io.modelcontextprotocol/tasks": {}}}
        discovery = {"supportedVersions": ["2026-07-28"], "capabilities": capabilities}
        send({"id": message["id"], "result": {**uncached, **discovery}})
    elif method == "initialize" and USES_NEWER_PROTOCOL:
        error = {"code": -32601, "message": "initialize is not supported any more"}
        send({"id": message["id"], "error": error})
    elif method == "initialize":
        append_line("initialize_capabilities", json.dumps(message["params"]["capabilities"]))
        result = {
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {"listChanged": True}},
            "serverInfo": {"name": "hostile\x07", "title": "Hostile server", "version": "0"},
        }
        send({"id": message["id"], "result": result})
    elif method == "tools/list":
        increment("list_requests")
        if MODE == "dies_while_listing":
            os._exit(5)
        if MODE == "ignores_first_list" and line_count("list_requests") == 1:
            return
        page = tool_page(message.get("params") or {})
        if USES_NEWER_PROTOCOL:
            page = {**uncached, **page}
        send({"id": message["id"], "result": page})
    elif method == "tools/call":
        HANDLERS[message["params"]["name"]](message)
    elif method in ("tasks/get", "tasks/update", "tasks/cancel"):
        handle_task_request(message)
    elif method == "notifications/cancelled":
        CALL_STATE["cancelled_call_id"] = message["params"]["requestId"]
        respond_after_cancellation()
    elif "id" in message:
        send({"id": message["id"], "error": {"code": -32601, "message": "unknown method"}})


def main():
    increment("starts")
    if MODE == "dies_at_start":
        sys.stderr.write("the key %s is not valid\n" % os.environ.get("API_KEY", "?"))
        sys.exit(3)
    if MODE == "slow_restart" and line_count("starts") > 1:
        while not os.path.exists(path_of("allow_restart")):
            time.sleep(0.02)
    if MODE == "slow_start" and not os.path.exists(path_of("first_requests")):
        messages = [json.loads(sys.stdin.buffer.readline()) for _ in range(2)]
        append_line("first_requests", ", ".join(message["method"] for message in messages))
        for message in messages:
            handle(message)
    for line in sys.stdin.buffer:
        message = json.loads(line)
        is_discover = message.get("method") == "server/discover"
        if MODE == "exits_on_discover" and is_discover:
            sys.exit(4)
        if MODE == "ignores_discover" and is_discover:
            increment("ignored_discovers")
            continue
        if MODE != "silent":
            handle(message)
    if MODE == "ignores_sigterm":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True:
            sys.stdin.read()
            subprocess.run(["sleep", "1000"], check=False)


main()
