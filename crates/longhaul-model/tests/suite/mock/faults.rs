//! What goes wrong on purpose.

use std::num::NonZeroU64;

use longhaul_core::time::Millis;
use longhaul_model::mock::{Answer, Asked, Content, Dialect, Ending, Faults, Mock, Regular};
use serde_json::json;

use super::kit::{
    DIALECTS, ask, asked, body, data, events, faulty, first, header, json_of, mock, streamed,
};

fn every(count: u64) -> Option<NonZeroU64> {
    NonZeroU64::new(count)
}

/// Asks with a fault.
fn spoiled(mock: &Mock, dialect: Dialect, fault: &str, stream: bool) -> Answer {
    let mut question = first(dialect, "play");
    question["stream"] = stream.into();
    let text = question.to_string();
    mock.answer(&Asked {
        fault: Some(fault),
        ..asked(dialect, text.as_bytes())
    })
}

#[test]
fn an_outage_of_the_script_passes_after_so_many_tries_of_one_request() {
    for dialect in DIALECTS {
        let mock = mock();
        let question = first(dialect, "outage");
        let tries = |question| -> Vec<u16> {
            let answers = (0..5).map(|_| ask(&mock, dialect, question));
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
fn an_outage_waits_as_the_script_says_and_asks_for_another_try() {
    let answer = ask(
        &mock(),
        Dialect::Messages,
        &first(Dialect::Messages, "outage"),
    );
    assert_eq!(answer.before, Millis(50));
    assert_eq!(header(&answer, "retry-after"), Some("1"));
    assert!(header(&answer, "retry-after-ms").is_some());
    let error = json_of(&answer);
    assert_eq!(error["error"]["type"], "overloaded_error");
}

#[test]
fn every_so_many_requests_one_fails() {
    let mock = faulty(Faults {
        latency: Millis(20),
        token_delay: Millis(5),
        fail: every(3).map(|every| Regular { status: 429, every }),
        ..Faults::default()
    });
    let mut seen = Vec::new();
    for _ in 0..3 {
        for dialect in DIALECTS {
            let answer = ask(&mock, dialect, &streamed(first(dialect, "play")));
            assert_eq!((answer.before, answer.between), (Millis(20), Millis(5)));
            seen.push(answer.status);
            // What is no question for a reply does not count.
            mock.models(dialect);
        }
    }
    assert_eq!(seen, [200, 200, 429, 200, 200, 429, 200, 200, 429]);
}

#[test]
fn every_so_many_streams_one_is_cut_in_the_middle() {
    let mock = faulty(Faults {
        cut_every: every(2),
        ..Faults::default()
    });
    for dialect in DIALECTS {
        let whole = ask(&mock, dialect, &streamed(first(dialect, "play")));
        let between = ask(&mock, dialect, &first(dialect, "play"));
        let cut = ask(&mock, dialect, &streamed(first(dialect, "play")));
        let endings = [whole.ending, between.ending, cut.ending];
        assert_eq!(endings, [Ending::Clean, Ending::Clean, Ending::Cut]);
        let (whole, cut) = (events(&whole), events(&cut));
        assert!(!cut.is_empty() && cut.len() < whole.len());
        assert_eq!(cut, whole[..cut.len()]);
    }
}

#[test]
fn a_header_asks_for_a_fault() {
    for dialect in DIALECTS {
        let mock = mock();
        for stream in [false, true] {
            let answer = spoiled(&mock, dialect, "status=503", stream);
            assert_eq!(answer.status, 503);
            assert_eq!(spoiled(&mock, dialect, "cut", stream).ending, Ending::Cut);
            let stall = spoiled(&mock, dialect, " stall ", stream);
            assert_eq!(stall.ending, Ending::Stall);
            let garbage = spoiled(&mock, dialect, "garbage", stream);
            let bytes = match &garbage.content {
                Content::Whole(body) => body,
                Content::Stream(events) => events.last().unwrap(),
            };
            assert!(String::from_utf8_lossy(bytes).contains("<html>"));
        }
        for wrong in ["", "status=200", "status=x", "fire"] {
            let answer = spoiled(&mock, dialect, wrong, true);
            assert_eq!(answer.status, 400, "{wrong}");
            assert!(body(&answer).contains("x-longhaul-fault"), "{wrong}");
        }
    }
}

#[test]
fn a_stream_may_say_that_it_can_t_go_on() {
    for dialect in DIALECTS {
        let answer = spoiled(&mock(), dialect, "error", true);
        let told = events(&answer);
        let last = data(told.last().unwrap()).unwrap();
        let kind = match dialect {
            Dialect::Messages => &last["error"]["type"],
            Dialect::Responses => &last["code"],
            Dialect::Chat => &last["error"]["type"],
        };
        let expected = match dialect {
            Dialect::Messages => json!("overloaded_error"),
            Dialect::Responses | Dialect::Chat => json!("server_error"),
        };
        assert_eq!(*kind, expected);
        assert_eq!(spoiled(&mock(), dialect, "error", false).status, 529);
    }
}
