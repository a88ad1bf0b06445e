//! What goes wrong on purpose.

use std::num::NonZeroU64;

use longhaul_core::time::Millis;
use longhaul_model::mock::{
    ApiKind, Faults, IncomingRequest, MockBody, MockProvider, MockResponse, RecurringFailure,
    Termination,
};
use serde_json::json;

use super::harness::{
    APIS, as_stream, body, data, events, first_request, header, incoming_request, json_of, mock,
    mock_with_faults, respond,
};

fn every(count: u64) -> Option<NonZeroU64> {
    NonZeroU64::new(count)
}

/// Asks with a fault.
fn respond_with_fault(
    mock: &MockProvider,
    dialect: ApiKind,
    fault: &str,
    stream: bool,
) -> MockResponse {
    let mut question = first_request(dialect, "play");
    question["stream"] = stream.into();
    let text = question.to_string();
    mock.respond(&IncomingRequest {
        fault: Some(fault),
        ..incoming_request(dialect, text.as_bytes())
    })
}

#[test]
fn a_scripted_failure_ends_after_its_attempts() {
    for dialect in APIS {
        let mock = mock();
        let question = first_request(dialect, "outage");
        let tries = |question| -> Vec<u16> {
            let answers = (0..5).map(|_| respond(&mock, dialect, question));
            answers.map(|answer| answer.status).collect()
        };
        assert_eq!(tries(&question), [529, 529, 200, 200, 200]);
        // Another request has failures of its own.
        let mut other = question.clone();
        other["user"] = "another".into();
        assert_eq!(tries(&other), [529, 529, 200, 200, 200]);
    }
}

#[test]
fn a_scripted_failure_delays_and_sends_retry_after() {
    let answer = respond(&mock(), ApiKind::Messages, &first_request(ApiKind::Messages, "outage"));
    assert_eq!(answer.initial_delay, Millis(50));
    assert_eq!(header(&answer, "retry-after"), Some("1"));
    assert!(header(&answer, "retry-after-ms").is_some());
    let error = json_of(&answer);
    assert_eq!(error["error"]["type"], "overloaded_error");
}

#[test]
fn every_nth_request_fails() {
    let mock = mock_with_faults(Faults {
        latency: Millis(20),
        token_delay: Millis(5),
        failure: every(3).map(|every| RecurringFailure { status: 429, every }),
        ..Faults::default()
    });
    let mut seen = Vec::new();
    for _ in 0..3 {
        for dialect in APIS {
            let answer = respond(&mock, dialect, &as_stream(first_request(dialect, "play")));
            assert_eq!((answer.initial_delay, answer.event_delay), (Millis(20), Millis(5)));
            seen.push(answer.status);
            // What is no question for a reply does not count.
            mock.list_models(dialect);
        }
    }
    assert_eq!(seen, [200, 200, 429, 200, 200, 429, 200, 200, 429]);
}

#[test]
fn every_nth_stream_is_cut() {
    let mock = mock_with_faults(Faults { cut_every: every(2), ..Faults::default() });
    for dialect in APIS {
        let whole = respond(&mock, dialect, &as_stream(first_request(dialect, "play")));
        let between = respond(&mock, dialect, &first_request(dialect, "play"));
        let cut = respond(&mock, dialect, &as_stream(first_request(dialect, "play")));
        let endings = [whole.termination, between.termination, cut.termination];
        assert_eq!(endings, [Termination::Clean, Termination::Clean, Termination::Truncated]);
        let (whole, cut) = (events(&whole), events(&cut));
        assert!(!cut.is_empty() && cut.len() < whole.len());
        assert_eq!(cut, whole[..cut.len()]);
    }
}

#[test]
fn the_fault_header_injects_a_fault() {
    for dialect in APIS {
        let mock = mock();
        for stream in [false, true] {
            let answer = respond_with_fault(&mock, dialect, "status=503", stream);
            assert_eq!(answer.status, 503);
            assert_eq!(
                respond_with_fault(&mock, dialect, "cut", stream).termination,
                Termination::Truncated
            );
            let stall = respond_with_fault(&mock, dialect, " stall ", stream);
            assert_eq!(stall.termination, Termination::Stalled);
            let garbage = respond_with_fault(&mock, dialect, "garbage", stream);
            let bytes = match &garbage.body {
                MockBody::Full(body) => body,
                MockBody::Stream(events) => events.last().unwrap(),
            };
            assert!(String::from_utf8_lossy(bytes).contains("<html>"));
        }
        for wrong in ["", "status=200", "status=x", "fire"] {
            let answer = respond_with_fault(&mock, dialect, wrong, true);
            assert_eq!(answer.status, 400, "{wrong}");
            assert!(body(&answer).contains("x-longhaul-fault"), "{wrong}");
        }
    }
}

#[test]
fn a_stream_can_end_with_an_error_event() {
    for dialect in APIS {
        let answer = respond_with_fault(&mock(), dialect, "error", true);
        let told = events(&answer);
        let last = data(told.last().unwrap()).unwrap();
        let kind = match dialect {
            ApiKind::Messages => &last["error"]["type"],
            ApiKind::Responses => &last["code"],
            ApiKind::Chat => &last["error"]["type"],
        };
        let expected = match dialect {
            ApiKind::Messages => json!("overloaded_error"),
            ApiKind::Responses | ApiKind::Chat => json!("server_error"),
        };
        assert_eq!(*kind, expected);
        assert_eq!(respond_with_fault(&mock(), dialect, "error", false).status, 529);
    }
}
