//! Long results: shown in part, kept whole, read on by the run that has them
//! and by no other.

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
use crate::suite::harness::{TestEngine, engine_with, outcome_text};
use longhaul_testkit::latch::Latch;

/// A hundred kilobytes, one line of it worth finding.
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

/// The results of each turn, as the model was shown them.
fn shown_results(house: &TestEngine) -> Vec<(String, bool)> {
    let asked = house.model.requests();
    asked.iter().skip(1).map(|ask| results(ask).remove(0)).collect()
}

#[tokio::test]
async fn a_long_result_is_truncated_and_can_be_read_in_pages() {
    let text = long();
    let grep = json!({ "call": "t1.1", "grep": "needle" });
    let house = engine_with([
        FakeReply::call("act", json!({})),
        page(12 * 1024),
        FakeReply::call("read_output", grep),
        page(text.len()),
        FakeReply::call("read_output", json!({ "call": "t9.9" })),
    ])
    .tools([tool_returning(text.clone())])
    .start();
    let run = house.submit().await;
    let journal = house.ended(run).await;
    assert_eq!(outcome_text(&journal), "done");
    let shown = shown_results(&house);
    assert!(shown[0].0.len() < 17 * 1024 && shown[0].0.contains("read_output"));
    assert!(shown[0].0.starts_with(&text[..1_000]) && shown[0].0.ends_with(&text[99_900..]));
    assert!(shown[1].0.starts_with(&text[12 * 1024..20_000]), "{}", shown[1].0);
    assert!(shown[2].0.contains("the needle") && shown[2].0.contains("1 lines hold"));
    let end = format!("the result has {} bytes", text.len());
    assert!(shown[3].0.contains(&end), "{}", shown[3].0);
    assert!(shown[4].1 && shown[4].0.contains("no result of a call t9.9"), "{}", shown[4].0);
}

#[tokio::test]
async fn read_output_does_not_read_results_of_other_runs() {
    let house = engine_with([FakeReply::call("act", json!({})), page(0)])
        .tools([tool_returning(long())])
        .start();
    let run = house.submit().await;
    house.ended(run).await;
    // The second run has made no call t1.1 yet when it asks for one.
    house.model.set_replies(vec![page(0)]);
    let other = house.submit().await;
    house.ended(other).await;
    let (text, is_error) = house.results().remove(0);
    assert!(is_error && text.contains("no result of a call t1.1"), "{text}");
}

#[tokio::test]
async fn the_output_of_verify_is_truncated_too() {
    let never = Latch::new();
    let hand = FakeTool::new("act", Once, &EffectLog::default())
        .after_latch(&never)
        .with_timeout(Millis(20))
        .with_verify_outcome(VerifyOutcome::Happened(ToolOutput::text(long())));
    let house =
        engine_with([FakeReply::call("act", json!({})), page(50_000)]).tools([hand]).start();
    let run = house.submit().await;
    let journal = house.ended(run).await;
    let shown = shown_results(&house);
    assert!(shown[0].0.len() < 17 * 1024, "{} bytes", shown[0].0.len());
    assert!(shown[1].0.starts_with("the needle"), "{}", shown[1].0);
    let kept = journal.iter().any(|entry| {
        matches!(&entry.event, Event::ToolVerified(seen)
            if matches!(&seen.outcome, VerifyOutcome::Happened(output) if output.full.is_some()))
    });
    assert!(kept, "the journal names the whole of it");
}

/// A picture of 1 x 1, as far as anybody looks.
const GIF: &[u8] = b"GIF89a\x01\0\x01\0\0\0\0;";

/// A tool that shows one picture, names another that it never put up, and puts up a
/// third that it does not name.
fn image_tool() -> FakeTool {
    FakeTool::new("act", Pure, &EffectLog::default()).with_action(|_, around| {
        async move {
            let shown = around.images.add(GIF.to_vec()).unwrap();
            let unsaid = [GIF, b"unsaid;"].concat();
            around.images.add(unsaid).unwrap();
            let never = ImageRef { blob: BlobRef::for_content(b"never"), ..shown.clone() };
            let content = [Part::Image(shown), Part::Image(never)];
            Ok(ToolOutput { content: content.into(), full: None })
        }
        .boxed()
    })
}

#[tokio::test]
async fn an_image_is_stored_with_its_result() {
    let house = engine_with([FakeReply::call("act", json!({}))]).tools([image_tool()]).start();
    let run = house.submit().await;
    let journal = house.until(run, "tool.completed").await;
    let Event::ToolCompleted(ended) = &journal.last().unwrap().event else {
        panic!("no result");
    };
    let image = ImageRef { media_type: "image/gif".into(), blob: BlobRef::for_content(GIF) };
    let words = "(a picture that was not handed over)".into();
    let content = vec![Part::Image(image), Part::Text(words)];
    assert_eq!(ended.output.content, content);
    // Whoever reads of it finds it: both are of one commit.
    let hash = |bytes: &[u8]| BlobRef::for_content(bytes).hash;
    let kept = house.store.blob(hash(GIF)).await.unwrap();
    assert_eq!(kept.as_deref(), Some(GIF));
    let unsaid = house.store.blob(hash(&[GIF, b"unsaid;"].concat())).await;
    assert_eq!(unsaid.unwrap(), None);
    house.ended(run).await;
    let asked = house.model.requests();
    let seen = asked.last().unwrap().messages.iter().any(
        |message| matches!(&**message, Message::Results(results) if results[0].content == content),
    );
    assert!(seen, "{asked:#?}");
}
