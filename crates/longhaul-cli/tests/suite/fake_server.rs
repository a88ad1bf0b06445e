//! A fake HTTP server: sends the responses that a test chooses, and records the requests.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

#[derive(Debug, Clone)]
pub(crate) struct RecordedRequest {
    /// Method and path, such as `GET /v1/runs?limit=1`.
    pub(crate) request_line: String,
    headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl RecordedRequest {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str())
    }

    fn read_from(stream: &TcpStream) -> Option<Self> {
        let mut lines = BufReader::new(stream);
        let mut head = Vec::new();
        loop {
            let mut line = String::new();
            if lines.read_line(&mut line).ok()? == 0 {
                return None;
            }
            let line = line.trim_end().to_owned();
            if line.is_empty() {
                break;
            }
            head.push(line);
        }
        let first = head.remove(0);
        let line = first.trim_end_matches(" HTTP/1.1").to_owned();
        let pair = |line: &String| {
            let (name, value) = line.split_once(':')?;
            Some((name.to_ascii_lowercase(), value.trim().to_owned()))
        };
        let headers = head.iter().filter_map(pair).collect();
        let mut request = Self { request_line: line, headers, body: String::new() };
        let length = request.header("content-length").unwrap_or("0");
        let mut body = vec![0; length.parse().ok()?];
        lines.read_exact(&mut body).ok()?;
        request.body = String::from_utf8(body).ok()?;
        Some(request)
    }
}

pub(crate) fn json_response(status: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
    )
}

/// Builds the start of an event stream, which is closed after these events.
pub(crate) fn event_stream(events: &str) -> String {
    format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n{events}"
    )
}

pub(crate) struct FakeServer {
    pub(crate) url: String,
    requests: Arc<Mutex<Vec<RecordedRequest>>>,
}

impl FakeServer {
    /// Responds to every request with this function; an empty response closes the connection.
    pub(crate) fn new(answer: impl Fn(&RecordedRequest) -> String + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let recorded = Arc::clone(&requests);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let Some(requests) = RecordedRequest::read_from(&stream) else {
                    continue;
                };
                recorded.lock().unwrap().push(requests.clone());
                _ = stream.write_all(answer(&requests).as_bytes());
            }
        });
        Self { url, requests }
    }

    /// Returns all requests so far.
    pub(crate) fn requests(&self) -> Vec<RecordedRequest> {
        self.requests.lock().unwrap().clone()
    }
}

/// Returns a URL where nothing listens.
pub(crate) fn unused_url() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    format!("http://{}", listener.local_addr().unwrap())
}
