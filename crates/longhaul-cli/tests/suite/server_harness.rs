//! A real server in a process of its own, and a plain way to ask it over HTTP:
//! what the tests of `serve` and `dev` stand on.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use serde_json::Value;

use super::project::Project;

/// So long it is waited for a line or an end before a test gives up.
const LINE_TIMEOUT: Duration = Duration::from_secs(30);

/// A server that is killed when it is dropped, and that stops by itself when
/// the test's own process dies.
pub(crate) struct TestServer {
    child: Child,
    /// As long as this is open, whoever started it lives.
    _stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    /// Every line so far.
    pub(crate) log: Vec<String>,
    /// Where it is.
    pub(crate) url: String,
}

impl TestServer {
    /// `serve` at any free port; it is ready when this returns.
    pub(crate) fn start(project: &Project) -> Self {
        Self::from_command(project.command(&["serve", "--listen", "127.0.0.1:0", "--until-eof"]))
    }

    /// The same at this address.
    pub(crate) fn start_at(project: &Project, address: &str) -> Self {
        Self::from_command(project.command(&["serve", "--listen", address, "--until-eof"]))
    }

    /// The same for this command.
    pub(crate) fn from_command(command: Command) -> Self {
        let mut served = Self::spawn(command);
        let ready = served.wait_for_line("ready");
        let at = ready.find("http://").unwrap_or_else(|| panic!("{ready}"));
        let url = &ready[at..];
        let end = url.find(['"', ' ']).unwrap_or(url.len());
        served.url = url[..end].to_owned();
        served
    }

    /// The command, which need not become ready.
    pub(crate) fn spawn(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let err = BufReader::new(child.stderr.take().unwrap());
        let (said, lines) = channel();
        std::thread::spawn(move || {
            for line in err.lines().map_while(Result::ok) {
                if said.send(line).is_err() {
                    return;
                }
            }
        });
        Self { _stdin: child.stdin.take(), child, lines, log: Vec::new(), url: String::new() }
    }

    /// Waits for the next line with these words in it.
    pub(crate) fn wait_for_line(&mut self, words: &str) -> String {
        loop {
            match self.lines.recv_timeout(LINE_TIMEOUT) {
                Ok(line) => {
                    self.log.push(line.clone());
                    if line.contains(words) {
                        return line;
                    }
                }
                Err(gone) => panic!("no `{words}` ({gone}): {:#?}", self.log),
            }
        }
    }

    /// Its address without the scheme.
    pub(crate) fn address(&self) -> &str {
        self.url.trim_start_matches("http://")
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: &str) {
        let pid = self.pid().to_string();
        let sent = Command::new("kill").args([signal, &pid]).status();
        assert!(sent.unwrap().success());
    }

    /// Waits for its end; the exit code, and every line it wrote. A signal that
    /// ended it is -1.
    pub(crate) fn wait_exit(mut self) -> (i32, Vec<String>) {
        loop {
            match self.lines.recv_timeout(LINE_TIMEOUT) {
                Ok(line) => self.log.push(line),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => panic!("it never ended: {:#?}", self.log),
            }
        }
        let code = self.child.wait().unwrap().code().unwrap_or(-1);
        (code, std::mem::take(&mut self.log))
    }

    /// Killed in the middle of whatever it does.
    pub(crate) fn kill(self) {
        self.signal("-KILL");
        self.wait_exit();
    }

    /// Asks it.
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

/// What came back.
#[derive(Debug)]
pub(crate) struct HttpResponse {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl HttpResponse {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|bad| panic!("{bad}: {self:?}"))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let pairs = self.head.lines().filter_map(|line| line.split_once(": "));
        let mut found = pairs.filter(|(known, _)| known.eq_ignore_ascii_case(name));
        found.next().map(|(_, value)| value.trim())
    }
}

/// One request, such as `GET /livez`, on a connection of its own.
pub(crate) fn send_request(
    address: &str,
    line: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> HttpResponse {
    try_send_request(address, line, headers, body).unwrap()
}

/// The same; the error is a server that has not given a whole answer.
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
    let mut came = String::new();
    stream.read_to_string(&mut came)?;
    let (head, body) = came.split_once("\r\n\r\n").unwrap_or((&came, ""));
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
    let broken = || io::Error::other(format!("no whole answer: {came:?}"));
    let answer = HttpResponse {
        status: status.ok_or_else(broken)?,
        head: head.to_owned(),
        body: body.to_owned(),
    };
    let length = answer.header("content-length");
    match length.is_none_or(|length| length == body.len().to_string()) {
        true => Ok(answer),
        false => Err(broken()),
    }
}

/// The key of a project's own machine.
pub(crate) fn local_key(project: &Project) -> String {
    let file = project.path().join(".longhaul/local.key");
    std::fs::read_to_string(file).unwrap().trim().to_owned()
}
