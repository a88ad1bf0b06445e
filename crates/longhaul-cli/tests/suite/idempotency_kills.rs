//! A real server is killed while requests with an Idempotency-Key are in flight. A repeated request
//! gets the response of the first one, and is never rejected because of itself.

use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use super::project::Project;
use super::server_harness::{HttpResponse, TestServer, local_key, try_send_request};

/// Number of runs per round that wait at a gate. As many further tasks are submitted.
const RUNS: usize = 4;

/// A request with its own idempotency key.
struct KeyedRequest {
    request_line: String,
    key: String,
    body: String,
}

impl KeyedRequest {
    fn new(path: &str, key: String, body: &Value) -> Self {
        Self { request_line: format!("POST {path}"), key, body: body.to_string() }
    }

    /// Sends the request. `None` if the server died before it responded completely.
    fn send(&self, address: &str, bearer: &str) -> Option<HttpResponse> {
        let headers = [("authorization", bearer), ("idempotency-key", &self.key)];
        try_send_request(address, &self.request_line, &headers, &self.body).ok()
    }
}

fn wait_for_gate(server: &TestServer, bearer: &str, run: &str) -> Value {
    let line = format!("GET /v1/gates?status=open&run={run}");
    for _ in 0..2_000 {
        let gates = server.request(&line, &[("authorization", bearer)], "").json();
        if !gates["data"][0].is_null() {
            return gates["data"][0].clone();
        }
        thread::sleep(Duration::from_millis(5));
    }
    panic!("{run} raised no gate");
}

/// Returns the requests of a round: answers, a cancel and submits.
fn build_requests(server: &TestServer, bearer: &str, round: u64) -> Vec<KeyedRequest> {
    let task = |agent: &str| json!({ "agent": agent, "input": "milk" });
    let runs: Vec<String> = (0..RUNS)
        .map(|index| {
            let key = format!("prepare {round} {index}");
            let response =
                KeyedRequest::new("/v1/runs", key, &task("tidy")).send(server.address(), bearer);
            let response = response.expect("a response").json();
            response["id"].as_str().unwrap().to_owned()
        })
        .collect();
    let mut all = Vec::new();
    for (index, run) in runs.iter().enumerate() {
        let gate = wait_for_gate(server, bearer, run);
        let (path, body) = match index {
            0 => (format!("/v1/runs/{run}/cancel"), json!({})),
            _ => {
                let approval = json!({ "decision": "approve", "digest": gate["digest"] });
                let gate = gate["id"].as_str().unwrap();
                (format!("/v1/gates/{gate}/answer"), approval)
            }
        };
        all.push(KeyedRequest::new(&path, format!("decide {round} {index}"), &body));
        let key = format!("submit {round} {index}");
        all.push(KeyedRequest::new("/v1/runs", key, &task("plain")));
    }
    all
}

/// Returns a different delay for each round, within the time that the requests take.
fn kill_delay(round: u64) -> Duration {
    let hash = (round + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
    Duration::from_micros(hash % 40_000)
}

#[test]
fn a_request_retried_after_a_kill_is_not_refused() {
    let text = std::env::var("LONGHAUL_KILLS").unwrap_or_default();
    let kills = text.parse::<u64>().unwrap_or(50) / 10;
    let project = Project::new();
    let mut server = TestServer::start(&project);
    let bearer = format!("Bearer {}", local_key(&project));
    for round in 0..kills {
        let requests = build_requests(&server, &bearer, round);
        let address = server.address().to_owned();
        let first: Vec<Option<HttpResponse>> = thread::scope(|scope| {
            let threads: Vec<_> = requests
                .iter()
                .map(|request| scope.spawn(|| request.send(&address, &bearer)))
                .collect();
            thread::sleep(kill_delay(round));
            server.signal("-KILL");
            threads.into_iter().map(|threads| threads.join().unwrap()).collect()
        });
        server.wait_exit();
        server = TestServer::start(&project);
        for (request, first) in requests.iter().zip(first) {
            let response = request.send(server.address(), &bearer);
            let response = response.expect("a response");
            assert!(response.status < 300, "{}: {response:?}", request.request_line);
            if let Some(first) = first {
                assert_eq!(first.status, response.status, "{}", request.request_line);
                for field in ["id", "seq", "outcome", "gate"] {
                    assert_eq!(
                        first.json()[field],
                        response.json()[field],
                        "{}",
                        request.request_line
                    );
                }
            }
        }
    }
}
