"""A small MCP server that requires a login, and its authorization server, on one
port of this machine. It prints its port. /seen returns what it has received; a test
changes its behaviour with /do."""

import base64
import hashlib
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlencode, urlsplit

LOCK = threading.Lock()
# While GATE is clear, token requests wait; ARRIVED is set when one does.
GATE, ARRIVED = threading.Event(), threading.Event()
GATE.set()
STATE = {
    "lasts": 3600,  # seconds that the next token lasts
    "made": 0,
    "tokens": {},  # access token -> its scopes
    "refresh": None,
    "codes": {},
    "seen": {"refreshes": 0, "logins": 0, "scopes": [], "calls": 0, "handshakes": 0, "revoked": []},
    "token_endpoint": None,
    "revokes": True,  # whether tokens can be taken back
    "revocation_endpoint": None,
    "revoke_status": 200,
    "known_waits": False,  # whether the gate is before its metadata as well
    "authorization_server": None,  # another than this one
    "access": None,  # the next access token, whatever that is
    "registers": True,
    "denies": False,
    "well_known": 0,  # the status with which nothing is told of logins
    "refresh_error": None,  # what is wrong with every renewal
    "open": False,  # only calls want a login
    "forbids": False,  # calls are for others
    "streams": False,  # a GET of /mcp gets an endless event stream
}
TOOLS = [
    {"name": "greet", "inputSchema": {"type": "object"}},
    {"name": "admin", "inputSchema": {"type": "object"}},
    {"name": "leak", "inputSchema": {"type": "object"}},
]


