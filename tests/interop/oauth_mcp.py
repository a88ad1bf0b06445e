"""A small MCP server that requires a login, and its authorization server, on one local port.

The program prints its port. Tests use three more paths: `/stats` returns counters of the received
requests, `/wait_until_held` waits until a request is held, and `/control` changes the settings
below and holds or releases requests."""

import base64
import hashlib
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlencode, urlsplit

DEFAULT_TOKEN_LIFETIME_SECONDS = 3600
LOCK = threading.Lock()
# While RELEASED is clear, requests to /token are held: they wait until it is set.
RELEASED = threading.Event()
RELEASED.set()
# Set once a request is held.
REQUEST_HELD = threading.Event()
# Set by the server.
STATE = {
    "issued_tokens": 0,
    "access_tokens": {},  # valid access tokens -> their scopes
    "refresh_token": None,  # the only valid refresh token
    "authorization_codes": {},  # unused code -> parameters of its authorization request
}
STATS = {
    "refreshes": 0,
    "logins": 0,
    "requested_scopes": [],
    "calls": 0,
    "handshakes": 0,
}
# Set by tests through /control.
SETTINGS = {
    "token_lifetime_seconds": DEFAULT_TOKEN_LIFETIME_SECONDS,  # of the next token only
    "next_access_token": None,  # used instead of a generated token, once
    "authorization_server": None,  # the advertised URL if it is not this server
    "token_endpoint": None,  # the advertised URL if it is not this server
    "supports_registration": True,
    "metadata_error_status": 0,  # if not 0, the status of every request for OAuth metadata
    "hold_metadata": False,  # whether requests for OAuth metadata can be held too
    "deny_authorization": False,
    "refresh_error": None,  # the OAuth error code of every token refresh
    "login_for_calls_only": False,  # whether all methods but tools/call need no token
    "forbid_calls": False,
    "stream_on_get": False,  # whether a GET of /mcp gets an endless event stream
}
TOOLS = [
    {"name": "greet", "inputSchema": {"type": "object"}},
    {"name": "admin", "inputSchema": {"type": "object"}},
    {"name": "echo_token", "inputSchema": {"type": "object"}},
]


def first_values(query):
    return {key: values[0] for key, values in parse_qs(query).items()}


