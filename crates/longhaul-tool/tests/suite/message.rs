//! `send_message`: all delivery targets, the delivery log, and verification after a crash between
//! intent and receipt.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::PathBuf;
use std::sync::Arc;

use futures_util::FutureExt as _;
use serde_json::{Value, json};
use tempfile::TempDir;

use longhaul_core::event::tool::VerifyOutcome;
use longhaul_core::id::{CallId, Epoch, RunId};
use longhaul_core::message::Part;
use longhaul_core::policy::effect::{EffectClass, InDoubtPolicy};
use longhaul_core::port::tool::{Tool, ToolContext};
use longhaul_core::raw::{Hash, RawJson};
use longhaul_core::time::Clock;
use longhaul_testkit::clock::SimClock;
use longhaul_tool::message::{SendMessageConfig, SendMessageTool};

use crate::suite::harness::{Server, http_response, shared_client};

struct Fixture {
    dir: TempDir,
    clock: SimClock,
}

impl Fixture {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap(), clock: SimClock::new() }
    }

    fn tool(&self, deliver: &str) -> SendMessageTool {
        let messages = SendMessageConfig {
            target: deliver.parse().unwrap(),
            log: ".longhaul/deliveries.jsonl".into(),
            root: self.dir.path().into(),
            allow_private: false,
        };
        let clock: Arc<dyn Clock> = Arc::new(self.clock.clone());
        SendMessageTool::new(messages, clock, shared_client()).unwrap()
    }

    fn path(&self, relative_path: &str) -> PathBuf {
        self.dir.path().join(relative_path)
    }

    fn json_lines(&self, relative_path: &str) -> Vec<Value> {
        let text = fs::read_to_string(self.path(relative_path)).unwrap_or_default();
        let lines = text.lines();
        lines.map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn delivery_log(&self) -> Vec<Value> {
        let mut lines = self.json_lines(".longhaul/deliveries.jsonl");
        lines.retain(|line| line["kind"] != "host");
        lines
    }

    fn write(&self, relative_path: &str, text: &str) {
        fs::create_dir_all(self.path(relative_path).parent().unwrap()).unwrap();
        fs::write(self.path(relative_path), text).unwrap();
    }

    fn script(&self, text: &str) {
        self.write("send", &format!("#!/bin/sh\n{text}\n"));
        fs::set_permissions(self.path("send"), fs::Permissions::from_mode(0o755)).unwrap();
    }
}

fn tool_context(index: u16, epoch: u64) -> ToolContext {
    let call = CallId { turn: 1, index };
    let mut ctx = ToolContext::new(RunId::from_bits(7), call, Epoch(epoch));
    let recipient = RawJson::from_serialize(&"ann@example.com");
    ctx.context.insert("recipient".into(), recipient);
    ctx
}

async fn send(tool: &SendMessageTool, ctx: &ToolContext) -> Result<String, String> {
    match tool.call(json!({ "text": "Hello ü" }), ctx).await {
        Ok(output) => match &output.content[..] {
            [Part::Text(text)] => Ok(text.to_string()),
            other => panic!("one text, not {other:?}"),
        },
        Err(failure) => Err(failure.to_string()),
    }
}

async fn verify(tool: &SendMessageTool, ctx: &ToolContext) -> &'static str {
    match tool.verify(json!({ "text": "Hello ü" }), ctx).await {
        VerifyOutcome::Happened(_) => "happened",
        VerifyOutcome::NotHappened => "not happened",
        VerifyOutcome::Unknown => "unknown",
    }
}

