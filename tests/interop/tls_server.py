"""An HTTPS server that lists one model.

Usage: tls_server.py CERT KEY
The program prints its port and ends when its standard input is closed.
"""

import http.server
import json
import ssl
import sys
import threading


class ModelListHandler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        body = json.dumps({"data": [{"id": "test-model"}]}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        """Suppresses the request log."""


class Server(http.server.ThreadingHTTPServer):
    def handle_error(self, *_):
        """Ignores errors: a client that rejects the certificate closes the connection."""


context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[1], sys.argv[2])
server = Server(("127.0.0.1", 0), ModelListHandler)
server.socket = context.wrap_socket(server.socket, server_side=True)
threading.Thread(target=server.serve_forever, daemon=True).start()
print(server.server_address[1], flush=True)
sys.stdin.read()
