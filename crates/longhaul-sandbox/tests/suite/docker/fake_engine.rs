//! An engine that records requests and gives scripted answers, over a real Unix socket.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Mutex};

use longhaul_sandbox::docker::DockerSandboxes;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::real_engine::options;

/// A request as it arrived.
#[derive(Debug, Clone)]
pub(super) struct Request {
    pub(super) method: String,
    /// Path without the version.
    pub(super) path: String,
    pub(super) query: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
}

impl Request {
    /// Returns the body. `None` means that it is no JSON.
    pub(super) fn json(&self) -> Option<Value> {
        serde_json::from_slice(&self.body).ok()
    }

    pub(super) fn query(&self, name: &str) -> Option<&str> {
        let mut query = self.query.iter();
        query.find_map(|(found, value)| (found == name).then_some(value.as_str()))
    }

    /// Returns whether this is the request with this method and a path that ends like this.
    pub(super) fn is(&self, method: &str, path_end: &str) -> bool {
        self.method == method && self.path.ends_with(path_end)
    }
}

/// Status and body of an answer.
pub(super) type Answer = (u16, Value);

/// The scripted engine, until it is dropped.
#[derive(Debug)]
pub(super) struct FakeEngine {
    pub(super) dir: TempDir,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl FakeEngine {
    /// Starts an engine. `script` gives its answers; where it has none, the engine answers as if
    /// everything succeeded.
    pub(super) fn start(script: impl Fn(&Request) -> Option<Answer> + Send + 'static) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(dir.path().join("engine.sock")).unwrap();
        let requests = Arc::<Mutex<Vec<Request>>>::default();
        let recorded = Arc::clone(&requests);
        // Each request has a connection of its own. The thread ends with the test process.
        std::thread::spawn(move || {
            for connection in listener.incoming() {
                let mut connection = connection.unwrap();
                let Some(request) = read_request(&connection) else { continue };
                recorded.lock().unwrap().push(request.clone());
                let answer = script(&request).unwrap_or_else(|| success(&request));
                // The client may have gone away.
                _ = write_answer(&mut connection, &request, answer);
            }
        });
        Self { dir, requests }
    }

    pub(super) fn provider(&self) -> DockerSandboxes {
        let socket = self.dir.path().join("engine.sock");
        DockerSandboxes::new(options(&socket, &self.dir.path().join("sandboxes")))
    }

    pub(super) fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }
}

/// Answer of an engine in which everything succeeds.
fn success(request: &Request) -> Answer {
    let parts: Vec<&str> = request.path.trim_start_matches('/').split('/').collect();
    match (request.method.as_str(), parts.as_slice()) {
        ("GET", ["version"]) => (200, json!({ "ApiVersion": "1.41" })),
        ("GET", ["info"]) => (200, json!({ "ServerVersion": "1.2.3" })),
        ("GET", ["containers", "json"]) => (200, json!([])),
        ("POST", ["containers", "create"]) => (201, json!({ "Id": "c1", "Warnings": [] })),
        ("GET", ["containers", name, "json"]) => (200, container(name)),
        ("POST", ["containers", _, "exec"]) => (201, json!({ "Id": "e1" })),
        ("POST", ["exec", _, "start"]) => (101, Value::Null),
        ("GET", ["exec", _, "json"]) => (200, json!({ "Running": false, "ExitCode": 0 })),
        ("PUT", ["containers", _, "archive"]) => (200, Value::Null),
        ("DELETE", _) => (404, json!({ "message": "No such container" })),
        _ => (204, Value::Null),
    }
}

/// Description of a running sandbox.
pub(super) fn container(name: &str) -> Value {
    json!({
        "Id": "c1",
        "Created": "2026-01-02T03:04:05.678901234Z",
        "State": { "Status": "running", "Running": true },
        "Config": { "Labels": { "longhaul.sandbox": name, "run": "r1" } },
    })
}

fn read_request(connection: &UnixStream) -> Option<Request> {
    let mut reader = BufReader::new(connection);
    let mut head = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        match line.trim_end() {
            "" => break,
            line => head.push(line.to_ascii_lowercase()),
        }
        // Paths and queries keep their case.
        if let [_] = head.as_slice() {
            head[0] = line.trim_end().to_owned();
        }
    }
    let mut fields = head.first()?.split(' ');
    let (method, target) = (fields.next()?.to_owned(), fields.next()?);
    let url = url::Url::parse("http://engine").unwrap().join(target).unwrap();
    let path = url.path();
    let version = path.split('/').nth(1).filter(|part| part.starts_with("v1."));
    let path = version.map_or(path, |version| &path[version.len() + 1..]).to_owned();
    let length = head.iter().find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.and_then(|length| length.parse().ok()).unwrap_or(0)];
    reader.read_exact(&mut body).ok()?;
    if head.iter().any(|line| line == "transfer-encoding: chunked") {
        body = read_chunks(&mut reader)?;
    }
    Some(Request { method, path, query: url.query_pairs().into_owned().collect(), body })
}

fn read_chunks(reader: &mut BufReader<&UnixStream>) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let mut chunk = vec![0; usize::from_str_radix(line.trim_end(), 16).ok()?];
        reader.read_exact(&mut chunk).ok()?;
        reader.read_line(&mut line).ok()?;
        if chunk.is_empty() {
            return Some(body);
        }
        body.extend(chunk);
    }
}

fn write_answer(
    connection: &mut UnixStream,
    request: &Request,
    (status, body): Answer,
) -> std::io::Result<()> {
    if status == 101 {
        connection.write_all(
            b"HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n\
              \x01\0\0\0\0\0\0\x03out\x02\0\0\0\0\0\0\x03err",
        )?;
        let is_fed = request.json().is_some() && connection.set_read_timeout(None).is_ok();
        assert!(is_fed, "a command starts with a JSON body");
        connection.shutdown(std::net::Shutdown::Write)?;
        // A connection that is closed before its input is read resets the output, too.
        return std::io::copy(connection, &mut std::io::sink()).map(drop);
    }
    let body = if body.is_null() { String::new() } else { body.to_string() };
    write!(
        connection,
        "HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nConnection: close\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len(),
    )
}
