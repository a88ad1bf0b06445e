//! Checkpoints of a run: the state that is restored from one is the state that the whole journal gives.

use longhaul_core::event::entry::JournalEntry;
use longhaul_core::id::Seq;
use longhaul_run::Run;
use longhaul_run::checkpoint::{
    CheckpointWriter, TURNS_PER_CHECKPOINT, restore_conversation_start, restore_latest_state,
};
use longhaul_run::explain::explain_run_state;
use longhaul_run::next::{EngineStep, next_engine_step};
use proptest::prelude::*;

use super::generators::{policies, script_lines};
use super::harness::TestRun;
use super::harness::script::check;
use super::policies::plain;

/// Writes a checkpoint after each turn, and checks what is restored from it. Every second one is restored
/// by a new driver, which writes the next ones. Returns the number of checkpoints from which a driver
/// continues without the start of the journal, and the number of all checkpoints.
fn check_checkpoints(entries: &[JournalEntry]) -> (usize, usize) {
    let replayed = Run::replay(entries).unwrap();
    let mut run = Run::from_first_entry(&entries[0]).unwrap();
    let mut writer = CheckpointWriter::new(None, Seq::START).with_turns_per_checkpoint(1);
    let (mut restorable, mut total) = (0, 0);
    for entry in &entries[1..] {
        run.apply(entry).unwrap();
        writer.keep_state_if_due(&run);
        let Some(checkpoint) = writer.unsaved_checkpoint(&run) else {
            continue;
        };
        writer.mark_newest_checkpoint_saved();
        assert_eq!(writer.unsaved_checkpoint(&run), None);
        total += 1;
        let mut without_messages = restore_latest_state(run.id(), &checkpoint).unwrap();
        for entry in &entries[checkpoint.seq.0 as usize..] {
            without_messages.apply_without_transcript(entry).unwrap();
        }
        assert_eq!(explain_run_state(&without_messages), explain_run_state(&replayed));
        assert_eq!(
            (without_messages.status(), without_messages.seq()),
            (replayed.status(), replayed.seq())
        );
        assert_eq!(without_messages.outcome(), replayed.outcome());
        assert_eq!(without_messages.tools_called(), replayed.tools_called());
        let Some(start) = restore_conversation_start(run.id(), &checkpoint) else {
            continue;
        };
        restorable += 1;
        let mut next_writer =
            CheckpointWriter::new(Some(&start), checkpoint.seq).with_turns_per_checkpoint(1);
        let mut restored = start;
        for entry in &entries[restored.seq().0 as usize..entry.seq.0 as usize] {
            restored.apply(entry).unwrap();
            next_writer.keep_state_if_due(&restored);
        }
        assert_eq!(restored, run, "a checkpoint at {}", checkpoint.seq);
        if restorable % 2 == 0 {
            (run, writer) = (restored, next_writer);
        }
    }
    (restorable, total)
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_checkpoint_restores_the_same_run(policy in policies(), script in script_lines(80)) {
        let mut test_run = TestRun::new(policy);
        for line in script {
            test_run.play(&line);
        }
        check_checkpoints(&test_run.entries);
    }
}

#[test]
fn a_driver_continues_from_the_start_of_the_compacted_conversation() {
    let mut test_run = TestRun::new(plain());
    test_run.play("claim");
    test_run.play("peer 10000");
    for turn in 1..=60 {
        test_run.play("call read/pure");
        test_run.play(&format!("pour t{turn}.1 4000"));
        if matches!(next_engine_step(&test_run.run, test_run.now), EngineStep::Compact(_)) {
            // The newest turn is kept.
            let replaced = test_run.run.transcript().messages().len() - 2;
            test_run.play(&format!("sum {replaced}"));
        }
    }
    test_run.play("say Done.");
    assert_eq!(test_run.run.status().as_str(), "completed");
    let kinds = test_run.entries.iter().map(|entry| entry.event.kind());
    assert!(kinds.filter(|kind| *kind == "memory.compacted").count() > 5);
    let (restorable, total) = check_checkpoints(&test_run.entries);
    assert_eq!(total, 60);
    assert!(restorable > 50, "{restorable} of {total}");
    // With the usual interval, a driver reads the events of at most some 30 turns.
    let mut run = Run::from_first_entry(&test_run.entries[0]).unwrap();
    let mut writer = CheckpointWriter::new(None, Seq::START);
    for entry in &test_run.entries[1..] {
        run.apply(entry).unwrap();
        writer.keep_state_if_due(&run);
    }
    let checkpoint = writer.unsaved_checkpoint(&run).unwrap();
    assert_eq!(restore_latest_state(run.id(), &checkpoint).unwrap().control().turns, 60);
    let start = restore_conversation_start(run.id(), &checkpoint).unwrap();
    assert_eq!(start.control().turns, 60 - TURNS_PER_CHECKPOINT);
    assert!(checkpoint.state.len() < 8_000, "{} bytes", checkpoint.state.len());
}

#[test]
fn an_unusable_checkpoint_is_not_restored() {
    let script = "claim => run.claimed | running\npeer 10000 => run.prepared turn.started\n\
        call read/pure => turn.completed tool.started(t1.1)\ndone t1.1 x => tool.completed(t1.1) turn.started";
    let run = check(plain(), script).run;
    let mut writer = CheckpointWriter::new(None, Seq::START).with_turns_per_checkpoint(1);
    writer.keep_state_if_due(&run);
    let usable = writer.unsaved_checkpoint(&run).unwrap();
    assert!(restore_latest_state(run.id(), &usable).is_some());
    let text = String::from_utf8(usable.state.clone()).unwrap();
    let mut unusable: Vec<_> = [
        "",
        "[]",
        "{}",
        &text[..text.len() / 2],
        &text.replace(r#""tool_calls":[[0,1]]"#, r#""tool_calls":[[1,1]]"#),
        &text.replace(r#""tool_calls":[[0,1]]"#, r#""tool_calls":[[0,0]]"#),
        &text.replace(r#""tool_calls":[[0,1]]"#, r#""tool_calls":[]"#),
        &text.replace(r#""tool_names":["read"]"#, r#""tool_names":[]"#),
    ]
    .map(|state| {
        assert_ne!(state, text);
        let mut broken = usable.clone();
        broken.state = state.into();
        broken
    })
    .into();
    let mut later = usable.clone();
    later.seq = later.seq.next();
    unusable.push(later);
    for broken in unusable {
        assert_eq!(restore_latest_state(run.id(), &broken), None, "{broken:?}");
        assert_eq!(restore_conversation_start(run.id(), &broken), None);
    }
    assert_eq!(restore_latest_state(longhaul_core::id::RunId::from_bits(7), &usable), None);
}
