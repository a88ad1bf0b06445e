//! Harness for tests of `serve` and `dev`: a real server in a separate process, and a simple HTTP
//! client.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use serde_json::Value;

use super::project::Project;

/// Timeout for a log line and for the end of the process.
const LINE_TIMEOUT: Duration = Duration::from_secs(30);

/// A server process. It is killed when dropped, and stops by itself when the test process dies.
pub(crate) struct TestServer {
    child: Child,
    /// Stdin of the server, held open so that it keeps running.
    _stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    /// All log lines so far.
    pub(crate) log: Vec<String>,
    pub(crate) url: String,
}

impl TestServer {
    /// Starts `serve` on a free port and waits until it is ready.
    pub(crate) fn start(project: &Project) -> Self {
        Self::from_command(project.command(&["serve", "--listen", "127.0.0.1:0", "--until-eof"]))
    }

    /// Starts `serve` at this address and waits until it is ready.
    pub(crate) fn start_at(project: &Project, address: &str) -> Self {
        Self::from_command(project.command(&["serve", "--listen", address, "--until-eof"]))
    }

    /// Starts this command and waits until it is ready.
    pub(crate) fn from_command(command: Command) -> Self {
        let mut server = Self::spawn(command);
        let ready_line = server.wait_for_line("ready");
        let at = ready_line.find("http://").unwrap_or_else(|| panic!("{ready_line}"));
        let url = &ready_line[at..];
        let end = url.find(['"', ' ']).unwrap_or(url.len());
        server.url = url[..end].to_owned();
        server
    }

    /// Starts this command without waiting until it is ready.
    pub(crate) fn spawn(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let err = BufReader::new(child.stderr.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in err.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self { _stdin: child.stdin.take(), child, lines, log: Vec::new(), url: String::new() }
    }

    /// Waits for the next line that contains this text.
    pub(crate) fn wait_for_line(&mut self, text: &str) -> String {
        loop {
            match self.lines.recv_timeout(LINE_TIMEOUT) {
                Ok(line) => {
                    self.log.push(line.clone());
                    if line.contains(text) {
                        return line;
                    }
                }
                Err(error) => panic!("no `{text}` ({error}): {:#?}", self.log),
            }
        }
    }

    /// Returns the address without the scheme.
    pub(crate) fn address(&self) -> &str {
        self.url.trim_start_matches("http://")
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: &str) {
        let pid = self.pid().to_string();
        let kill_status = Command::new("kill").args([signal, &pid]).status();
        assert!(kill_status.unwrap().success());
    }

    /// Waits for the exit. Returns the exit code and all log lines; -1 means that a signal ended
    /// it.
    pub(crate) fn wait_exit(mut self) -> (i32, Vec<String>) {
        loop {
            match self.lines.recv_timeout(LINE_TIMEOUT) {
                Ok(line) => self.log.push(line),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    panic!("the server did not exit: {:#?}", self.log)
                }
            }
        }
        let code = self.child.wait().unwrap().code().unwrap_or(-1);
        (code, std::mem::take(&mut self.log))
    }

    /// Kills the server with SIGKILL.
    pub(crate) fn kill(self) {
        self.signal("-KILL");
        self.wait_exit();
    }

    /// Sends a request to the server.
    pub(crate) fn request(&self, line: &str, headers: &[(&str, &str)], body: &str) -> HttpResponse {
        send_request(self.address(), line, headers, body)
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

#[derive(Debug)]
pub(crate) struct HttpResponse {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl HttpResponse {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let pairs = self.head.lines().filter_map(|line| line.split_once(": "));
        let mut values = pairs.filter(|(key, _)| key.eq_ignore_ascii_case(name));
        values.next().map(|(_, value)| value.trim())
    }
}

/// Sends one request, such as `GET /livez`, on a new connection.
pub(crate) fn send_request(
    address: &str,
    line: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> HttpResponse {
    try_send_request(address, line, headers, body).unwrap()
}

/// Sends one request. Fails if the response is incomplete.
pub(crate) fn try_send_request(
    address: &str,
    line: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> io::Result<HttpResponse> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(LINE_TIMEOUT))?;
    let mut text = format!("{line} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n");
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    if line.starts_with("POST") {
        let length = body.len();
        text.push_str(&format!("content-type: application/json\r\ncontent-length: {length}\r\n"));
    }
    text.push_str("\r\n");
    text.push_str(body);
    stream.write_all(text.as_bytes())?;
    let mut received = String::new();
    stream.read_to_string(&mut received)?;
    let (head, body) = received.split_once("\r\n\r\n").unwrap_or((&received, ""));
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
    let incomplete = || io::Error::other(format!("incomplete response: {received:?}"));
    let answer = HttpResponse {
        status: status.ok_or_else(incomplete)?,
        head: head.to_owned(),
        body: body.to_owned(),
    };
    let length = answer.header("content-length");
    match length.is_none_or(|length| length == body.len().to_string()) {
        true => Ok(answer),
        false => Err(incomplete()),
    }
}

pub(crate) fn local_key(project: &Project) -> String {
    let file = project.path().join(".longhaul/local.key");
    std::fs::read_to_string(file).unwrap().trim().to_owned()
}
