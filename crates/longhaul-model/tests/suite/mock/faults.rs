//! Injected faults.

use std::num::NonZeroU64;

use longhaul_core::time::Millis;
use longhaul_model::mock::{
    ApiKind, FaultSettings, IncomingRequest, MockBody, MockProvider, MockResponse,
    RecurringFailure, ResponseTermination,
};
use serde_json::json;

use super::harness::{
    APIS, as_stream, body, data, events, first_request, header, incoming_request, json_of, mock,
    mock_with_faults, respond,
};

fn every_nth(count: u64) -> Option<NonZeroU64> {
    NonZeroU64::new(count)
}

/// Sends a request with a fault header.
fn respond_with_fault(
    mock: &MockProvider,
    api: ApiKind,
    fault: &str,
    stream: bool,
) -> MockResponse {
    let mut question = first_request(api, "play");
    question["stream"] = stream.into();
    let text = question.to_string();
    mock.respond(&IncomingRequest { fault: Some(fault), ..incoming_request(api, text.as_bytes()) })
}

#[test]
fn a_scripted_failure_ends_after_its_attempts() {
    for api in APIS {
        let mock = mock();
        let question = first_request(api, "outage");
        let five_statuses = |question| -> Vec<u16> {
            let answers = (0..5).map(|_| respond(&mock, api, question));
            answers.map(|answer| answer.status).collect()
        };
        assert_eq!(five_statuses(&question), [529, 529, 200, 200, 200]);
        // Another request has its own failures.
        let mut other_question = question.clone();
        other_question["user"] = "another".into();
        assert_eq!(five_statuses(&other_question), [529, 529, 200, 200, 200]);
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
    let mock = mock_with_faults(FaultSettings {
        latency: Millis(20),
        token_delay: Millis(5),
        failure: every_nth(3).map(|every| RecurringFailure { status: 429, every }),
        ..FaultSettings::default()
    });
    let mut statuses = Vec::new();
    for _ in 0..3 {
        for api in APIS {
            let answer = respond(&mock, api, &as_stream(first_request(api, "play")));
            assert_eq!((answer.initial_delay, answer.event_delay), (Millis(20), Millis(5)));
            statuses.push(answer.status);
            // Requests that don't ask for a reply are not counted.
            mock.list_models(api);
        }
    }
    assert_eq!(statuses, [200, 200, 429, 200, 200, 429, 200, 200, 429]);
}

#[test]
fn every_nth_stream_is_cut() {
    let mock =
        mock_with_faults(FaultSettings { cut_every: every_nth(2), ..FaultSettings::default() });
    for api in APIS {
        let complete = respond(&mock, api, &as_stream(first_request(api, "play")));
        let unstreamed = respond(&mock, api, &first_request(api, "play"));
        let truncated = respond(&mock, api, &as_stream(first_request(api, "play")));
        let terminations = [complete.termination, unstreamed.termination, truncated.termination];
        assert_eq!(
            terminations,
            [
                ResponseTermination::Clean,
                ResponseTermination::Clean,
                ResponseTermination::Truncated
            ]
        );
        let (complete, truncated) = (events(&complete), events(&truncated));
        assert!(!truncated.is_empty() && truncated.len() < complete.len());
        assert_eq!(truncated, complete[..truncated.len()]);
    }
}

#[test]
fn the_fault_header_injects_a_fault() {
    for api in APIS {
        let mock = mock();
        for stream in [false, true] {
            let answer = respond_with_fault(&mock, api, "status=503", stream);
            assert_eq!(answer.status, 503);
            assert_eq!(
                respond_with_fault(&mock, api, "cut", stream).termination,
                ResponseTermination::Truncated
            );
            let stalled_response = respond_with_fault(&mock, api, " stall ", stream);
            assert_eq!(stalled_response.termination, ResponseTermination::Stalled);
            let garbage_response = respond_with_fault(&mock, api, "garbage", stream);
            let bytes = match &garbage_response.body {
                MockBody::Full(body) => body,
                MockBody::Stream(events) => events.last().unwrap(),
            };
            assert!(String::from_utf8_lossy(bytes).contains("<html>"));
        }
        for invalid_fault in ["", "status=200", "status=x", "fire"] {
            let answer = respond_with_fault(&mock, api, invalid_fault, true);
            assert_eq!(answer.status, 400, "{invalid_fault}");
            assert!(body(&answer).contains("x-longhaul-fault"), "{invalid_fault}");
        }
    }
}

#[test]
fn a_stream_can_end_with_an_error_event() {
    for api in APIS {
        let answer = respond_with_fault(&mock(), api, "error", true);
        let stream_events = events(&answer);
        let last = data(stream_events.last().unwrap()).unwrap();
        let kind = match api {
            ApiKind::Messages => &last["error"]["type"],
            ApiKind::Responses => &last["code"],
            ApiKind::Chat => &last["error"]["type"],
        };
        let expected = match api {
            ApiKind::Messages => json!("overloaded_error"),
            ApiKind::Responses | ApiKind::Chat => json!("server_error"),
        };
        assert_eq!(*kind, expected);
        assert_eq!(respond_with_fault(&mock(), api, "error", false).status, 529);
    }
}
