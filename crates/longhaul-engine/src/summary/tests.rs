//! What a summary keeps, and where a conversation may be cut.
//!
//! Never: part of a build that ships.

use longhaul_core::id::{CallId, RunId};
use longhaul_core::message::{TextBlock, ToolCall};
use longhaul_core::raw::RawJson;
use longhaul_run::next::check_conversation;
use serde_json::json;

use super::*;

fn text_block(text: &str) -> Block {
    Block::Text(TextBlock { text: text.into(), extra: None })
}

fn assistant_message(blocks: Vec<Block>) -> Arc<Message> {
    Arc::new(Message::Assistant(Arc::new(Reply { api: "scripted".into(), blocks })))
}

fn user_message(text: &str) -> Arc<Message> {
    Arc::new(Message::user(text))
}

/// One call and what came of it.
fn turn(number: u32, (name, input): (&str, serde_json::Value), came: &str) -> [Arc<Message>; 2] {
    let call = ToolCall {
        id: "c".into(),
        name: name.into(),
        input: RawJson::from_serialize(&input),
        extra: None,
    };
    let result = ToolResult {
        call: CallId { turn: number, index: 1 },
        id: "c".into(),
        content: vec![Part::Text(came.into())],
        is_error: false,
    };
    [assistant_message(vec![Block::ToolCall(call)]), Arc::new(Message::Results(vec![result]))]
}

/// A conversation about something, and what was said after the newest turn.
fn conversation() -> Vec<Arc<Message>> {
    let read = |path: &str| ("read_file", json!({ "path": path }));
    let mut talk = vec![user_message("Mend the build of /srv/app. Never touch `deploy.sh`.")];
    talk.extend(turn(1, read("src/main.rs"), "fn main() {} // see ISSUE-77"));
    talk.push(user_message("Also: the port must stay 4180."));
    let ask = ("ask_human", json!({ "question": "Which branch?" }));
    talk.extend(turn(2, ask, "release/2.4, and no other"));
    talk.push(user_message("[longhaul] Little is left of the budget of money."));
    for number in 3..8 {
        talk.extend(turn(number, read("src/lib.rs"), "pub mod a;"));
    }
    talk
}

fn split(messages: &[Arc<Message>]) -> SummarySplit<'_> {
    let (dropped, kept) = messages.split_at(summarized_count(messages));
    SummarySplit {
        task: messages.first().map(|message| &**message),
        summarized: dropped,
        kept_messages: kept,
    }
}

fn parts_of(message: &Message) -> Vec<String> {
    match message {
        Message::User(parts) => part_texts(parts).map(str::to_owned).collect(),
        other @ (Message::Assistant(_) | Message::Results(_)) => {
            panic!("a summary is the user's, not {other:?}")
        }
    }
}

#[test]
fn a_summary_keeps_messages_of_people_verbatim_and_adds_lost_identifiers() {
    let talk = conversation();
    let made = build_summary(split(&talk), "Read the code; found the issue.").unwrap();
    let [goal, said, told, lost] = &parts_of(&made)[..] else {
        panic!("{made:?}");
    };
    assert_eq!(goal, "Mend the build of /srv/app. Never touch `deploy.sh`.");
    assert_eq!(
        said,
        "[longhaul] What people said on the way, word for word:\n\n\
         - Also: the port must stay 4180.\n\
         - asked \"Which branch?\": release/2.4, and no other"
    );
    assert!(told.ends_with("Read the code; found the issue."), "{told}");
    // What stands in the other parts or in what is kept is not said again.
    assert_eq!(lost, "[longhaul] Also mentioned, word for word:\n\n- src/main.rs\n- ISSUE-77");
    assert_eq!(super::summary_text(&[made]), "Read the code; found the issue.");
}

#[test]
fn identifiers_in_the_summary_are_not_added_again() {
    let talk = conversation();
    let made = build_summary(split(&talk), "src/main.rs has ISSUE-77.").unwrap();
    assert_eq!(parts_of(&made).len(), 3);
}

