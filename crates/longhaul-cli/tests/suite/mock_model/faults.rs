//! What goes wrong on purpose, over a real socket.

use std::io::{ErrorKind, Read as _, Write as _};
use std::time::Duration;

use longhaul_engine::clock::Stopwatch;

use super::{API_PATHS, chat_request, connect, has_status, project, request, send_body, start};

#[test]
fn every_second_request_fails_with_retry_after() {
    let project = project();
    let served = start(&project, &["--fail-status", "503", "--fail-every", "2"]);
    let body = chat_request("look", true).to_string();
    for path in [API_PATHS, API_PATHS].concat().chunks(2).flatten().enumerate() {
        let (place, path) = path;
        let answer = served.request(&format!("POST {path}"), &[], &body);
        let status = if place % 2 == 0 { 200 } else { 503 };
        assert_eq!(answer.status, status, "{answer:?}");
        if status == 503 {
            assert_eq!(answer.header("retry-after"), Some("1"), "{answer:?}");
            assert!(answer.json()["error"]["message"].is_string());
        }
    }
}

#[test]
fn a_cut_stream_closes_its_connection() {
    let project = project();
    let served = start(&project, &["--cut-every", "2"]);
    let body = chat_request("look", true).to_string();
    for path in API_PATHS {
        let whole = send_body(&served, path, body.as_bytes());
        assert!(whole.ends_with("0\r\n\r\n"), "{whole}");
        // It asks for the connection to be kept, and it is closed all the same.
        let mut stream = connect(&served);
        stream.write_all(&request(path, "", body.as_bytes())).unwrap();
        let mut cut = String::new();
        stream.read_to_string(&mut cut).unwrap();
        assert!(has_status(&cut, 200) && cut.contains("data: {"), "{cut}");
        assert!(!cut.ends_with("0\r\n\r\n"), "{cut}");
        for end in ["message_stop", "response.completed", "[DONE]"] {
            assert!(!cut.contains(end), "{cut}");
        }
    }
}

#[test]
fn latency_and_token_delay_are_applied() {
    let project = project();
    let served = start(&project, &["--latency", "200ms", "--token-delay", "20ms"]);
    let body = chat_request("look", true).to_string();
    let watch = Stopwatch::start();
    let answer = send_body(&served, API_PATHS[0], body.as_bytes());
    let took = watch.nanos() / 1_000_000;
    let events = u64::try_from(answer.matches("data: ").count()).unwrap();
    assert!(events > 8, "{answer}");
    let least = 200 + 20 * (events - 1);
    assert!(took >= least, "{took} ms for {events} events");
}

#[test]
fn a_header_selects_the_fault_of_one_request() {
    let project = project();
    let served = start(&project, &[]);
    for (path, stream) in API_PATHS.into_iter().flat_map(|p| [(p, false), (p, true)]) {
        let body = chat_request("look", stream).to_string();
        let ask = |fault: &str| {
            let headers = [("x-longhaul-fault", fault)];
            served.request(&format!("POST {path}"), &headers, &body)
        };
        assert_eq!(ask("status=418").status, 418);
        assert_eq!(ask("fire").status, 400);
        let cut = ask("cut");
        assert!(cut.status == 200 && !cut.body.ends_with("0\r\n\r\n"), "{cut:?}");
        assert!(ask("garbage").body.contains("<html>"));
        let status = if stream { 200 } else { 529 };
        assert_eq!(ask("error").status, status);
    }
}

#[test]
fn a_stalled_stream_sends_nothing_and_blocks_no_other_request() {
    let project = project();
    let served = start(&project, &[]);
    let body = chat_request("look", true).to_string();
    let mut stream = connect(&served);
    let headers = "x-longhaul-fault: stall\r\n";
    let asked = request(API_PATHS[1], headers, body.as_bytes());
    stream.write_all(&asked).unwrap();
    let mut came = Vec::new();
    stream.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let silence = stream.read_to_end(&mut came).unwrap_err();
    assert!([ErrorKind::WouldBlock, ErrorKind::TimedOut].contains(&silence.kind()), "{silence}");
    let came = String::from_utf8(came).unwrap();
    assert!(came.contains("response.created"), "{came}");
    assert!(!came.contains("response.completed"), "{came}");
    assert!(has_status(&send_body(&served, API_PATHS[1], body.as_bytes()), 200));
    served.signal("-TERM");
    assert_eq!(served.wait_exit().0, 0);
}