fn line_kinds(lines: &[Value]) -> Vec<&str> {
    lines.iter().map(|line| line["kind"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn json_with_line_breaks_breaks_no_line_of_the_outbox_and_the_delivery_log() {
    let fixture = Fixture::new();
    let tool = fixture.tool("file:out/box.jsonl");
    let mut ctx = tool_context(1, 3);
    let recipient: RawJson = serde_json::from_str("\r\n \"a\\nb@example.com\"\n").unwrap();
    ctx.context.insert("recipient".into(), recipient);
    let text = "{\n  \"a\": [\r\n ]\n}";
    tool.call(json!({ "text": text }), &ctx).await.unwrap();
    let outbox = fixture.json_lines("out/box.jsonl");
    assert_eq!((outbox.len(), &outbox[0]["text"]), (1, &json!(text)));
    let record = fixture.delivery_log();
    assert_eq!(line_kinds(&record), ["intent", "receipt"]);
    for line in [&outbox[0], &record[0]] {
        assert_eq!(line["recipient"], "a\nb@example.com");
    }
}

#[tokio::test]
async fn a_message_is_written_to_the_outbox_and_the_delivery_log() {
    let fixture = Fixture::new();
    let tool = fixture.tool("file:out/box.jsonl");
    let ctx = tool_context(1, 3);
    // Without a log, an earlier delivery on another machine can't be ruled out.
    assert_eq!(verify(&tool, &ctx).await, "unknown");
    assert!(!fixture.path(".longhaul").exists());
    let output = send(&tool, &ctx).await.unwrap();
    assert_eq!(output, "The message was delivered.");
    let outbox = fixture.json_lines("out/box.jsonl");
    assert_eq!(outbox.len(), 1);
    assert_eq!(outbox[0]["recipient"], "ann@example.com");
    assert_eq!(outbox[0]["text"], "Hello ü");
    assert_eq!(outbox[0]["key"], ctx.idempotency_key);
    let record = fixture.delivery_log();
    assert_eq!(line_kinds(&record), ["intent", "receipt"]);
    let hash = Hash::digest("Hello ü".as_bytes()).to_string();
    assert_eq!(record[0]["text_sha256"], hash);
    assert_eq!(record[0]["recipient"], "ann@example.com");
    assert_eq!(record[0]["at"], "2026-01-01T00:00:00.000000Z");
    assert!(!record[0].to_string().contains("Hello"));
    let mode = fs::metadata(fixture.path("out/box.jsonl")).unwrap().permissions();
    assert_eq!(mode.mode() & 0o777, 0o600);

    // A call with the same key is not delivered again.
    assert_eq!(send(&tool, &ctx).await.unwrap(), output);
    assert_eq!(fixture.json_lines("out/box.jsonl").len(), 1);
    assert_eq!(verify(&tool, &ctx).await, "happened");
}

#[test]
fn send_message_has_an_effect_class_and_a_rule_match_text() {
    let fixture = Fixture::new();
    let tool = fixture.tool("file:box");
    let input = json!({ "text": "x" });
    assert_eq!(tool.class(&input), EffectClass::Once);
    assert!(tool.spec().can_verify);
    assert_eq!(tool.spec().in_doubt, Some(InDoubtPolicy::Ask));
    let ctx = tool_context(1, 1);
    assert_eq!(tool.rule_match_texts_with_context(&input, &ctx.context), ["ann@example.com"]);
    assert!(tool.rule_match_texts_with_context(&input, &Default::default()).is_empty());
    let problem = |text: &str, context| tool.find_call_problem(&json!({ "text": text }), context);
    assert_eq!(problem("x", &ctx.context), None);
    for (text, context, expected) in [
        ("x", &Default::default(), "no recipient is set"),
        (" ", &ctx.context, "the text is empty"),
    ] {
        let message = problem(text, context).unwrap();
        assert!(
            message.starts_with("The message was not delivered: ") && message.contains(expected),
            "{message}"
        );
    }
    assert!(!tool.may_outlive_worker());
    assert!(fixture.tool("command:[\"true\"]").may_outlive_worker());
}

#[tokio::test]
async fn a_message_without_recipient_or_text_is_rejected() {
    let fixture = Fixture::new();
    let tool = fixture.tool("file:box");
    for recipient in ["null", "\"\"", "\" \"", "[\"a\"]", "{}", "true"] {
        let mut ctx = tool_context(1, 1);
        let recipient = RawJson::parse(recipient).unwrap();
        ctx.context.insert("recipient".into(), recipient);
        let error = send(&tool, &ctx).await.unwrap_err();
        assert!(error.contains("--context recipient="), "{error}");
    }
    let mut no_recipient = tool_context(1, 1);
    no_recipient.context.clear();
    assert!(send(&tool, &no_recipient).await.unwrap_err().contains("--context recipient="));
    let long_text = "x".repeat(20_001);
    for (input, expected) in [
        (json!({ "text": " \n" }), "is empty"),
        (json!({ "text": long_text }), "exceeds 20000"),
        (json!({ "text": "x", "recipient": "eve" }), "unknown field"),
        (json!({}), "missing field"),
    ] {
        let error = tool.call(input, &tool_context(1, 1)).await.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    assert!(!fixture.path("box").exists() && !fixture.path(".longhaul").exists());
    let mut phone_context = tool_context(1, 1);
    phone_context.context.insert("recipient".into(), RawJson::parse("49151").unwrap());
    send(&tool, &phone_context).await.unwrap();
    assert_eq!(fixture.json_lines("box")[0]["recipient"], "49151");
}

#[tokio::test]
async fn a_delivery_command_gets_only_the_message() {
    let fixture = Fixture::new();
    fixture.script("cat > got.json; env > env.txt; echo \"$1|$2\" > words; echo queued as 7");
    let tool = fixture.tool("command:./send 'a b' $HOME");
    send(&tool, &tool_context(1, 1)).await.unwrap();
    let received = fixture.json_lines("got.json");
    assert_eq!(
        (&received[0]["text"], &received[0]["recipient"]),
        (&json!("Hello ü"), &json!("ann@example.com"))
    );
    assert_eq!(fs::read_to_string(fixture.path("words")).unwrap(), "a b|$HOME\n");
    let env = fs::read_to_string(fixture.path("env.txt")).unwrap();
    assert!(!env.contains("CARGO") && !env.contains("HOME="), "{env}");
    assert_eq!(fixture.delivery_log()[1]["answer"], "queued as 7");
    assert_eq!(verify(&tool, &tool_context(1, 1)).await, "happened");

    fixture.script("echo no such person ann@example.com >&2; exit 4");
    let error = send(&tool, &tool_context(2, 1)).await.unwrap_err();
    assert!(error.contains("exited with code 4: no such person [recipient]"), "{error}");
    assert_eq!(line_kinds(&fixture.delivery_log()[2..]), ["intent", "failure"]);
    assert_eq!(verify(&tool, &tool_context(2, 1)).await, "not happened");

    fixture.script("kill -9 $$");
    let error = tool.call(json!({ "text": "x" }), &tool_context(3, 1)).await;
    let error = error.unwrap_err();
    assert!(error.is_outcome_unknown(), "{error}");
    assert!(error.message().contains("may also have arrived"), "{error}");
    assert_eq!(verify(&tool, &tool_context(3, 1)).await, "unknown");

    let missing_program = fixture.tool("command:no-such-program");
    assert!(send(&missing_program, &tool_context(4, 1)).await.unwrap_err().contains("not found"));
    assert_eq!(verify(&missing_program, &tool_context(4, 1)).await, "not happened");
}

#[tokio::test]
async fn a_webhook_gets_the_message_with_its_idempotency_key() {
    for (status, location, is_delivered, expected_outcome) in [
        ("200 OK", "", true, "happened"),
        ("204 No Content", "", true, "happened"),
        ("404 Not Found", "", false, "not happened"),
        ("500 Oh", "", false, "unknown"),
        ("302 Found", "/login", false, "unknown"),
        ("307 Again", "http://127.0.0.1/", false, "unknown"),
    ] {
        let server = Server::new(move |request| match request.path.as_str() {
            "/login" => http_response("200 OK", &[], "please log in"),
            _ if location.is_empty() => http_response(status, &[], ""),
            _ => http_response(status, &[("location", location)], ""),
        })
        .await;
        let fixture = Fixture::new();
        let tool = fixture.tool(&format!("webhook:{}", server.url("/secret?key=hush")));
        let ctx = tool_context(1, 1);
        let result = send(&tool, &ctx).await;
        assert_eq!(result.is_ok(), is_delivered, "{status} {result:?}");
        if expected_outcome == "unknown" {
            let second_result = tool.call(json!({ "text": "x" }), &ctx).await;
            assert!(second_result.unwrap_err().is_outcome_unknown(), "{status}");
        }
        assert!(!format!("{result:?} {tool:?} {:?}", fixture.delivery_log()).contains("hush"));
        assert_eq!(verify(&tool, &ctx).await, expected_outcome, "{status}");
        let request = &server.requests()[0];
        assert_eq!(request.method, "POST");
        assert_eq!(request.header("idempotency-key"), Some(ctx.idempotency_key.as_str()));
        let body: Value = serde_json::from_slice(&request.body).unwrap();
        assert_eq!((&body["text"], &body["key"]), (&json!("Hello ü"), &json!(ctx.idempotency_key)));
    }
    let fixture = Fixture::new();
    let private_webhook = fixture.tool("webhook:http://127.0.0.1:9/");
    let error = send(&private_webhook, &tool_context(1, 1)).await.unwrap_err();
    assert!(error.contains("is not allowed"), "{error}");
    assert_eq!(verify(&private_webhook, &tool_context(1, 1)).await, "not happened");
}

fn host_name() -> String {
    let uname = rustix::system::uname();
    uname.nodename().to_str().unwrap().to_owned()
}

/// Returns the lines that a crash may leave, one for each word.
fn crash_log(kinds: &str, channel: &str) -> String {
    let key = tool_context(1, 1).idempotency_key;
    let intent = json!({ "kind": "intent", "key": key, "epoch": 1, "channel": channel });
    let line = |kind: &str| {
        let line = match kind {
            "here" => json!({ "kind": "host", "host": host_name() }),
            "there" => json!({ "kind": "host", "host": "another.example" }),
            "intent" | "intent-torn" => intent.clone(),
            "intent-elsewhere" => json!({ "kind": "intent", "key": key, "channel": "another" }),
            "intent-other" => json!({ "kind": "intent", "key": "run_x:t1.1", "channel": channel }),
            "receipt" | "receipt-torn" => json!({ "kind": "receipt", "key": key }),
            "sure" => json!({ "kind": "failure", "key": key, "certain": true }),
            "unsure" => json!({ "kind": "failure", "key": key, "certain": false }),
            "envelope" | "envelope-torn" => json!({ "key": key, "text": "x" }),
            "envelope-other" => json!({ "key": "run_x:t1.1", "text": key }),
            "list" => json!([key]),
            other => panic!("{other}"),
        };
        let line = format!("{line}\n");
        match kind.ends_with("-torn") {
            true => line[..line.len() - 4].to_owned(),
            false => line,
        }
    };
    kinds.split_whitespace().map(line).collect()
}

#[tokio::test]
async fn verify_after_a_crash_follows_the_delivery_log() {
    let (file, command, webhook) = ("file:box", "command:true", "webhook:https://a.example/");
    for (deliver, record, outbox, expected_outcome) in [
        (file, "here", "", "not happened"),
        (file, "here intent-other", "", "not happened"),
        (file, "here intent-torn", "", "not happened"),
        (file, "", "", "unknown"),
        (file, "intent-other", "", "unknown"),
        (file, "there", "", "unknown"),
        (file, "there intent-other here", "", "unknown"),
        (file, "there intent receipt", "", "happened"),
        (file, "intent receipt", "", "happened"),
        (file, "intent", "", "not happened"),
        (file, "intent", "envelope", "happened"),
        (file, "intent", "envelope-torn", "not happened"),
        (file, "intent", "envelope-other", "not happened"),
        (file, "intent receipt-torn", "envelope", "happened"),
        (file, "intent receipt-torn", "", "not happened"),
        (file, "list intent unsure", "list envelope", "happened"),
        (file, "list intent unsure", "", "not happened"),
        (file, "intent-elsewhere", "", "unknown"),
        (command, "intent", "", "unknown"),
        (command, "intent sure", "", "not happened"),
        (command, "intent unsure", "", "unknown"),
        (command, "intent sure intent", "", "unknown"),
        (webhook, "intent receipt-torn", "", "unknown"),
        (webhook, "receipt sure intent", "", "happened"),
    ] {
        let fixture = Fixture::new();
        let channel = deliver.split(':').next().unwrap();
        fixture.write(".longhaul/deliveries.jsonl", &crash_log(record, channel));
        fixture.write("box", &crash_log(outbox, channel));
        let tool = fixture.tool(deliver);
        // A second check gives the same result.
        for _ in 0..2 {
            let outcome = verify(&tool, &tool_context(1, 2)).await;
            assert_eq!(outcome, expected_outcome, "{deliver}: {record}, {outbox}");
        }
    }
}

#[tokio::test]
async fn the_delivery_log_continues_after_a_torn_line() {
    let fixture = Fixture::new();
    fixture.write(".longhaul/deliveries.jsonl", "{\"kind\":\"int");
    fixture.write("box", "{\"key\":\"ru");
    let tool = fixture.tool("file:box");
    send(&tool, &tool_context(1, 1)).await.unwrap();
    assert_eq!(verify(&tool, &tool_context(1, 1)).await, "happened");
    let record = fs::read_to_string(fixture.path(".longhaul/deliveries.jsonl")).unwrap();
    assert_eq!(record.lines().count(), 3);
    assert!(record.ends_with('\n') && record.starts_with("{\"kind\":\"int\n{"));
    assert_eq!(fs::read_to_string(fixture.path("box")).unwrap().lines().count(), 2);
}

#[tokio::test]
async fn a_worker_that_dies_during_delivery_leaves_the_call_in_doubt() {
    let fixture = Fixture::new();
    fixture.script("cat > got; mkfifo begun; read _ < begun");
    let tool = fixture.tool("command:./send");
    let ctx = tool_context(1, 1);
    let mut call = Box::pin(send(&tool, &ctx));
    while !fixture.path("begun").exists() {
        assert!((&mut call).now_or_never().is_none());
        tokio::task::yield_now().await;
    }
    drop(call);
    assert_eq!(line_kinds(&fixture.delivery_log()), ["intent"]);
    assert_eq!(verify(&tool, &ctx).await, "unknown");
}

#[tokio::test]
async fn a_stale_driver_sends_nothing_after_a_newer_one() {
    let fixture = Fixture::new();
    let tool = fixture.tool("file:box");
    let key = tool_context(1, 1).idempotency_key;
    let line = json!({ "kind": "intent", "key": key, "epoch": 5, "channel": "file" });
    fixture.write(".longhaul/deliveries.jsonl", &format!("{line}\n"));
    let error = send(&tool, &tool_context(1, 4)).await.unwrap_err();
    assert!(error.contains("another worker"), "{error}");
    assert!(!fixture.path("box").exists());
    send(&tool, &tool_context(1, 6)).await.unwrap();
    assert_eq!(fixture.json_lines("box").len(), 1);
}

#[tokio::test]
async fn a_message_in_the_outbox_is_not_added_again() {
    let fixture = Fixture::new();
    fixture.write(".longhaul/deliveries.jsonl", &crash_log("here intent", "file"));
    fixture.write("box", &crash_log("envelope", "file"));
    send(&fixture.tool("file:box"), &tool_context(1, 2)).await.unwrap();
    assert_eq!(fixture.json_lines("box").len(), 1);
    assert_eq!(line_kinds(&fixture.delivery_log()), ["intent", "intent", "receipt"]);
}

#[tokio::test]
async fn a_stale_driver_adds_nothing_to_the_outbox() {
    let fixture = Fixture::new();
    let outbox = fixture.path("box");
    fs::write(&outbox, "").unwrap();
    let locked_file = fs::File::open(&outbox).unwrap();
    locked_file.lock().unwrap();
    let (tool, stale_context) = (fixture.tool("file:box"), tool_context(1, 1));
    let mut call = Box::pin(send(&tool, &stale_context));
    while fixture.delivery_log().is_empty() {
        assert!((&mut call).now_or_never().is_none());
        tokio::task::yield_now().await;
    }
    let newer_intent = json!({ "kind": "intent", "key": stale_context.idempotency_key, "epoch": 2, "channel": "file" });
    let record = fixture.path(".longhaul/deliveries.jsonl");
    let log_text = fs::read_to_string(&record).unwrap();
    fs::write(&record, format!("{log_text}{newer_intent}\n")).unwrap();
    locked_file.unlock().unwrap();
    let error = call.await.unwrap_err();
    assert!(error.contains("another worker"), "{error}");
    assert_eq!(fixture.json_lines("box").len(), 0);
    // The failure of its own attempt says nothing about the newer one.
    fixture.write("box", &crash_log("envelope", "file"));
    assert_eq!(verify(&tool, &tool_context(1, 2)).await, "happened");
}

#[tokio::test]
async fn concurrent_writers_leave_complete_lines() {
    let fixture = Fixture::new();
    let tools = [fixture.tool("file:box"), fixture.tool("file:box")];
    let arounds: Vec<ToolContext> = (0..20).map(|index| tool_context(index, 1)).collect();
    let calls = arounds.iter().enumerate().map(|(n, ctx)| send(&tools[n % 2], ctx));
    for result in futures_util::future::join_all(calls).await {
        result.unwrap();
    }
    assert_eq!(fixture.json_lines("box").len(), 20);
    assert_eq!(fixture.delivery_log().len(), 40);
}

#[tokio::test]
async fn symlinks_and_folders_are_rejected_as_outbox() {
    let fixture = Fixture::new();
    fixture.write("outside", "");
    symlink(fixture.path("outside"), fixture.path("link")).unwrap();
    fs::create_dir(fixture.path("folder")).unwrap();
    for deliver in ["file:link", "file:folder"] {
        let error = send(&fixture.tool(deliver), &tool_context(1, 1)).await.unwrap_err();
        assert!(error.starts_with("The message was not delivered: the outbox"), "{error}");
    }
    assert_eq!(fs::read_to_string(fixture.path("outside")).unwrap(), "");
    // Without a log nothing is delivered.
    let fixture = Fixture::new();
    fixture.write(".longhaul", "a file where a folder should be");
    let error = send(&fixture.tool("file:box"), &tool_context(1, 1)).await.unwrap_err();
    assert!(error.contains("the delivery log"), "{error}");
    assert!(!fixture.path("box").exists());
}