#[test]
fn a_second_summary_keeps_what_the_first_one_kept() {
    let talk = conversation();
    let first = split(&talk);
    let made = build_summary(first, "First, src/main.rs was read.").unwrap();
    let mut next = vec![Arc::new(made)];
    next.extend(first.kept_messages.iter().cloned());
    next.push(user_message("Stop at noon."));
    for number in 8..14 {
        next.extend(turn(number, ("list", json!({})), "ok"));
    }
    let second = SummarySplit { task: first.task, ..split(&next) };
    let made = build_summary(second, "Then all was listed.").unwrap();
    let parts = parts_of(&made);
    assert_eq!(parts[0], parts_of(&talk[0])[0]);
    let said = &parts[1];
    assert!(said.contains("- Also: the port must stay 4180."), "{said}");
    assert!(said.ends_with("- Stop at noon."), "{said}");
    assert_eq!(said.matches("word for word").count(), 1);
    assert!(parts[2].ends_with("Then all was listed."));
    assert!(parts[3].contains("- src/main.rs"), "{}", parts[3]);
    assert!(parts[3].contains("- ISSUE-77"), "{}", parts[3]);
    assert_eq!(parts.len(), 4, "an old summary is in the new one: {parts:?}");
}

#[test]
fn the_task_is_found_after_the_thread_messages() {
    let mut talk =
        vec![user_message("Who are you?"), assistant_message(vec![text_block("An agent.")])];
    talk.push(user_message("Count the files."));
    for number in 1..6 {
        talk.extend(turn(number, ("list", json!({})), "ok"));
    }
    let asked = Message::user("Count the files.");
    let cut = SummarySplit { task: Some(&asked), ..split(&talk) };
    let parts = parts_of(&build_summary(cut, "Counted.").unwrap());
    assert_eq!(parts[0], "Count the files.");
    assert!(parts[1].ends_with("Counted."), "{parts:?}");
}

#[test]
fn a_summary_that_saves_nothing_is_discarded() {
    let talk = conversation();
    let check = |text: &str, why: &str| assert_eq!(build_summary(split(&talk), text), Err(why));
    check("", "the summary is empty");
    check(" \n", "the summary is empty");
    let long = "word ".repeat(2_000);
    check(&long, "the summary is longer than what it stands for");
}

#[test]
fn added_identifiers_are_limited_to_the_newest() {
    let mut talk = vec![user_message("Do it.")];
    for number in 1..200 {
        let input = json!({ "path": format!("src/file_{number}.rs") });
        let came = format!("row_{number} ").repeat(100);
        talk.extend(turn(number, ("read_file", input), &came));
        talk.push(user_message(&format!("Rule {number}: {}", "x".repeat(500))));
    }
    let made = build_summary(split(&talk), "Read.").unwrap();
    let parts = parts_of(&made);
    let [_, said, _, lost] = &parts[..] else {
        panic!("{}", parts.len());
    };
    assert!(said.len() <= USER_TEXT_BYTES_MAX + 100, "{}", said.len());
    assert!(said.contains("Rule 197:") && !said.contains("Rule 9:"));
    assert!(lost.len() <= IDENTIFIERS_BYTES_MAX + 100, "{}", lost.len());
    assert!(lost.contains("src/file_190.rs") && !lost.contains("src/file_2.rs"));
}

