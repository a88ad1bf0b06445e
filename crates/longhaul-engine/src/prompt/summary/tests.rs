//! Tests of summaries: what a summary keeps, and where a conversation may be split.

use longhaul_core::id::{CallId, RunId};
use longhaul_core::message::{TextBlock, ToolCall};
use longhaul_core::raw::RawJson;
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

/// Returns two messages: a reply with one call, and the result of the call.
fn call_and_result_messages(
    number: u32,
    (name, input): (&str, serde_json::Value),
    result_text: &str,
) -> [Arc<Message>; 2] {
    let call = ToolCall {
        id: "c".into(),
        name: name.into(),
        input: RawJson::from_serialize(&input),
        extra: None,
    };
    let result = ToolResult {
        call: CallId { turn: number, index: 1 },
        id: "c".into(),
        content: vec![Part::Text(result_text.into())],
        is_error: false,
    };
    [assistant_message(vec![Block::ToolCall(call)]), Arc::new(Message::Results(vec![result]))]
}

/// Returns a conversation of several turns with messages of a person in between.
fn sample_conversation() -> Vec<Arc<Message>> {
    let read = |path: &str| ("read_file", json!({ "path": path }));
    let mut messages = vec![user_message("Test the build of /srv/app. Never touch `deploy.sh`.")];
    messages.extend(call_and_result_messages(
        1,
        read("src/main.rs"),
        "fn main() {} // see ISSUE-77",
    ));
    messages.push(user_message("Also: the port must stay 4180."));
    let question = ("ask_human", json!({ "question": "Which branch?" }));
    messages.extend(call_and_result_messages(2, question, "release/2.4, and no other"));
    messages.push(user_message("[longhaul] Little is left of the budget of money."));
    for number in 3..8 {
        messages.extend(call_and_result_messages(number, read("src/lib.rs"), "pub mod a;"));
    }
    messages
}

fn split_conversation(messages: &[Arc<Message>]) -> ConversationSplit<'_> {
    let (dropped, kept) = messages.split_at(messages_to_summarize(messages));
    ConversationSplit {
        task: messages.first().map(|message| &**message),
        summarized: dropped,
        kept_messages: kept,
    }
}

fn message_part_texts(message: &Message) -> Vec<String> {
    match message {
        Message::User(parts) => part_texts(parts).map(str::to_owned).collect(),
        other @ (Message::Assistant(_) | Message::Results(_)) => {
            panic!("a summary is the user's, not {other:?}")
        }
    }
}

#[test]
fn a_summary_keeps_messages_of_people_verbatim_and_adds_lost_identifiers() {
    let messages = sample_conversation();
    let message =
        summarize(split_conversation(&messages), "Read the code; found the issue.").unwrap();
    let [goal, user_text, summary, identifiers] = &message_part_texts(&message)[..] else {
        panic!("{message:?}");
    };
    assert_eq!(goal, "Test the build of /srv/app. Never touch `deploy.sh`.");
    assert_eq!(
        user_text,
        "[longhaul] What people said on the way, word for word:\n\n\
         - Also: the port must stay 4180.\n\
         - asked \"Which branch?\": release/2.4, and no other"
    );
    assert!(summary.ends_with("Read the code; found the issue."), "{summary}");
    // Identifiers in the other parts or in the kept messages are not repeated.
    assert_eq!(
        identifiers,
        "[longhaul] Also mentioned, word for word:\n\n- src/main.rs\n- ISSUE-77"
    );
    assert_eq!(super::summary_text(&[message]), "Read the code; found the issue.");
}

#[test]
fn identifiers_in_the_summary_are_not_added_again() {
    let messages = sample_conversation();
    let message = summarize(split_conversation(&messages), "src/main.rs has ISSUE-77.").unwrap();
    assert_eq!(message_part_texts(&message).len(), 3);
}

