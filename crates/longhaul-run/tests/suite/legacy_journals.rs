//! Journals of an older build, whose final output was derived by an older rule. The run must end with
//! the output that was shown at the result gate, whatever the current rule would derive.
//!
//! The journal files must not be changed.

use longhaul_core::event::Event;
use longhaul_core::event::entry::{JournalEntry, JournalEntryEnvelope};
use longhaul_core::policy::gate::GateTimeoutAction;
use longhaul_core::raw::RawJson;
use longhaul_run::{DecisionContext, Run, RunInput, decide};

use super::harness::script::check;
use super::policies::{plain, result_gate};

const JOURNALS: &[(&str, &str)] = &[
    ("finish_list", include_str!("older/finish_list.jsonl")),
    ("finish_object", include_str!("older/finish_object.jsonl")),
    ("finish_text", include_str!("older/finish_text.jsonl")),
    ("text_object", include_str!("older/text_object.jsonl")),
];

fn parse_journal(text: &str) -> Vec<JournalEntry> {
    let envelopes = text.lines().map(serde_json::from_str::<JournalEntryEnvelope>);
    envelopes.map(|envelope| JournalEntry::try_from(&envelope.unwrap()).unwrap()).collect()
}

#[test]
fn a_legacy_run_ends_with_the_approved_output() {
    for (name, text) in JOURNALS {
        let journal = parse_journal(text);
        let (end, before) = journal.split_last().unwrap();
        let Event::RunCompleted(recorded) = &end.event else {
            panic!("{name} does not end with run.completed");
        };
        let gate_input = before.iter().find_map(|entry| match &entry.event {
            Event::GateRaised(raised) => raised.gate.input.clone(),
            _ => None,
        });
        assert_eq!(gate_input, Some(RawJson::from_serialize(&recorded.output)), "{name}");
        let run = Run::replay(before).unwrap();
        let batch = decide(&run, RunInput::Advance, DecisionContext::new(end.at)).unwrap();
        assert_eq!(batch.events, std::slice::from_ref(&end.event), "{name}");
    }
}

#[test]
fn output_parsed_by_the_new_rules_is_journaled_with_the_reply() {
    let script = r#"
        claim => run.claimed | running
        see   => run.prepared turn.started
        LINE  => turn.completed tool.completed(t1.1) gate.raised(result) run.waiting(approval) | waiting approval
        yes   => gate.answered | running
        claim => run.claimed
        go    => run.completed(All done.) | completed
    "#;
    let line = r#"call finish/pure {"output": {"text": "All done.", "confidence": 87.5}}"#;
    let test_run = check(result_gate(GateTimeoutAction::Approve), &script.replace("LINE", line));
    assert_eq!(
        test_run.show("outcome"),
        r#"{"text":"All done.","data":{"text":"All done.","confidence":87.5},"confidence":88}"#
    );
    // The output comes from the journal. Without it, the older rule applies.
    let mut entries = test_run.entries;
    let stored_output = entries.iter_mut().find_map(|entry| match &mut entry.event {
        Event::TurnCompleted(done) => done.output.take(),
        _ => None,
    });
    assert_eq!(stored_output.unwrap().confidence, Some(88));
    let run = Run::replay(&entries[..6]).unwrap();
    let batch = decide(&run, RunInput::Advance, DecisionContext::new(test_run.now)).unwrap();
    let Some(Event::GateRaised(raised)) = batch.events.first() else {
        panic!("no gate was raised: {batch:?}");
    };
    let gate_input = raised.gate.input.as_ref().unwrap().to_value();
    assert_eq!(gate_input["text"], r#"{"text":"All done.","confidence":87.5}"#);
}

#[test]
fn output_that_both_rules_parse_alike_is_not_journaled_twice() {
    for line in [
        "say Done.",
        r#"say {"success": true, "confidence": 90}"#,
        r#"call finish/pure {"output": "Done."}"#,
        r#"call finish/pure {"output": {"success": true}}"#,
    ] {
        let mut test_run = super::harness::TestRun::new(plain());
        for line in ["claim", "see", line] {
            test_run.play(line);
        }
        assert!(test_run.run.outcome().is_some(), "{line}");
        let stored_output = test_run.entries.iter().find_map(|entry| match &entry.event {
            Event::TurnCompleted(done) => done.output.clone(),
            _ => None,
        });
        assert_eq!(stored_output, None, "{line}");
    }
}
