//! Tests of long results: truncated for the model, stored in full, and readable only by their own
//! run.

use futures_util::FutureExt as _;
use longhaul_core::event::Event;
use longhaul_core::event::tool::{ToolOutput, VerifyOutcome};
use longhaul_core::message::{ImageRef, Message, Part};
use longhaul_core::policy::effect::EffectClass::{Once, Pure};
use longhaul_core::port::records::RecordStore as _;
use longhaul_core::raw::BlobRef;
use longhaul_core::time::Millis;
use serde_json::json;

use crate::suite::harness::model::{FakeReply, results};
use crate::suite::harness::tool::{EffectLog, FakeTool};
use crate::suite::harness::{SECRET, TestEngine, engine_with, outcome_text};
use longhaul_testkit::latch::Latch;

/// A text of a hundred kilobytes with one line to search for.
fn long() -> String {
    let mut text: String = (0..10_000).map(|n| format!("line {n:04}\n")).collect();
    text.insert_str(50_000, "the needle\n");
    text
}

fn tool_returning(text: String) -> FakeTool {
    FakeTool::new("act", Pure, &EffectLog::default()).with_action(move |_, _| {
        let text = text.clone();
        async move { Ok(ToolOutput::text(text)) }.boxed()
    })
}

fn page(offset: usize) -> FakeReply {
    FakeReply::call("read_output", json!({ "call": "t1.1", "offset": offset }))
}

/// Returns the tool results of each turn as the model saw them.
fn shown_results(engine: &TestEngine) -> Vec<(String, bool)> {
    let requests = engine.model.requests();
    requests.iter().skip(1).map(|request| results(request).remove(0)).collect()
}

#[tokio::test]
async fn a_long_result_is_truncated_and_can_be_read_in_pages() {
    let text = long();
    let grep = json!({ "call": "t1.1", "grep": "needle" });
    let engine = engine_with([
        FakeReply::call("act", json!({})),
        page(12 * 1024),
        FakeReply::call("read_output", grep),
        page(text.len()),
        FakeReply::call("read_output", json!({ "call": "t9.9" })),
    ])
    .tools([tool_returning(text.clone())])
    .start();
    let run = engine.submit().await;
    let journal = engine.ended(run).await;
    assert_eq!(outcome_text(&journal), "done");
    let visible = shown_results(&engine);
    assert!(visible[0].0.len() < 17 * 1024 && visible[0].0.contains("read_output"));
    assert!(visible[0].0.starts_with(&text[..1_000]) && visible[0].0.ends_with(&text[99_900..]));
    assert!(visible[1].0.starts_with(&text[12 * 1024..20_000]), "{}", visible[1].0);
    assert!(visible[2].0.contains("the needle") && visible[2].0.contains("1 line contains"));
    let end = format!("the result has {} bytes", text.len());
    assert!(visible[3].0.contains(&end), "{}", visible[3].0);
    assert!(
        visible[4].1 && visible[4].0.contains("the call t9.9 has no result"),
        "{}",
        visible[4].0
    );
}

#[tokio::test]
async fn read_output_does_not_read_results_of_other_runs() {
    let engine = engine_with([FakeReply::call("act", json!({})), page(0)])
        .tools([tool_returning(long())])
        .start();
    let run = engine.submit().await;
    engine.ended(run).await;
    // The second run has no call t1.1 yet when it requests its result.
    engine.model.set_replies(vec![page(0)]);
    let other = engine.submit().await;
    engine.ended(other).await;
    let (text, is_error) = engine.results().remove(0);
    assert!(is_error && text.contains("the call t1.1 has no result"), "{text}");
}

