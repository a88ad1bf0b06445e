//! `longhaul mock-model` over real sockets: faults, signals and malformed requests.

mod apis;
mod faults;
mod guide;
mod lifecycle;
mod malformed_requests;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::{Value, json};

use super::project::Project;
use super::server_harness::TestServer;

/// Timeout for a response.
const READ_TIMEOUT: Duration = Duration::from_secs(30);

/// Paths of the three APIs.
const API_PATHS: [&str; 3] = ["/v1/messages", "/v1/responses", "/v1/chat/completions"];

const SCRIPT: &str = "replies:
- text: 'Looking for {{ input }}.'
  tools: [{ name: look, input: { where: '{{ input }}' } }]
- text: 'Found: {{ last_result }}'
";

/// A project with a script for these tests.
fn project() -> Project {
    let project = Project::new();
    project.write("scripts/look.yaml", SCRIPT);
    project
}

/// Starts a mock with these flags on a free port.
fn start(project: &Project, flags: &[&str]) -> TestServer {
    let listen = ["mock-model", "--listen", "127.0.0.1:0", "--until-eof"];
    TestServer::from_command(project.command(&[&listen[..], flags].concat()))
}

/// A request body that every API accepts, because unknown fields are ignored.
fn chat_request(model: &str, stream: bool) -> Value {
    let messages = json!([{ "role": "user", "content": "the key" }]);
    json!({ "model": model, "max_tokens": 100, "messages": messages, "input": messages, "stream": stream })
}

fn connect(server: &TestServer) -> TcpStream {
    let stream = TcpStream::connect(server.address()).unwrap();
    stream.set_read_timeout(Some(READ_TIMEOUT)).unwrap();
    stream
}

fn request(path: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head =
        format!("POST {path} HTTP/1.1\r\nhost: mock\r\ncontent-length: {length}\r\n{headers}\r\n");
    [head.as_bytes(), body].concat()
}

/// Sends these bytes and reads until the connection is closed.
fn send_raw(server: &TestServer, bytes: &[u8]) -> String {
    let mut stream = connect(server);
    stream.write_all(bytes).unwrap();
    let mut received = Vec::new();
    stream.read_to_end(&mut received).unwrap();
    String::from_utf8(received).unwrap()
}

/// Sends a request with this body on a connection that is closed afterwards.
fn send_body(server: &TestServer, path: &str, body: &[u8]) -> String {
    send_raw(server, &request(path, "connection: close\r\n", body))
}

/// Returns whether a response has this status.
fn has_status(answer: &str, status: u16) -> bool {
    answer.starts_with(&format!("HTTP/1.1 {status} "))
}