class Server(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    @property
    def base(self):
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
        at = urlsplit(self.path)
        asked = {key: values[0] for key, values in parse_qs(at.query).items()}
        if at.path == "/arrived":
            ARRIVED.wait()
        if at.path == "/mcp" and STATE["streams"]:
            self.stream()
        if STATE["known_waits"] and at.path.startswith("/.well-known/") and not GATE.is_set():
            ARRIVED.set()
            GATE.wait()
        with LOCK:
            if STATE["well_known"] and at.path.startswith("/.well-known/"):
                self.respond(STATE["well_known"])
            elif at.path == "/.well-known/oauth-protected-resource/mcp":
                who = STATE["authorization_server"] or self.base
                self.respond(200, {"resource": f"{self.base}/mcp", "authorization_servers": [who]})
            elif at.path == "/.well-known/oauth-authorization-server":
                self.respond(200, self.metadata())
            elif at.path == "/authorize":
                self.authorize(asked)
            elif at.path in ("/seen", "/arrived"):
                self.respond(200, STATE["seen"])
            elif at.path == "/do":
                self.do(asked)
            else:
                self.respond(404)

    def stream(self):
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        self.wfile.flush()
        threading.Event().wait()

    def do(self, asked):
        for key, value in asked.items():
            if key == "revoke":
                STATE["tokens"].clear()
            elif key == "revoke_refresh":
                STATE["refresh"] = None
            elif key == "gate":
                GATE.set() if json.loads(value) else GATE.clear()
            else:
                STATE[key] = json.loads(value)
        self.respond(200, {})

    def metadata(self):
        found = {
            "issuer": self.base,
            "authorization_endpoint": f"{self.base}/authorize",
            "token_endpoint": STATE["token_endpoint"] or f"{self.base}/token",
            "response_types_supported": ["code"],
            "code_challenge_methods_supported": ["S256"],
            "authorization_response_iss_parameter_supported": True,
        }
        if STATE["registers"]:
            found["registration_endpoint"] = f"{self.base}/register"
        if STATE["revokes"]:
            found["revocation_endpoint"] = STATE["revocation_endpoint"] or f"{self.base}/revoke"
        return found

    def authorize(self, asked):
        STATE["seen"]["scopes"].append(asked.get("scope", ""))
        back = {"state": asked["state"], "iss": self.base}
        if STATE["denies"]:
            back["error"] = "access_denied"
        else:
            back["code"] = f"c0de-{len(STATE['codes'])}"
            STATE["codes"][back["code"]] = asked
        self.respond(302, None, [("location", f"{asked['redirect_uri']}?{urlencode(back)}")])

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        if self.path in ("/token", "/revoke") and not GATE.is_set():
            ARRIVED.set()
            GATE.wait()
        with LOCK:
            if self.path == "/register":
                asked = json.loads(body)
                self.respond(201, {
                    "client_id": "registered",
                    "client_secret": "registered-s3cret",
                    "redirect_uris": asked["redirect_uris"],
                })
            elif self.path == "/token":
                form = {key: values[0] for key, values in parse_qs(body.decode()).items()}
                self.token(form)
            elif self.path == "/revoke":
                self.revoke({key: values[0] for key, values in parse_qs(body.decode()).items()})
            elif self.path == "/mcp":
                self.mcp(json.loads(body))
            else:
                self.respond(404)

    def revoke(self, form):
        who = self.headers.get("authorization", "").removeprefix("Basic ")
        who = base64.b64decode(who).decode() or form.get("client_id")
        STATE["seen"]["revoked"].append([form["token_type_hint"], form["token"], who])
        if STATE["revoke_status"] == 200:
            STATE["tokens"].pop(form["token"], None)
            if form["token"] == STATE["refresh"]:
                STATE["refresh"] = None
        self.respond(STATE["revoke_status"], {"error": f"not {form['token']}"})

    def token(self, form):
        if form["grant_type"] == "refresh_token":
            STATE["seen"]["refreshes"] += 1
            if STATE["refresh_error"]:
                self.respond(400, {"error": STATE["refresh_error"]})
                return
            if form["refresh_token"] != STATE["refresh"]:
                self.respond(400, {"error": "invalid_grant"})
                return
            scope = form.get("scope", "")
        else:
            asked = STATE["codes"].pop(form["code"], None)
            proof = hashlib.sha256(form["code_verifier"].encode()).digest()
            proof = base64.urlsafe_b64encode(proof).decode().rstrip("=")
            if asked is None or proof != asked["code_challenge"]:
                self.respond(400, {"error": "invalid_grant"})
                return
            STATE["seen"]["logins"] += 1
            scope = asked.get("scope", "")
        STATE["made"] += 1
        access, refresh = (f"{kind}-s3cret-{STATE['made']}" for kind in ("access", "refresh"))
        access, STATE["access"] = STATE["access"] or access, None
        STATE["tokens"][access] = scope.split()
        STATE["refresh"] = refresh
        self.respond(200, {
            "access_token": access,
            "refresh_token": refresh,
            "token_type": "Bearer",
            "expires_in": STATE["lasts"],
            "scope": scope,
        })
        STATE["lasts"] = 3600

    def mcp(self, asked):
        token = self.headers.get("authorization", "").removeprefix("Bearer ")
        where = f'resource_metadata="{self.base}/.well-known/oauth-protected-resource/mcp"'
        is_open = STATE["open"] and asked["method"] != "tools/call"
        if token not in STATE["tokens"] and not is_open:
            self.respond(401, None, [("www-authenticate", f'Bearer scope="use", {where}')])
            return
        if "id" not in asked:
            self.respond(202)
            return
        method, params = asked["method"], asked.get("params") or {}
        if method == "initialize":
            STATE["seen"]["handshakes"] += 1
            result = {
                "protocolVersion": params["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "guarded", "version": "1"},
            }
        elif method == "tools/list":
            result = {"tools": TOOLS}
        elif method == "tools/call":
            if STATE["forbids"]:
                self.respond(403)
                return
            if params["name"] == "admin" and "admin" not in STATE["tokens"][token]:
                why = f'Bearer error="insufficient_scope", scope="admin", {where}'
                self.respond(403, None, [("www-authenticate", why)])
                return
            STATE["seen"]["calls"] += 1
            text = f"You said {token}." if params["name"] == "leak" else "Hello."
            result = {"content": [{"type": "text", "text": text}]}
        else:
            refused = {"code": -32601, "message": "Method not found"}
            self.respond(200, {"jsonrpc": "2.0", "id": asked["id"], "error": refused})
            return
        self.respond(200, {"jsonrpc": "2.0", "id": asked["id"], "result": result})


with ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
    server.daemon_threads = True
    print(server.server_address[1], flush=True)
    # It stops when its standard input is closed.
    threading.Thread(target=lambda: (sys.stdin.read(), server.shutdown()), daemon=True).start()
    server.serve_forever()