#[test]
fn long_results_are_truncated_in_their_middle_for_the_summary() {
    let mut talk = vec![user_message("Do it.")];
    let long = format!("first {} last", "é".repeat(20_000));
    for number in 1..6 {
        talk.extend(turn(number, ("list", json!({})), &long));
    }
    let ask = ModelRequest {
        run: RunId::from_bits(1),
        turn: 6,
        attempt: 1,
        model: "scripted/x".into(),
        system: StoredText::inline("s"),
        tools: StoredText::inline("[1]"),
        messages: Arc::new(talk),
        max_tokens: 1,
    };
    let asked = summary_request(ask);
    assert_eq!(asked.tools, StoredText::inline("[]"));
    check_conversation(&asked.messages).unwrap();
    let Message::Results(results) = &*asked.messages[2] else {
        panic!("{:?}", asked.messages[2]);
    };
    let text = part_texts(&results[0].content).next().unwrap();
    assert!(text.len() < RESULT_BYTES_MAX + 100, "{}", text.len());
    assert!(text.starts_with("first ") && text.ends_with(" last"));
    assert!(text.contains("bytes are left out here"));
}

/// Numbers that look like chance and are the same every time.
fn next_random(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
    *seed >> 33
}

#[test]
fn compaction_never_separates_a_call_from_its_result() {
    for seed in 0..150_u64 {
        let mut dice = seed;
        let mut talk = vec![user_message("Do it.")];
        for number in 1..=(next_random(&mut dice) % 12) as u32 {
            let bytes = match next_random(&mut dice) % 4 {
                0 => 9_000,
                _ => 10,
            };
            match next_random(&mut dice) % 3 {
                0 => talk.push(user_message(&"u".repeat(bytes))),
                1 => talk.push(assistant_message(vec![text_block(&"m".repeat(bytes))])),
                _ => talk.extend(turn(number, ("act", json!({})), &"r".repeat(bytes))),
            }
        }
        let until = summarized_count(&talk);
        assert!((1..=talk.len()).contains(&until), "{seed}");
        check_conversation(&talk[..until]).unwrap();
        let mut after = vec![user_message("a summary")];
        after.extend(talk[until..].iter().cloned());
        check_conversation(&after).unwrap();
        if let Ok(made) = build_summary(split(&talk), "short") {
            after[0] = Arc::new(made);
            check_conversation(&after).unwrap();
        }
    }
}

#[test]
fn only_the_oldest_kept_messages_are_dropped() {
    let long = "word ".repeat(10_000);
    let mut talk = conversation();
    talk.splice(3..3, turn(90, ("list", json!({})), &long));
    for number in 0..50 {
        let rule = format!("Rule {number}:\nfirst\n\n{}", "x".repeat(580));
        talk.insert(3, user_message(&rule));
    }
    let made = build_summary(split(&talk), "Read.").unwrap();
    let kept = split(&talk).kept_messages.to_vec();
    let mut next = vec![Arc::new(made)];
    next.extend(kept);
    for number in 50..60 {
        next.push(user_message(&format!("Rule {number}: {}", "y".repeat(600))));
    }
    next.extend(turn(91, ("list", json!({})), &long));
    for number in 8..14 {
        next.extend(turn(number, ("list", json!({})), "ok"));
    }
    let made = build_summary(split(&next), "Then all was listed.").unwrap();
    let said = &parts_of(&made)[1];
    assert!(said.len() <= USER_TEXT_BYTES_MAX + 100, "{}", said.len());
    // The rules of before stand in the order in which they were said: 49 first.
    for (rule, stands) in [("49", false), ("45", false), ("30", true), ("0", true), ("59", true)] {
        let rule = format!("- Rule {rule}:");
        assert_eq!(said.contains(&rule), stands, "{rule}");
    }
    assert!(said.contains("- Rule 0:\nfirst\n\nxxx"), "whole, as it was said");
}

#[test]
fn a_message_may_quote_the_summary_marker() {
    let mut talk = conversation();
    talk.insert(3, user_message("[longhaul] is what your notes begin with: leave those out."));
    let made = build_summary(split(&talk), "Read.").unwrap();
    let said = &parts_of(&made)[1];
    assert!(said.contains("- [longhaul] is what your notes"), "{said}");
    assert!(!said.contains("Little is left"), "{said}");
}
