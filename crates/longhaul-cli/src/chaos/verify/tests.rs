//! Tests of the verification with manipulated data: each guarantee is violated once by hand, and
//! the verification must detect it. There is no store and no process; a journal here is a list of
//! events.

use longhaul_core::event::entry::{JournalEntry, JournalEntryEnvelope};
use longhaul_core::id::RunId;
use serde_json::{Value, json};

use crate::chaos::project::EffectRecord;
use crate::chaos::verify::{Findings, Invariant, verify_runs};

const RUN: &str = "run_01kdvdna000000000004000001";
const OTHER_RUN: &str = "run_01kdvdna000000000004000002";
const GATE: &str = "gate_01kdvdp2dkgcz106mbrfw16wtm";

/// An event of a test journal: epoch of the worker's claim, kind and data.
type EventSpec = (u64, &'static str, Value);

fn test_run_id() -> RunId {
    RUN.parse().unwrap()
}

fn journal_entry(seq: usize, (epoch, kind, data): &EventSpec) -> JournalEntry {
    let envelope: JournalEntryEnvelope = serde_json::from_value(json!({
        "run": RUN, "seq": seq, "at": "2026-01-01T00:00:00.000000Z",
        "type": kind, "v": 1, "epoch": epoch, "data": data,
    }))
    .unwrap();
    JournalEntry::try_from(&envelope).unwrap()
}

fn journal_entries(events: &[EventSpec]) -> Vec<JournalEntry> {
    (1..).zip(events).map(|(seq, event)| journal_entry(seq, event)).collect()
}

fn turn_started_event(epoch: u64, turn: u32, attempt: u32) -> EventSpec {
    let hold = json!({ "micro_usd": 0, "tokens": 0 });
    let data = json!({ "turn": turn, "attempt": attempt, "hold": hold, "max_tokens": 9 });
    (epoch, "turn.started", data)
}

fn turn_completed_event(epoch: u64, turn: u32, calls: &[(&str, &str)]) -> EventSpec {
    let call = |(tool, class): &(&str, &str)| json!({ "tool": tool, "class": class });
    let calls: Vec<Value> = calls.iter().map(call).collect();
    let data = json!({
        "turn": turn, "reply": { "api": "scripted", "blocks": [] }, "stop": "tool_use",
        "usage": { "input_tokens": 1, "output_tokens": 1 }, "model": "scripted/x", "active": 1,
        "calls": calls,
    });
    (epoch, "turn.completed", data)
}

fn turn_lost_event(epoch: u64, turn: u32, attempt: u32) -> EventSpec {
    let failure = json!({ "class": "lost", "message": "cut off" });
    let data = json!({ "turn": turn, "attempt": attempt, "failure": failure });
    (epoch, "turn.failed", data)
}

fn tool_started_event(epoch: u64, call: &str) -> EventSpec {
    (epoch, "tool.started", json!({ "call": call, "attempt": 1 }))
}

fn tool_completed_event(epoch: u64, call: &str) -> EventSpec {
    let output = json!({ "content": [] });
    let data = json!({ "call": call, "output": output, "active": 0 });
    (epoch, "tool.completed", data)
}

fn tool_in_doubt_event(epoch: u64, call: &str) -> EventSpec {
    let data = json!({ "call": call, "epoch": epoch - 1, "policy": "ask" });
    (epoch, "tool.in_doubt", data)
}

fn run_recovered_event(epoch: u64) -> EventSpec {
    (epoch, "run.recovered", json!({ "crashed_epoch": epoch - 1 }))
}

fn gate_raised_event(epoch: u64, call: &str) -> EventSpec {
    let gate = json!({ "id": GATE, "kind": "in_doubt", "ask": "?", "call": call });
    (epoch, "gate.raised", json!({ "gate": gate }))
}

fn gate_answered_event(epoch: u64, decision: &str) -> EventSpec {
    let answer = json!({ "decision": decision, "by": "chaos:1" });
    (epoch, "gate.answered", json!({ "gate": GATE, "answer": answer }))
}

fn run_completed_event(epoch: u64) -> EventSpec {
    let data = json!({ "output": { "text": "done" } });
    (epoch, "run.completed", data)
}

fn effect_record(tool: &str, call: &str, epoch: u64) -> EffectRecord {
    let key = format!("{RUN}:{call}");
    serde_json::from_value(json!({
        "tool": tool, "run": RUN, "call": call, "key": key, "epoch": epoch, "note": "",
    }))
    .unwrap()
}

const THREE_CALLS: &[(&str, &str)] =
    &[("probe_read", "pure"), ("probe_write", "keyed"), ("probe_send", "once")];

/// Returns a valid journal with two kills: one during a model call, one during all three tool
/// calls.
fn valid_journal() -> Vec<EventSpec> {
    vec![
        turn_started_event(1, 1, 1),
        run_recovered_event(2),
        turn_lost_event(2, 1, 1),
        turn_started_event(2, 1, 2),
        turn_completed_event(2, 1, THREE_CALLS),
        tool_started_event(2, "t1.1"),
        tool_started_event(2, "t1.2"),
        tool_started_event(2, "t1.3"),
        run_recovered_event(3),
        tool_in_doubt_event(3, "t1.3"),
        gate_raised_event(3, "t1.3"),
        tool_started_event(3, "t1.1"),
        tool_started_event(3, "t1.2"),
        tool_completed_event(3, "t1.1"),
        tool_completed_event(3, "t1.2"),
        gate_answered_event(3, "complete"),
        tool_completed_event(4, "t1.3"),
        run_completed_event(4),
    ]
}

fn valid_effect_records() -> Vec<EffectRecord> {
    vec![
        effect_record("probe_read", "t1.1", 2),
        effect_record("probe_write", "t1.2", 2),
        effect_record("probe_send", "t1.3", 2),
        effect_record("probe_write", "t1.2", 3),
        effect_record("probe_read", "t1.1", 3),
    ]
}

fn verify_events(events: &[EventSpec], records: &[EffectRecord]) -> Findings {
    verify_runs(&[(test_run_id(), journal_entries(events))].into(), records)
}

/// Asserts that this guarantee is violated exactly once, and no other guarantee is.
fn assert_only_violation(invariant: Invariant, counts: &Findings) {
    for (candidate, _) in Invariant::ALL {
        let expected = usize::from(candidate == invariant);
        assert_eq!(counts.violation_counts[&candidate], expected, "{candidate:?}: {counts:#?}");
    }
    assert!(!counts.has_test_passed());
    assert_eq!(counts.violations[0].run, test_run_id());
}

/// Returns the valid journal with an event inserted at this position.
fn valid_journal_with_event(index: usize, event: EventSpec) -> Vec<EventSpec> {
    let mut events = valid_journal();
    events.insert(index, event);
    events
}

fn valid_journal_without_kinds(kinds: &[&str]) -> Vec<EventSpec> {
    let mut events = valid_journal();
    events.retain(|(_, kind, _)| !kinds.contains(kind));
    events
}

#[test]
fn a_valid_journal_is_counted_without_violations() {
    let counts = verify_events(&valid_journal(), &valid_effect_records());
    assert!(counts.has_test_passed(), "{counts:#?}");
    assert_eq!((counts.runs.completed, counts.recoveries), (1, 2));
    assert_eq!((counts.model_calls.total, counts.model_calls.repeated), (2, 1));
    assert_eq!((counts.pure_repeats, counts.keyed_repeats), (1, 1));
    assert_eq!(counts.once_calls, 1);
    let doubt = &counts.in_doubt[0];
    assert_eq!((doubt.call.to_string().as_str(), doubt.happened), ("t1.3", Some(true)));
    assert_eq!((counts.in_doubt.len(), doubt.settled_by), (1, "complete"));
}

#[test]
fn a_call_repeated_after_its_result_is_reported() {
    // In the journal: a start, a second result, a model call or a reply repeated.
    for event in [
        tool_started_event(4, "t1.1"),
        tool_completed_event(4, "t1.1"),
        turn_started_event(4, 1, 3),
        turn_completed_event(4, 1, THREE_CALLS),
    ] {
        assert_only_violation(
            Invariant::RepeatedAfterResult,
            &verify_events(&valid_journal_with_event(16, event), &valid_effect_records()),
        );
    }
    // In the probe file only: an old driver continued after it was replaced.
    let mut events = valid_journal();
    events[13] = tool_completed_event(2, "t1.1");
    events.swap(8, 13);
    events.retain(|event| *event != tool_started_event(3, "t1.1"));
    assert_only_violation(Invariant::RepeatedAfterResult, &{
        let mut counts = verify_events(&events, &valid_effect_records());
        // The same effect also has no start, which is a separate violation.
        counts.violation_counts.insert(Invariant::UnaccountedEffect, 0);
        counts
    });
}

#[test]
fn a_duplicate_once_effect_is_reported() {
    let mut records = valid_effect_records();
    records.push(effect_record("probe_send", "t1.3", 2));
    let mut counts = verify_events(&valid_journal(), &records);
    counts.violation_counts.insert(Invariant::UnaccountedEffect, 0);
    assert_only_violation(Invariant::DuplicateOnceEffect, &counts);
    // A second start in the journal is enough, without any probe record.
    let started_twice = valid_journal_with_event(9, tool_started_event(3, "t1.3"));
    assert_only_violation(Invariant::DuplicateOnceEffect, &verify_events(&started_twice, &[]));
    // A person may allow the repeat.
    let mut repeat_approved = valid_journal_with_event(16, tool_started_event(4, "t1.3"));
    repeat_approved[15] = gate_answered_event(3, "approve");
    let mut records = valid_effect_records();
    records.push(effect_record("probe_send", "t1.3", 4));
    assert!(verify_events(&repeat_approved, &records).has_test_passed());
}

#[test]
fn an_unreported_lost_once_call_is_a_violation() {
    let kinds = ["tool.in_doubt", "gate.raised", "gate.answered"];
    // A later driver recorded a result without reporting the loss.
    assert_only_violation(
        Invariant::LostWithoutReport,
        &verify_events(&valid_journal_without_kinds(&kinds), &valid_effect_records()),
    );
    // It has no result at all, according to the probe file or to the journal alone.
    let mut events = valid_journal_without_kinds(&kinds);
    events.retain(|event| *event != tool_completed_event(4, "t1.3"));
    assert_only_violation(
        Invariant::LostWithoutReport,
        &verify_events(&events, &valid_effect_records()),
    );
    assert_only_violation(Invariant::LostWithoutReport, &verify_events(&events, &[]));
}

#[test]
fn an_effect_without_a_start_is_reported() {
    // The effect happened before its start was on disk.
    let mut records = valid_effect_records();
    records[2] = effect_record("probe_send", "t1.3", 1);
    assert_only_violation(Invariant::UnaccountedEffect, &verify_events(&valid_journal(), &records));
    // The effect happened more often than the call was started.
    let mut records = valid_effect_records();
    records.push(effect_record("probe_write", "t1.2", 3));
    assert_only_violation(Invariant::UnaccountedEffect, &verify_events(&valid_journal(), &records));
    // The effect belongs to an unknown call, has another key, or belongs to an unknown run.
    let mut records = valid_effect_records();
    records.push(effect_record("probe_write", "t9.1", 3));
    assert_only_violation(Invariant::UnaccountedEffect, &verify_events(&valid_journal(), &records));
    let mut records = valid_effect_records();
    records[1].key = "another".to_owned();
    assert_only_violation(Invariant::UnaccountedEffect, &verify_events(&valid_journal(), &records));
    let mut records = valid_effect_records();
    records.push(EffectRecord {
        run: OTHER_RUN.parse().unwrap(),
        ..effect_record("probe_write", "t1.2", 3)
    });
    assert_eq!(
        verify_events(&valid_journal(), &records).violation_counts[&Invariant::UnaccountedEffect],
        1
    );
}

#[test]
fn two_model_calls_lost_by_one_kill_are_reported() {
    let two_calls_lost = valid_journal_with_event(3, turn_lost_event(2, 1, 1));
    assert_only_violation(
        Invariant::ExcessModelCalls,
        &verify_events(&two_calls_lost, &valid_effect_records()),
    );
}

#[test]
fn a_journal_out_of_order_is_reported() {
    let entries_with_gap: Vec<JournalEntry> = (1..)
        .zip(&valid_journal())
        .map(|(seq, event)| journal_entry(seq + usize::from(seq > 9), event))
        .collect();
    assert_only_violation(
        Invariant::BrokenJournals,
        &verify_runs(&[(test_run_id(), entries_with_gap)].into(), &valid_effect_records()),
    );
    let mut falling_epoch = valid_journal();
    falling_epoch[8].0 = 1;
    assert_only_violation(
        Invariant::BrokenJournals,
        &verify_events(&falling_epoch, &valid_effect_records()),
    );
    let mut event_after_end = valid_journal();
    event_after_end.push((4, "run.recovered", json!({ "crashed_epoch": 3 })));
    assert_only_violation(
        Invariant::BrokenJournals,
        &verify_events(&event_after_end, &valid_effect_records()),
    );
    // A submission that was acknowledged and lost.
    assert_only_violation(
        Invariant::BrokenJournals,
        &verify_runs(&[(test_run_id(), Vec::new())].into(), &[]),
    );
}

#[test]
fn an_unfinished_or_failed_run_does_not_pass() {
    let mut unfinished = valid_journal();
    unfinished.pop();
    let counts = verify_events(&unfinished, &valid_effect_records());
    assert!(counts.violations.is_empty(), "{counts:#?}");
    assert_eq!(
        (counts.has_test_passed(), counts.runs.other.as_slice()),
        (false, [test_run_id()].as_slice())
    );
    let mut failed = valid_journal();
    let error = json!({ "error": { "code": "x", "message": "x", "hint": "" } });
    failed[17] = (4, "run.failed", error);
    let counts = verify_events(&failed, &valid_effect_records());
    assert_eq!(
        (counts.has_test_passed(), counts.runs.failed.as_slice()),
        (false, [test_run_id()].as_slice())
    );
}
