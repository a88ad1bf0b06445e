//! What goes wrong on purpose, over a real socket.

use std::io::{ErrorKind, Read as _, Write as _};
use std::time::Duration;

use longhaul_engine::clock::Stopwatch;

use super::{WIRES, connect, is, project, question, request, send, start};

#[test]
fn every_second_request_fails_and_says_when_to_come_back() {
    let project = project();
    let served = start(&project, &["--fail-status", "503", "--fail-every", "2"]);
    let body = question("look", true).to_string();
    for path in [WIRES, WIRES].concat().chunks(2).flatten().enumerate() {
        let (place, path) = path;
        let answer = served.ask(&format!("POST {path}"), &[], &body);
        let status = if place % 2 == 0 { 200 } else { 503 };
        assert_eq!(answer.status, status, "{answer:?}");
        if status == 503 {
            assert_eq!(answer.header("retry-after"), Some("1"), "{answer:?}");
            assert!(answer.json()["error"]["message"].is_string());
        }
    }
}

#[test]
fn a_cut_stream_breaks_off_with_its_connection() {
    let project = project();
    let served = start(&project, &["--cut-every", "2"]);
    let body = question("look", true).to_string();
    for path in WIRES {
        let whole = send(&served, path, body.as_bytes());
        assert!(whole.ends_with("0\r\n\r\n"), "{whole}");
        // It asks for the connection to be kept, and it is closed all the same.
        let mut stream = connect(&served);
        stream
            .write_all(&request(path, "", body.as_bytes()))
            .unwrap();
        let mut cut = String::new();
        stream.read_to_string(&mut cut).unwrap();
        assert!(is(&cut, 200) && cut.contains("data: {"), "{cut}");
        assert!(!cut.ends_with("0\r\n\r\n"), "{cut}");
        for end in ["message_stop", "response.completed", "[DONE]"] {
            assert!(!cut.contains(end), "{cut}");
        }
    }
}

#[test]
fn a_reply_takes_its_time() {
    let project = project();
    let served = start(&project, &["--latency", "200ms", "--token-delay", "20ms"]);
    let body = question("look", true).to_string();
    let watch = Stopwatch::start();
    let answer = send(&served, WIRES[0], body.as_bytes());
    let took = watch.nanos() / 1_000_000;
    let events = u64::try_from(answer.matches("data: ").count()).unwrap();
    assert!(events > 8, "{answer}");
    let least = 200 + 20 * (events - 1);
    assert!(took >= least, "{took} ms for {events} events");
}

#[test]
fn one_request_may_ask_for_its_own_fault() {
    let project = project();
    let served = start(&project, &[]);
    for (path, stream) in WIRES.into_iter().flat_map(|p| [(p, false), (p, true)]) {
        let body = question("look", stream).to_string();
        let ask = |fault: &str| {
            let headers = [("x-longhaul-fault", fault)];
            served.ask(&format!("POST {path}"), &headers, &body)
        };
        assert_eq!(ask("status=418").status, 418);
        assert_eq!(ask("fire").status, 400);
        let cut = ask("cut");
        assert!(
            cut.status == 200 && !cut.body.ends_with("0\r\n\r\n"),
            "{cut:?}"
        );
        assert!(ask("garbage").body.contains("<html>"));
        let status = if stream { 200 } else { 529 };
        assert_eq!(ask("error").status, status);
    }
}

#[test]
fn a_stream_that_stalls_says_nothing_more_and_holds_nobody_up() {
    let project = project();
    let served = start(&project, &[]);
    let body = question("look", true).to_string();
    let mut stream = connect(&served);
    let headers = "x-longhaul-fault: stall\r\n";
    let asked = request(WIRES[1], headers, body.as_bytes());
    stream.write_all(&asked).unwrap();
    let mut came = Vec::new();
    stream
        .set_read_timeout(Some(Duration::from_millis(300)))
        .unwrap();
    let silence = stream.read_to_end(&mut came).unwrap_err();
    assert!(
        [ErrorKind::WouldBlock, ErrorKind::TimedOut].contains(&silence.kind()),
        "{silence}"
    );
    let came = String::from_utf8(came).unwrap();
    assert!(came.contains("response.created"), "{came}");
    assert!(!came.contains("response.completed"), "{came}");
    assert!(is(&send(&served, WIRES[1], body.as_bytes()), 200));
    served.signal("-TERM");
    assert_eq!(served.ended().0, 0);
}
