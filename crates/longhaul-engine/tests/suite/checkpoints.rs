//! Tests of checkpoints: a long run is recovered from the start of its compacted conversation and viewed
//! from its last checkpoint, and without checkpoints in the same way from its whole journal.

use std::sync::atomic::Ordering;

use futures_util::FutureExt as _;
use longhaul_core::event::tool::ToolOutput;
use longhaul_core::id::Seq;
use longhaul_core::policy::effect::EffectClass;
use longhaul_core::policy::gate::GateDecision;
use longhaul_core::port::records::RecordStore as _;
use longhaul_run::Run;
use longhaul_run::checkpoint::restore_conversation_start;
use longhaul_run::state::FOLD_HASH;
use serde_json::json;

use crate::suite::harness::model::FakeReply;
use crate::suite::harness::tool::{EffectLog, FakeTool};
use crate::suite::harness::{answer, count, engine_with, outcome_text};

/// Number of turns before the run waits for a person.
const TURNS: usize = 64;

/// A tool whose results fill a window of 10,000 tokens after some turns.
fn long_tool() -> FakeTool {
    FakeTool::new("look", EffectClass::Pure, &EffectLog::default()).with_action(|input, _| {
        let text = format!("{} {}", input["count"], "word ".repeat(600));
        async move { Ok(ToolOutput::text(text)) }.boxed()
    })
}

#[tokio::test]
async fn a_long_run_is_recovered_from_the_start_of_its_conversation() {
    let mut texts = Vec::new();
    for hides_checkpoints in [false, true] {
        let calls = (0..TURNS).map(|count| FakeReply::call("look", json!({ "count": count })));
        let question = FakeReply::call("ask_human", json!({ "question": "Which way?" }));
        let engine = engine_with(calls.chain([question]))
            .window_tokens(10_000)
            .compactor([])
            .tools([long_tool()])
            .start();
        engine.store.hides_checkpoints.store(hides_checkpoints, Ordering::SeqCst);
        let run = engine.submit().await;
        let gate = engine.gate(run).await;
        let journal = engine.until(run, "gate.raised").await;
        assert!(count(&journal, "memory.compacted") > 3);
        let checkpoint = engine.store.newest_checkpoint(run, FOLD_HASH).await.unwrap();
        let reads = || std::mem::take(&mut *engine.store.journal_reads.lock().unwrap());
        reads();
        let view = engine.longhaul.get_run(run).await.unwrap();
        assert_eq!((view.turns, view.tools_called.len()), (TURNS as u32 + 1, TURNS + 1));
        let view_reads = reads();
        let gate_answer = answer(&gate, GateDecision::Answer("left".into()));
        engine.longhaul.answer_gate(gate.spec.id, gate_answer).await.unwrap();
        let final_journal = engine.ended(run).await;
        let driver_reads = reads();
        assert_eq!(outcome_text(&final_journal), "done");
        texts.push(format!("{:?}", engine.model.requests().last().unwrap().messages));
        assert_eq!(
            engine.longhaul.replay_run(run).await.unwrap(),
            Run::replay(&final_journal).unwrap()
        );
        if hides_checkpoints {
            assert_eq!((checkpoint, view_reads), (None, vec![Seq::START]));
            continue;
        }
        let checkpoint = checkpoint.expect("a checkpoint every 10 turns");
        let last = journal.last().unwrap().seq;
        assert!(checkpoint.seq.0 + 50 > last.0, "{} of {last}", checkpoint.seq);
        assert_eq!(view_reads, [checkpoint.seq]);
        let start = restore_conversation_start(run, &checkpoint).expect("it was compacted");
        assert!(start.control().turns as usize >= TURNS - 30, "{}", start.control().turns);
        assert!(driver_reads.contains(&start.seq()), "{driver_reads:?}");
    }
    assert_eq!(texts[0], texts[1], "the model sees the same conversation");
}