#[test]
fn a_second_summary_keeps_what_the_first_one_kept() {
    let messages = sample_conversation();
    let first = split_conversation(&messages);
    let message = summarize(first, "First, src/main.rs was read.").unwrap();
    let mut next = vec![Arc::new(message)];
    next.extend(first.kept_messages.iter().cloned());
    next.push(user_message("Stop at noon."));
    for number in 8..14 {
        next.extend(call_and_result_messages(number, ("list", json!({})), "ok"));
    }
    let second = ConversationSplit { task: first.task, ..split_conversation(&next) };
    let message = summarize(second, "Then all was listed.").unwrap();
    let parts = message_part_texts(&message);
    assert_eq!(parts[0], message_part_texts(&messages[0])[0]);
    let user_text = &parts[1];
    assert!(user_text.contains("- Also: the port must stay 4180."), "{user_text}");
    assert!(user_text.ends_with("- Stop at noon."), "{user_text}");
    assert_eq!(user_text.matches("word for word").count(), 1);
    assert!(parts[2].ends_with("Then all was listed."));
    assert!(parts[3].contains("- src/main.rs"), "{}", parts[3]);
    assert!(parts[3].contains("- ISSUE-77"), "{}", parts[3]);
    assert_eq!(parts.len(), 4, "the old summary is repeated: {parts:?}");
}

#[test]
fn the_task_is_found_after_the_thread_messages() {
    let mut messages =
        vec![user_message("Who are you?"), assistant_message(vec![text_block("An agent.")])];
    messages.push(user_message("Count the files."));
    for number in 1..6 {
        messages.extend(call_and_result_messages(number, ("list", json!({})), "ok"));
    }
    let task = Message::user("Count the files.");
    let with_task = ConversationSplit { task: Some(&task), ..split_conversation(&messages) };
    let parts = message_part_texts(&summarize(with_task, "Counted.").unwrap());
    assert_eq!(parts[0], "Count the files.");
    assert!(parts[1].ends_with("Counted."), "{parts:?}");
}

#[test]
fn a_summary_that_saves_nothing_is_discarded() {
    let messages = sample_conversation();
    let check = |text: &str, reason: &str| {
        assert_eq!(summarize(split_conversation(&messages), text), Err(reason))
    };
    check("", "the summary is empty");
    check(" \n", "the summary is empty");
    let long = "word ".repeat(2_000);
    check(&long, "the summary is longer than what it replaces");
}

#[test]
fn added_identifiers_are_limited_to_the_newest() {
    let mut messages = vec![user_message("Do it.")];
    for number in 1..200 {
        let input = json!({ "path": format!("src/file_{number}.rs") });
        let result_text = format!("row_{number} ").repeat(100);
        messages.extend(call_and_result_messages(number, ("read_file", input), &result_text));
        messages.push(user_message(&format!("Rule {number}: {}", "x".repeat(500))));
    }
    let message = summarize(split_conversation(&messages), "Read.").unwrap();
    let parts = message_part_texts(&message);
    let [_, user_text, _, identifiers] = &parts[..] else {
        panic!("{}", parts.len());
    };
    assert!(user_text.len() <= USER_TEXT_BYTES_MAX + 100, "{}", user_text.len());
    assert!(user_text.contains("Rule 197:") && !user_text.contains("Rule 9:"));
    assert!(identifiers.len() <= IDENTIFIERS_BYTES_MAX + 100, "{}", identifiers.len());
    assert!(identifiers.contains("src/file_190.rs") && !identifiers.contains("src/file_2.rs"));
}

#[test]
fn long_results_are_truncated_in_their_middle_for_the_summary() {
    let mut messages = vec![user_message("Do it.")];
    let long = format!("first {} last", "é".repeat(20_000));
    for number in 1..6 {
        messages.extend(call_and_result_messages(number, ("list", json!({})), &long));
    }
    let request = ModelRequest {
        run: RunId::from_bits(1),
        turn: 6,
        attempt: 1,
        model: "scripted/x".into(),
        system: StoredText::new_inline("s"),
        tools: StoredText::new_inline("[1]"),
        messages: Arc::new(messages),
        max_tokens: 1,
    };
    let summary = to_summary_request(request, None);
    assert_eq!(summary.tools, StoredText::new_inline("[]"));
    assert_calls_have_results(&summary.messages);
    let Message::Results(results) = &*summary.messages[2] else {
        panic!("{:?}", summary.messages[2]);
    };
    let text = part_texts(&results[0].content).next().unwrap();
    assert!(text.len() < RESULT_BYTES_MAX + 100, "{}", text.len());
    assert!(text.starts_with("first ") && text.ends_with(" last"));
    assert!(text.contains("bytes are left out here"));
}