def hold_until_released():
    if not RELEASED.is_set():
        REQUEST_HELD.set()
        RELEASED.wait()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        """Suppresses the request log."""

    @property
    def base_url(self):
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def respond(self, status, body=None, headers=()):
        text = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def do_GET(self):
        url = urlsplit(self.path)
        parameters = first_values(url.query)
        is_metadata = url.path.startswith("/.well-known/")
        if url.path == "/wait_until_held":
            REQUEST_HELD.wait()
        if url.path == "/mcp" and SETTINGS["stream_on_get"]:
            self.send_endless_stream()
        if SETTINGS["hold_metadata"] and is_metadata:
            hold_until_released()
        with LOCK:
            if SETTINGS["metadata_error_status"] and is_metadata:
                self.respond(SETTINGS["metadata_error_status"])
            elif url.path == "/.well-known/oauth-protected-resource/mcp":
                self.respond(200, self.resource_metadata())
            elif url.path == "/.well-known/oauth-authorization-server":
                self.respond(200, self.authorization_server_metadata())
            elif url.path == "/authorize":
                self.authorize(parameters)
            elif url.path in ("/stats", "/wait_until_held"):
                self.respond(200, STATS)
            elif url.path == "/control":
                self.control(parameters)
            else:
                self.respond(404)

    def send_endless_stream(self):
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        self.wfile.flush()
        threading.Event().wait()

    def control(self, parameters):
        for key, value in parameters.items():
            if key == "revoke_access_tokens":
                STATE["access_tokens"].clear()
            elif key == "revoke_refresh_token":
                STATE["refresh_token"] = None
            elif key == "hold_requests":
                RELEASED.clear() if json.loads(value) else RELEASED.set()
            else:
                assert key in SETTINGS, key
                SETTINGS[key] = json.loads(value)
        self.respond(200, {})

    def resource_metadata(self):
        authorization_server = SETTINGS["authorization_server"] or self.base_url
        return {
            "resource": f"{self.base_url}/mcp",
            "authorization_servers": [authorization_server],
        }

    def authorization_server_metadata(self):
        metadata = {
            "issuer": self.base_url,
            "authorization_endpoint": f"{self.base_url}/authorize",
            "token_endpoint": SETTINGS["token_endpoint"] or f"{self.base_url}/token",
            "response_types_supported": ["code"],
            "code_challenge_methods_supported": ["S256"],
            "authorization_response_iss_parameter_supported": True,
        }
        if SETTINGS["supports_registration"]:
            metadata["registration_endpoint"] = f"{self.base_url}/register"
        return metadata

    def authorize(self, parameters):
        STATS["requested_scopes"].append(parameters.get("scope", ""))
        callback = {"state": parameters["state"], "iss": self.base_url}
        if SETTINGS["deny_authorization"]:
            callback["error"] = "access_denied"
        else:
            callback["code"] = f"c0de-{len(STATE['authorization_codes'])}"
            STATE["authorization_codes"][callback["code"]] = parameters
        callback_url = f"{parameters['redirect_uri']}?{urlencode(callback)}"
        self.respond(302, None, [("location", callback_url)])

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        if self.path == "/token":
            hold_until_released()
        with LOCK:
            if self.path == "/register":
                registration = json.loads(body)
                self.respond(201, {
                    "client_id": "registered",
                    "client_secret": "registered-s3cret",
                    "redirect_uris": registration["redirect_uris"],
                })
            elif self.path == "/token":
                self.token(first_values(body.decode()))
            elif self.path == "/mcp":
                self.mcp(json.loads(body))
            else:
                self.respond(404)

    def token(self, form):
        if form["grant_type"] == "refresh_token":
            STATS["refreshes"] += 1
            if SETTINGS["refresh_error"]:
                self.respond(400, {"error": SETTINGS["refresh_error"]})
                return
            if form["refresh_token"] != STATE["refresh_token"]:
                self.respond(400, {"error": "invalid_grant"})
                return
            scope = form.get("scope", "")
        else:
            authorization = STATE["authorization_codes"].pop(form["code"], None)
            digest = hashlib.sha256(form["code_verifier"].encode()).digest()
            challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
            if authorization is None or challenge != authorization["code_challenge"]:
                self.respond(400, {"error": "invalid_grant"})
                return
            STATS["logins"] += 1
            scope = authorization.get("scope", "")
        STATE["issued_tokens"] += 1
        access_token = SETTINGS["next_access_token"] or f"access-s3cret-{STATE['issued_tokens']}"
        SETTINGS["next_access_token"] = None
        STATE["access_tokens"][access_token] = scope.split()
        STATE["refresh_token"] = f"refresh-s3cret-{STATE['issued_tokens']}"
        self.respond(200, {
            "access_token": access_token,
            "refresh_token": STATE["refresh_token"],
            "token_type": "Bearer",
            "expires_in": SETTINGS["token_lifetime_seconds"],
            "scope": scope,
        })
        SETTINGS["token_lifetime_seconds"] = DEFAULT_TOKEN_LIFETIME_SECONDS

    def mcp(self, message):
        token = self.headers.get("authorization", "").removeprefix("Bearer ")
        metadata_url = f"{self.base_url}/.well-known/oauth-protected-resource/mcp"
        metadata_parameter = f'resource_metadata="{metadata_url}"'
        needs_token = not SETTINGS["login_for_calls_only"] or message["method"] == "tools/call"
        if needs_token and token not in STATE["access_tokens"]:
            challenge = f'Bearer scope="use", {metadata_parameter}'
            self.respond(401, None, [("www-authenticate", challenge)])
            return
        if "id" not in message:
            self.respond(202)
            return
        method, params = message["method"], message.get("params") or {}
        if method == "initialize":
            STATS["handshakes"] += 1
            result = {
                "protocolVersion": params["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "guarded", "version": "1"},
            }
        elif method == "tools/list":
            result = {"tools": TOOLS}
        elif method == "tools/call":
            if SETTINGS["forbid_calls"]:
                self.respond(403)
                return
            if params["name"] == "admin" and "admin" not in STATE["access_tokens"][token]:
                error = 'Bearer error="insufficient_scope", scope="admin"'
                challenge = f"{error}, {metadata_parameter}"
                self.respond(403, None, [("www-authenticate", challenge)])
                return
            STATS["calls"] += 1
            text = f"Your token is {token}." if params["name"] == "echo_token" else "Hello."
            result = {"content": [{"type": "text", "text": text}]}
        else:
            error = {"code": -32601, "message": "Method not found"}
            self.respond(200, {"jsonrpc": "2.0", "id": message["id"], "error": error})
            return
        self.respond(200, {"jsonrpc": "2.0", "id": message["id"], "result": result})


with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
    server.daemon_threads = True
    print(server.server_address[1], flush=True)
    # The server stops when its standard input is closed.
    threading.Thread(target=lambda: (sys.stdin.read(), server.shutdown()), daemon=True).start()
    server.serve_forever()
