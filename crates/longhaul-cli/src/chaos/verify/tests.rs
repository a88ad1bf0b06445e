//! The judge before doctored evidence: every rule is broken once by hand, and seen.
//!
//! Never: a store or a process. A journal here is a list of lines.

use longhaul_core::event::entry::{Entry, Envelope};
use longhaul_core::id::RunId;
use serde_json::{Value, json};

use crate::chaos::probe_log::ProbeRecord;
use crate::chaos::verify::counts::{ChaosCounts, Invariant};
use crate::chaos::verify::verify;

const RUN: &str = "run_01kdvdna000000000004000001";
const OTHER_RUN: &str = "run_01kdvdna000000000004000002";
const GATE: &str = "gate_01kdvdp2dkgcz106mbrfw16wtm";

/// The epoch and the kind of a fact, and its data.
type EventSpec = (u64, &'static str, Value);

fn run() -> RunId {
    RUN.parse().unwrap()
}

fn entry(seq: usize, (epoch, kind, data): &EventSpec) -> Entry {
    let envelope: Envelope = serde_json::from_value(json!({
        "run": RUN, "seq": seq, "at": "2026-01-01T00:00:00.000000Z",
        "type": kind, "v": 1, "epoch": epoch, "data": data,
    }))
    .unwrap();
    Entry::try_from(&envelope).unwrap()
}

fn journal(facts: &[EventSpec]) -> Vec<Entry> {
    (1..).zip(facts).map(|(seq, fact)| entry(seq, fact)).collect()
}

fn turn_started(epoch: u64, turn: u32, attempt: u32) -> EventSpec {
    let hold = json!({ "micro_usd": 0, "tokens": 0 });
    let data = json!({ "turn": turn, "attempt": attempt, "hold": hold, "max_tokens": 9 });
    (epoch, "turn.started", data)
}

fn turn_completed(epoch: u64, turn: u32, calls: &[(&str, &str)]) -> EventSpec {
    let call = |(tool, class): &(&str, &str)| json!({ "tool": tool, "class": class });
    let calls: Vec<Value> = calls.iter().map(call).collect();
    let data = json!({
        "turn": turn, "reply": { "api": "scripted", "blocks": [] }, "stop": "tool_use",
        "usage": { "input_tokens": 1, "output_tokens": 1 }, "model": "scripted/x", "active": 1,
        "calls": calls,
    });
    (epoch, "turn.completed", data)
}

fn turn_lost(epoch: u64, turn: u32, attempt: u32) -> EventSpec {
    let failure = json!({ "class": "lost", "message": "cut off" });
    let data = json!({ "turn": turn, "attempt": attempt, "failure": failure });
    (epoch, "turn.failed", data)
}

fn tool_started(epoch: u64, call: &str) -> EventSpec {
    (epoch, "tool.started", json!({ "call": call, "attempt": 1 }))
}

fn tool_completed(epoch: u64, call: &str) -> EventSpec {
    let output = json!({ "content": [] });
    let data = json!({ "call": call, "output": output, "active": 0 });
    (epoch, "tool.completed", data)
}

fn tool_in_doubt(epoch: u64, call: &str) -> EventSpec {
    let data = json!({ "call": call, "epoch": epoch - 1, "policy": "ask" });
    (epoch, "tool.in_doubt", data)
}

fn run_recovered(epoch: u64) -> EventSpec {
    (epoch, "run.recovered", json!({ "crashed_epoch": epoch - 1 }))
}

fn gate_raised(epoch: u64, call: &str) -> EventSpec {
    let gate = json!({ "id": GATE, "kind": "in_doubt", "ask": "?", "call": call });
    (epoch, "gate.raised", json!({ "gate": gate }))
}

fn gate_answered(epoch: u64, decision: &str) -> EventSpec {
    let answer = json!({ "decision": decision, "by": "chaos:1" });
    (epoch, "gate.answered", json!({ "gate": GATE, "answer": answer }))
}

fn run_completed(epoch: u64) -> EventSpec {
    let data = json!({ "output": { "text": "done" } });
    (epoch, "run.completed", data)
}

fn probe_record(tool: &str, call: &str, epoch: u64) -> ProbeRecord {
    let key = format!("{RUN}:{call}");
    serde_json::from_value(json!({
        "tool": tool, "run": RUN, "call": call, "key": key, "epoch": epoch, "note": "",
    }))
    .unwrap()
}

const THREE_CALLS: &[(&str, &str)] =
    &[("probe_read", "pure"), ("probe_write", "keyed"), ("probe_send", "once")];

/// Killed twice: while it asked, and while all three calls were at work.
fn valid_journal() -> Vec<EventSpec> {
    vec![
        turn_started(1, 1, 1),
        run_recovered(2),
        turn_lost(2, 1, 1),
        turn_started(2, 1, 2),
        turn_completed(2, 1, THREE_CALLS),
        tool_started(2, "t1.1"),
        tool_started(2, "t1.2"),
        tool_started(2, "t1.3"),
        run_recovered(3),
        tool_in_doubt(3, "t1.3"),
        gate_raised(3, "t1.3"),
        tool_started(3, "t1.1"),
        tool_started(3, "t1.2"),
        tool_completed(3, "t1.1"),
        tool_completed(3, "t1.2"),
        gate_answered(3, "complete"),
        tool_completed(4, "t1.3"),
        run_completed(4),
    ]
}

fn probe_records() -> Vec<ProbeRecord> {
    vec![
        probe_record("probe_read", "t1.1", 2),
        probe_record("probe_write", "t1.2", 2),
        probe_record("probe_send", "t1.3", 2),
        probe_record("probe_write", "t1.2", 3),
        probe_record("probe_read", "t1.1", 3),
    ]
}

fn verify_facts(facts: &[EventSpec], lines: &[ProbeRecord]) -> ChaosCounts {
    verify(&[(run(), journal(facts))], lines)
}

/// Only this rule is broken, once.
fn assert_only_violation(rule: Invariant, tally: &ChaosCounts) {
    for other in Invariant::ALL {
        let (name, _) = other.names();
        let expected = usize::from(other == rule);
        assert_eq!(tally.violation_count(other), expected, "{name}: {tally:#?}");
    }
    assert!(!tally.is_clean());
    assert_eq!(tally.violations[0].run, run());
}

/// The honest journal with a fact put in before this place.
fn valid_journal_with(place: usize, fact: EventSpec) -> Vec<EventSpec> {
    let mut facts = valid_journal();
    facts.insert(place, fact);
    facts
}

/// The honest journal without the facts that match.
fn valid_journal_without(kinds: &[&str]) -> Vec<EventSpec> {
    let mut facts = valid_journal();
    facts.retain(|(_, kind, _)| !kinds.contains(kind));
    facts
}

#[test]
fn a_valid_journal_passes_and_is_counted() {
    let tally = verify_facts(&valid_journal(), &probe_records());
    assert!(tally.is_clean(), "{tally:#?}");
    assert_eq!((tally.completed, tally.recoveries), (1, 2));
    assert_eq!((tally.model_calls, tally.model_calls_repeated), (2, 1));
    assert_eq!((tally.pure_repeats, tally.keyed_repeats), (1, 1));
    assert_eq!(tally.once_calls, 1);
    let doubt = &tally.in_doubt[0];
    assert_eq!((doubt.call.to_string().as_str(), doubt.happened), ("t1.3", Some(true)));
    assert_eq!((tally.in_doubt.len(), doubt.settled_by.as_str()), (1, "complete"));
}

#[test]
fn a_call_repeated_after_its_result_is_reported() {
    // In the journal: a start, a second result, a turn asked or answered again.
    for fact in [
        tool_started(4, "t1.1"),
        tool_completed(4, "t1.1"),
        turn_started(4, 1, 3),
        turn_completed(4, 1, THREE_CALLS),
    ] {
        assert_only_violation(
            Invariant::RepeatedAfterResult,
            &verify_facts(&valid_journal_with(16, fact), &probe_records()),
        );
    }
    // In the world only: a driver that was long gone went on.
    let mut facts = valid_journal();
    facts[13] = tool_completed(2, "t1.1");
    facts.swap(8, 13);
    facts.retain(|fact| *fact != tool_started(3, "t1.1"));
    assert_only_violation(Invariant::RepeatedAfterResult, &{
        let mut tally = verify_facts(&facts, &probe_records());
        // The same deed also stands under no start, which is a rule of its own.
        tally.violations.retain(|offence| offence.invariant != Invariant::UnaccountedEffect);
        tally
    });
}

#[test]
fn a_duplicate_once_effect_is_reported() {
    let mut lines = probe_records();
    lines.push(probe_record("probe_send", "t1.3", 2));
    let mut tally = verify_facts(&valid_journal(), &lines);
    tally.violations.retain(|offence| offence.invariant != Invariant::UnaccountedEffect);
    assert_only_violation(Invariant::DuplicateOnceEffect, &tally);
    // A journal that shows the second start is enough, without any witness.
    let twice = valid_journal_with(9, tool_started(3, "t1.3"));
    assert_only_violation(Invariant::DuplicateOnceEffect, &verify_facts(&twice, &[]));
    // A person who says that it may begin anew takes that upon themselves.
    let mut anew = valid_journal_with(16, tool_started(4, "t1.3"));
    anew[15] = gate_answered(3, "approve");
    let mut lines = probe_records();
    lines.push(probe_record("probe_send", "t1.3", 4));
    assert!(verify_facts(&anew, &lines).is_clean());
}

#[test]
fn a_once_call_lost_without_a_report_is_reported() {
    let kinds = ["tool.in_doubt", "gate.raised", "gate.answered"];
    // A later driver gave it a result, and nobody was told.
    assert_only_violation(
        Invariant::LostWithoutReport,
        &verify_facts(&valid_journal_without(&kinds), &probe_records()),
    );
    // It has no result at all: known from the world, or from the journal alone.
    let mut facts = valid_journal_without(&kinds);
    facts.retain(|fact| *fact != tool_completed(4, "t1.3"));
    assert_only_violation(Invariant::LostWithoutReport, &verify_facts(&facts, &probe_records()));
    assert_only_violation(Invariant::LostWithoutReport, &verify_facts(&facts, &[]));
}

#[test]
fn an_effect_without_a_start_is_reported() {
    // Before its start was on disk.
    let mut lines = probe_records();
    lines[2] = probe_record("probe_send", "t1.3", 1);
    assert_only_violation(Invariant::UnaccountedEffect, &verify_facts(&valid_journal(), &lines));
    // More often than it was started.
    let mut lines = probe_records();
    lines.push(probe_record("probe_write", "t1.2", 3));
    assert_only_violation(Invariant::UnaccountedEffect, &verify_facts(&valid_journal(), &lines));
    // For a call that nobody asked for, under another key, for no run of ours.
    let mut lines = probe_records();
    lines.push(probe_record("probe_write", "t9.1", 3));
    assert_only_violation(Invariant::UnaccountedEffect, &verify_facts(&valid_journal(), &lines));
    let mut lines = probe_records();
    lines[1].key = "another".to_owned();
    assert_only_violation(Invariant::UnaccountedEffect, &verify_facts(&valid_journal(), &lines));
    let mut lines = probe_records();
    lines.push(ProbeRecord {
        run: OTHER_RUN.parse().unwrap(),
        ..probe_record("probe_write", "t1.2", 3)
    });
    assert_eq!(
        verify_facts(&valid_journal(), &lines).violation_count(Invariant::UnaccountedEffect),
        1
    );
}

#[test]
fn two_model_calls_lost_by_one_kill_are_reported() {
    let twice = valid_journal_with(3, turn_lost(2, 1, 1));
    assert_only_violation(Invariant::ExcessModelCalls, &verify_facts(&twice, &probe_records()));
}

#[test]
fn a_journal_out_of_order_is_reported() {
    let gap: Vec<Entry> = (1..)
        .zip(&valid_journal())
        .map(|(seq, fact)| entry(seq + usize::from(seq > 9), fact))
        .collect();
    assert_only_violation(Invariant::BrokenJournal, &verify(&[(run(), gap)], &probe_records()));
    let mut falls = valid_journal();
    falls[8].0 = 1;
    assert_only_violation(Invariant::BrokenJournal, &verify_facts(&falls, &probe_records()));
    let mut after = valid_journal();
    after.push((4, "run.recovered", json!({ "crashed_epoch": 3 })));
    assert_only_violation(Invariant::BrokenJournal, &verify_facts(&after, &probe_records()));
    // A submit that was acknowledged and is gone.
    assert_only_violation(Invariant::BrokenJournal, &verify(&[(run(), Vec::new())], &[]));
}

#[test]
fn a_run_that_did_not_complete_is_not_clean() {
    let mut open = valid_journal();
    open.pop();
    let tally = verify_facts(&open, &probe_records());
    assert!(tally.violations.is_empty(), "{tally:#?}");
    assert_eq!((tally.is_clean(), tally.other.as_slice()), (false, [run()].as_slice()));
    let mut failed = valid_journal();
    let fault = json!({ "error": { "code": "x", "message": "x", "hint": "" } });
    failed[17] = (4, "run.failed", fault);
    let tally = verify_facts(&failed, &probe_records());
    assert_eq!((tally.is_clean(), tally.failed.as_slice()), (false, [run()].as_slice()));
}