fn assert_calls_have_results(messages: &[Arc<Message>]) {
    let mut open = 0;
    for message in messages {
        let results = if let Message::Results(results) = &**message { results.len() } else { 0 };
        assert_eq!(results, open, "{messages:?}");
        open =
            if let Message::Assistant(reply) = &**message { reply.tool_calls().count() } else { 0 };
    }
    assert_eq!(open, 0, "{messages:?}");
}

/// Returns the next number of a deterministic pseudo-random sequence.
fn next_random(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
    *seed >> 33
}

#[test]
fn compaction_never_separates_a_call_from_its_result() {
    for seed in 0..150_u64 {
        let mut rng = seed;
        let mut messages = vec![user_message("Do it.")];
        for number in 1..=(next_random(&mut rng) % 12) as u32 {
            let bytes = match next_random(&mut rng) % 4 {
                0 => 9_000,
                _ => 10,
            };
            match next_random(&mut rng) % 3 {
                0 => messages.push(user_message(&"u".repeat(bytes))),
                1 => messages.push(assistant_message(vec![text_block(&"m".repeat(bytes))])),
                _ => messages.extend(call_and_result_messages(
                    number,
                    ("act", json!({})),
                    &"r".repeat(bytes),
                )),
            }
        }
        let until = messages_to_summarize(&messages);
        assert!((1..=messages.len()).contains(&until), "{seed}");
        assert_calls_have_results(&messages[..until]);
        let mut summarized_messages = vec![user_message("a summary")];
        summarized_messages.extend(messages[until..].iter().cloned());
        assert_calls_have_results(&summarized_messages);
        if let Ok(message) = summarize(split_conversation(&messages), "short") {
            summarized_messages[0] = Arc::new(message);
            assert_calls_have_results(&summarized_messages);
        }
    }
}

#[test]
fn only_the_oldest_kept_messages_are_dropped() {
    let long = "word ".repeat(10_000);
    let mut messages = sample_conversation();
    messages.splice(3..3, call_and_result_messages(90, ("list", json!({})), &long));
    for number in 0..50 {
        let rule = format!("Rule {number}:\nfirst\n\n{}", "x".repeat(580));
        messages.insert(3, user_message(&rule));
    }
    let message = summarize(split_conversation(&messages), "Read.").unwrap();
    let kept = split_conversation(&messages).kept_messages.to_vec();
    let mut next = vec![Arc::new(message)];
    next.extend(kept);
    for number in 50..60 {
        next.push(user_message(&format!("Rule {number}: {}", "y".repeat(600))));
    }
    next.extend(call_and_result_messages(91, ("list", json!({})), &long));
    for number in 8..14 {
        next.extend(call_and_result_messages(number, ("list", json!({})), "ok"));
    }
    let message = summarize(split_conversation(&next), "Then all was listed.").unwrap();
    let user_text = &message_part_texts(&message)[1];
    assert!(user_text.len() <= USER_TEXT_BYTES_MAX + 100, "{}", user_text.len());
    // The earlier rules are in the order in which they were said: 49 first.
    for (rule, expected) in [("49", false), ("45", false), ("30", true), ("0", true), ("59", true)]
    {
        let rule = format!("- Rule {rule}:");
        assert_eq!(user_text.contains(&rule), expected, "{rule}");
    }
    assert!(user_text.contains("- Rule 0:\nfirst\n\nxxx"), "the message is kept in full");
}

#[test]
fn a_message_may_quote_the_summary_marker() {
    let mut messages = sample_conversation();
    messages.insert(3, user_message("[longhaul] is what your notes begin with: leave those out."));
    let message = summarize(split_conversation(&messages), "Read.").unwrap();
    let user_text = &message_part_texts(&message)[1];
    assert!(user_text.contains("- [longhaul] is what your notes"), "{user_text}");
    assert!(!user_text.contains("Little is left"), "{user_text}");
}
