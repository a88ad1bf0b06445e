//! The judge before doctored evidence: every rule is broken once by hand, and seen.
//!
//! Never: a store or a process. A journal here is a list of lines.

use longhaul_core::event::entry::{Entry, Envelope};
use longhaul_core::id::RunId;
use serde_json::{Value, json};

use crate::chaos::judge::judge;
use crate::chaos::judge::tally::{Rule, Tally};
use crate::chaos::witness::Line;

const RUN: &str = "run_01kdvdna000000000004000001";
const OTHER: &str = "run_01kdvdna000000000004000002";
const GATE: &str = "gate_01kdvdp2dkgcz106mbrfw16wtm";

/// The epoch and the kind of a fact, and its data.
type Fact = (u64, &'static str, Value);

fn run() -> RunId {
    RUN.parse().unwrap()
}

fn entry(seq: usize, (epoch, kind, data): &Fact) -> Entry {
    let envelope: Envelope = serde_json::from_value(json!({
        "run": RUN, "seq": seq, "at": "2026-01-01T00:00:00.000000Z",
        "type": kind, "v": 1, "epoch": epoch, "data": data,
    }))
    .unwrap();
    Entry::try_from(&envelope).unwrap()
}

fn journal(facts: &[Fact]) -> Vec<Entry> {
    (1..)
        .zip(facts)
        .map(|(seq, fact)| entry(seq, fact))
        .collect()
}

fn asked(epoch: u64, turn: u32, attempt: u32) -> Fact {
    let hold = json!({ "micros": 0, "tokens": 0 });
    let data = json!({ "turn": turn, "attempt": attempt, "hold": hold, "max_tokens": 9 });
    (epoch, "turn.started", data)
}

fn replied(epoch: u64, turn: u32, calls: &[(&str, &str)]) -> Fact {
    let call = |(tool, class): &(&str, &str)| json!({ "tool": tool, "class": class });
    let calls: Vec<Value> = calls.iter().map(call).collect();
    let data = json!({
        "turn": turn, "reply": { "dialect": "scripted", "blocks": [] }, "stop": "tool_use",
        "usage": { "input_tokens": 1, "output_tokens": 1 }, "model": "scripted/x", "active": 1,
        "calls": calls,
    });
    (epoch, "turn.completed", data)
}

fn lost(epoch: u64, turn: u32, attempt: u32) -> Fact {
    let failure = json!({ "class": "lost", "message": "cut off" });
    let data = json!({ "turn": turn, "attempt": attempt, "failure": failure });
    (epoch, "turn.failed", data)
}

fn started(epoch: u64, call: &str) -> Fact {
    (epoch, "tool.started", json!({ "call": call, "attempt": 1 }))
}

fn done(epoch: u64, call: &str) -> Fact {
    let output = json!({ "content": [] });
    let data = json!({ "call": call, "output": output, "active": 0 });
    (epoch, "tool.completed", data)
}

fn doubted(epoch: u64, call: &str) -> Fact {
    let data = json!({ "call": call, "from": epoch - 1, "then": "ask" });
    (epoch, "tool.in_doubt", data)
}

fn recovered(epoch: u64) -> Fact {
    (epoch, "run.recovered", json!({ "from": epoch - 1 }))
}

fn raised(epoch: u64, call: &str) -> Fact {
    let gate = json!({ "id": GATE, "kind": "in_doubt", "ask": "?", "call": call });
    (epoch, "gate.raised", json!({ "gate": gate }))
}

fn answered(epoch: u64, decision: &str) -> Fact {
    let answer = json!({ "decision": decision, "by": "chaos:1" });
    (
        epoch,
        "gate.answered",
        json!({ "gate": GATE, "answer": answer }),
    )
}

fn completed(epoch: u64) -> Fact {
    let data = json!({ "output": { "text": "done" } });
    (epoch, "run.completed", data)
}

fn seen(tool: &str, call: &str, epoch: u64) -> Line {
    let key = format!("{RUN}:{call}");
    serde_json::from_value(json!({
        "tool": tool, "run": RUN, "call": call, "key": key, "epoch": epoch, "note": "",
    }))
    .unwrap()
}

const THREE: &[(&str, &str)] = &[
    ("witness_look", "pure"),
    ("witness_put", "keyed"),
    ("witness_send", "once"),
];

/// Killed twice: while it asked, and while all three calls were at work.
fn honest() -> Vec<Fact> {
    vec![
        asked(1, 1, 1),
        recovered(2),
        lost(2, 1, 1),
        asked(2, 1, 2),
        replied(2, 1, THREE),
        started(2, "t1.1"),
        started(2, "t1.2"),
        started(2, "t1.3"),
        recovered(3),
        doubted(3, "t1.3"),
        raised(3, "t1.3"),
        started(3, "t1.1"),
        started(3, "t1.2"),
        done(3, "t1.1"),
        done(3, "t1.2"),
        answered(3, "complete"),
        done(4, "t1.3"),
        completed(4),
    ]
}

fn world() -> Vec<Line> {
    vec![
        seen("witness_look", "t1.1", 2),
        seen("witness_put", "t1.2", 2),
        seen("witness_send", "t1.3", 2),
        seen("witness_put", "t1.2", 3),
        seen("witness_look", "t1.1", 3),
    ]
}

fn judged(facts: &[Fact], lines: &[Line]) -> Tally {
    judge(&[(run(), journal(facts))], lines)
}

/// Only this rule is broken, once.
fn only(rule: Rule, tally: &Tally) {
    for other in Rule::ALL {
        let (name, _) = other.names();
        let expected = usize::from(other == rule);
        assert_eq!(tally.broken(other), expected, "{name}: {tally:#?}");
    }
    assert!(!tally.holds());
    assert_eq!(tally.offences[0].run, run());
}

/// The honest journal with a fact put in before this place.
fn with(place: usize, fact: Fact) -> Vec<Fact> {
    let mut facts = honest();
    facts.insert(place, fact);
    facts
}

/// The honest journal without the facts that match.
fn without(kinds: &[&str]) -> Vec<Fact> {
    let mut facts = honest();
    facts.retain(|(_, kind, _)| !kinds.contains(kind));
    facts
}

#[test]
fn an_honest_storm_is_acquitted_and_counted() {
    let tally = judged(&honest(), &world());
    assert!(tally.holds(), "{tally:#?}");
    assert_eq!((tally.completed, tally.picked_up), (1, 2));
    assert_eq!((tally.asked, tally.asked_again), (2, 1));
    assert_eq!((tally.pure_repeats, tally.keyed_repeats), (1, 1));
    assert_eq!(tally.once_calls, 1);
    let doubt = &tally.in_doubt[0];
    assert_eq!(
        (doubt.call.to_string().as_str(), doubt.happened),
        ("t1.3", Some(true))
    );
    assert_eq!(
        (tally.in_doubt.len(), doubt.settled.as_str()),
        (1, "complete")
    );
}

#[test]
fn a_recorded_result_that_ran_again_is_seen() {
    // In the journal: a start, a second result, a turn asked or answered again.
    for fact in [
        started(4, "t1.1"),
        done(4, "t1.1"),
        asked(4, 1, 3),
        replied(4, 1, THREE),
    ] {
        only(Rule::RanAgain, &judged(&with(16, fact), &world()));
    }
    // In the world only: a driver that was long gone went on.
    let mut facts = honest();
    facts[13] = done(2, "t1.1");
    facts.swap(8, 13);
    facts.retain(|fact| *fact != started(3, "t1.1"));
    only(Rule::RanAgain, &{
        let mut tally = judged(&facts, &world());
        // The same deed also stands under no start, which is a rule of its own.
        tally
            .offences
            .retain(|offence| offence.rule != Rule::Unaccounted);
        tally
    });
}

#[test]
fn a_once_effect_that_happened_twice_is_seen() {
    let mut lines = world();
    lines.push(seen("witness_send", "t1.3", 2));
    let mut tally = judged(&honest(), &lines);
    tally
        .offences
        .retain(|offence| offence.rule != Rule::Unaccounted);
    only(Rule::OnceTwice, &tally);
    // A journal that shows the second start is enough, without any witness.
    let twice = with(9, started(3, "t1.3"));
    only(Rule::OnceTwice, &judged(&twice, &[]));
    // A person who says that it may begin anew takes that upon themselves.
    let mut anew = with(16, started(4, "t1.3"));
    anew[15] = answered(3, "approve");
    let mut lines = world();
    lines.push(seen("witness_send", "t1.3", 4));
    assert!(judged(&anew, &lines).holds());
}

#[test]
fn a_once_call_that_was_let_go_of_silently_is_seen() {
    let kinds = ["tool.in_doubt", "gate.raised", "gate.answered"];
    // A later driver gave it a result, and nobody was told.
    only(Rule::LostSilently, &judged(&without(&kinds), &world()));
    // It has no result at all: known from the world, or from the journal alone.
    let mut facts = without(&kinds);
    facts.retain(|fact| *fact != done(4, "t1.3"));
    only(Rule::LostSilently, &judged(&facts, &world()));
    only(Rule::LostSilently, &judged(&facts, &[]));
}

#[test]
fn a_deed_without_a_start_is_seen() {
    // Before its start was on disk.
    let mut lines = world();
    lines[2] = seen("witness_send", "t1.3", 1);
    only(Rule::Unaccounted, &judged(&honest(), &lines));
    // More often than it was started.
    let mut lines = world();
    lines.push(seen("witness_put", "t1.2", 3));
    only(Rule::Unaccounted, &judged(&honest(), &lines));
    // For a call that nobody asked for, under another key, for no run of ours.
    let mut lines = world();
    lines.push(seen("witness_put", "t9.1", 3));
    only(Rule::Unaccounted, &judged(&honest(), &lines));
    let mut lines = world();
    lines[1].key = "another".to_owned();
    only(Rule::Unaccounted, &judged(&honest(), &lines));
    let mut lines = world();
    lines.push(Line {
        run: OTHER.parse().unwrap(),
        ..seen("witness_put", "t1.2", 3)
    });
    assert_eq!(judged(&honest(), &lines).broken(Rule::Unaccounted), 1);
}

#[test]
fn two_model_calls_lost_by_one_kill_are_seen() {
    let twice = with(3, lost(2, 1, 1));
    only(Rule::AskedTooOften, &judged(&twice, &world()));
}

#[test]
fn a_journal_out_of_order_is_seen() {
    let gap: Vec<Entry> = (1..)
        .zip(&honest())
        .map(|(seq, fact)| entry(seq + usize::from(seq > 9), fact))
        .collect();
    only(Rule::BrokenJournal, &judge(&[(run(), gap)], &world()));
    let mut falls = honest();
    falls[8].0 = 1;
    only(Rule::BrokenJournal, &judged(&falls, &world()));
    let mut after = honest();
    after.push((4, "run.recovered", json!({ "from": 3 })));
    only(Rule::BrokenJournal, &judged(&after, &world()));
    // A submit that was acknowledged and is gone.
    only(Rule::BrokenJournal, &judge(&[(run(), Vec::new())], &[]));
}

#[test]
fn a_run_that_did_not_complete_is_not_acquitted() {
    let mut open = honest();
    open.pop();
    let tally = judged(&open, &world());
    assert!(tally.offences.is_empty(), "{tally:#?}");
    assert_eq!(
        (tally.holds(), tally.other.as_slice()),
        (false, [run()].as_slice())
    );
    let mut failed = honest();
    let fault = json!({ "fault": { "code": "x", "message": "x", "hint": "" } });
    failed[17] = (4, "run.failed", fault);
    let tally = judged(&failed, &world());
    assert_eq!(
        (tally.holds(), tally.failed.as_slice()),
        (false, [run()].as_slice())
    );
}
