//! A real server of a project, which stops at the end of the test.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Stdio};

use serde_json::Value;

use crate::suite::project::Project;

/// A running server, until it is dropped.
pub(crate) struct InteropServer {
    child: Child,
    address: String,
    key: String,
}

impl InteropServer {
    /// Starts a server on a free port.
    pub(crate) fn start(project: &Project) -> Self {
        Self::start_at(project, "127.0.0.1:0")
    }

    fn start_at(project: &Project, listen: &str) -> Self {
        let mut command = project.command(&["serve", "--listen", listen, "--until-eof"]);
        // Stdin is held open: if this test dies, the server stops too.
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut stderr = String::new();
        let ready_url = lines.by_ref().map_while(Result::ok).find_map(|line| {
            stderr.push_str(&line);
            let line: Value = serde_json::from_str(&line).ok()?;
            (line["message"] == "ready").then(|| line["url"].as_str().unwrap().to_owned())
        });
        let url = ready_url.unwrap_or_else(|| panic!("the server exited at once: {stderr}"));
        // The output is read to its end, so that the server never blocks on it.
        std::thread::spawn(move || lines.for_each(drop));
        let key = fs::read_to_string(project.path().join(".longhaul/local.key")).unwrap();
        Self {
            child,
            address: url.trim_start_matches("http://").to_owned(),
            key: key.trim().to_owned(),
        }
    }

    /// Kills the server with SIGKILL and starts another one at the same address.
    pub(crate) fn kill_and_restart(self, project: &Project) -> Self {
        let address = self.address.clone();
        drop(self);
        Self::start_at(project, &address)
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn key(&self) -> &str {
        &self.key
    }

    /// Submits a task over HTTP, as JSON of several lines, and returns the run's id.
    pub(crate) fn submit(&self, agent: &str) -> String {
        let body = serde_json::json!({ "agent": agent, "input": { "text": "two\nlines" } });
        let body = format!("{body:#}");
        let mut stream = TcpStream::connect(&self.address).unwrap();
        write!(
            stream,
            "POST /v1/runs HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            self.address,
            self.key,
            body.len()
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        let run: Value =
            serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {answer}"));
        run["id"].as_str().unwrap().to_owned()
    }
}

impl Drop for InteropServer {
    fn drop(&mut self) {
        // On Unix this sends SIGKILL.
        _ = self.child.kill();
        _ = self.child.wait();
    }
}
