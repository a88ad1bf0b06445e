//! `longhaul mock-model` as its surroundings see it: real sockets, faults,
//! signals, and everything that a stranger may send.

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

/// So long it is waited for an answer before a test gives up.
const READ_TIMEOUT: Duration = Duration::from_secs(30);

/// Where each wire is.
const API_PATHS: [&str; 3] = ["/v1/messages", "/v1/responses", "/v1/chat/completions"];

const SCRIPT: &str = "replies:
- text: 'Looking for {{ input }}.'
  tools: [{ name: look, input: { where: '{{ input }}' } }]
- text: 'Found: {{ last_result }}'
";

/// A project with a script for this.
fn project() -> Project {
    let project = Project::new();
    project.write("scripts/look.yaml", SCRIPT);
    project
}

/// A mock with these flags, at any free port.
fn start(project: &Project, flags: &[&str]) -> TestServer {
    let listen = ["mock-model", "--listen", "127.0.0.1:0", "--until-eof"];
    TestServer::from_command(project.command(&[&listen[..], flags].concat()))
}

/// A question that every wire understands, because what it does not know it ignores.
fn chat_request(model: &str, stream: bool) -> Value {
    let talk = json!([{ "role": "user", "content": "the key" }]);
    json!({ "model": model, "max_tokens": 100, "messages": talk, "input": talk, "stream": stream })
}

/// A connection to a mock.
fn connect(served: &TestServer) -> TcpStream {
    let stream = TcpStream::connect(served.address()).unwrap();
    stream.set_read_timeout(Some(READ_TIMEOUT)).unwrap();
    stream
}

/// A request with this body as bytes.
fn request(path: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head =
        format!("POST {path} HTTP/1.1\r\nhost: mock\r\ncontent-length: {length}\r\n{headers}\r\n");
    [head.as_bytes(), body].concat()
}

/// Sends these bytes and reads to the end of the connection.
fn send_raw(served: &TestServer, bytes: &[u8]) -> String {
    let mut stream = connect(served);
    stream.write_all(bytes).unwrap();
    let mut came = Vec::new();
    stream.read_to_end(&mut came).unwrap();
    String::from_utf8(came).unwrap()
}

/// The same for a body; the connection is closed after it.
fn send_body(served: &TestServer, path: &str, body: &[u8]) -> String {
    send_raw(served, &request(path, "connection: close\r\n", body))
}

/// Whether an answer has this status.
fn has_status(answer: &str, status: u16) -> bool {
    answer.starts_with(&format!("HTTP/1.1 {status} "))
}