#[tokio::test]
async fn the_output_of_verify_is_truncated_too() {
    let latch = Latch::closed();
    let tool = FakeTool::new("act", Once, &EffectLog::default())
        .after_latch(&latch)
        .with_timeout(Millis(20))
        .with_verify_outcome(VerifyOutcome::Happened(ToolOutput::text(long())));
    let engine =
        engine_with([FakeReply::call("act", json!({})), page(50_000)]).tools([tool]).start();
    let run = engine.submit().await;
    let journal = engine.ended(run).await;
    let visible = shown_results(&engine);
    assert!(visible[0].0.len() < 17 * 1024, "{} bytes", visible[0].0.len());
    assert!(visible[1].0.starts_with("the needle"), "{}", visible[1].0);
    let is_stored = journal.iter().any(|entry| {
        matches!(&entry.event, Event::ToolVerified(verified)
            if matches!(&verified.outcome, VerifyOutcome::Happened(output) if output.full.is_some()))
    });
    assert!(is_stored, "the event refers to the full output");
}

/// An image of 1 x 1 pixels.
const GIF: &[u8] = b"GIF89a\x01\0\x01\0\0\0\0;";

/// A tool that attaches an image and refers to it, refers to another one that it did not attach,
/// and attaches a third one without referring to it.
fn image_tool() -> FakeTool {
    FakeTool::new("act", Pure, &EffectLog::default()).with_action(|_, ctx| {
        async move {
            let attached = ctx.images.add(GIF.to_vec()).unwrap();
            let unattached = [GIF, b"unsaid;"].concat();
            ctx.images.add(unattached).unwrap();
            let missing = ImageRef { blob: BlobRef::for_content(b"never"), ..attached.clone() };
            let content = [Part::Image(attached), Part::Image(missing)];
            Ok(ToolOutput { content: content.into(), ..ToolOutput::default() })
        }
        .boxed()
    })
}

#[tokio::test]
async fn an_image_is_stored_with_its_result() {
    let engine = engine_with([FakeReply::call("act", json!({}))]).tools([image_tool()]).start();
    let run = engine.submit().await;
    let journal = engine.until(run, "tool.completed").await;
    let Event::ToolCompleted(ended) = &journal.last().unwrap().event else {
        panic!("no result");
    };
    let image = ImageRef { media_type: "image/gif".into(), blob: BlobRef::for_content(GIF) };
    let placeholder = "(an image that was not attached)".into();
    let content = vec![Part::Image(image), Part::Text(placeholder)];
    assert_eq!(ended.output.content, content);
    // The image is stored in the same commit as the event that refers to it.
    let hash = |bytes: &[u8]| BlobRef::for_content(bytes).hash;
    let stored = engine.store.blob(hash(GIF)).await.unwrap();
    assert_eq!(stored.as_deref(), Some(GIF));
    let unattached = engine.store.blob(hash(&[GIF, b"unsaid;"].concat())).await;
    assert_eq!(unattached.unwrap(), None);
    engine.ended(run).await;
    let requests = engine.model.requests();
    let is_sent = requests.last().unwrap().messages.iter().any(
        |message| matches!(&**message, Message::Results(results) if results[0].content == content),
    );
    assert!(is_sent, "{requests:#?}");
}

#[tokio::test]
async fn artifacts_of_calls_become_artifacts_of_the_run() {
    let tool = FakeTool::new("act", Pure, &EffectLog::default()).with_action(|_, _| {
        async move {
            let secret = format!("https://host/{SECRET}");
            Ok(ToolOutput::text("wrote it")
                .with_artifact(&json!({ "path": "a.txt" }))
                .with_artifact(&secret)
                .with_artifact(&"x".repeat(70_000)))
        }
        .boxed()
    });
    let calls = || FakeReply::call("act", json!({}));
    let engine = engine_with([calls(), calls()]).tools([tool]).start();
    let run = engine.submit().await;
    engine.ended(run).await;
    let output = engine.longhaul.get_run(run).await.unwrap().output.unwrap();
    let artifacts: Vec<&str> = output.artifacts.iter().map(|artifact| artifact.as_str()).collect();
    let each = [r#"{"path":"a.txt"}"#, r#""https://host/{{secret:WORD}}""#];
    assert_eq!(artifacts, [each, each].concat());
    let (shown, is_error) = &shown_results(&engine)[0];
    assert!(shown.contains("Artifacts that were left out: 1.") && !is_error, "{shown}");
}
