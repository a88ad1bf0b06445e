//! MCP servers that misbehave. They affect only their own tools.

use std::path::Path;
use std::sync::Arc;

use longhaul_core::id::RunId;
use longhaul_core::port::tool::RunClaimId;
use longhaul_core::time::Millis;
use longhaul_mcp::{McpError, McpServers};
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::net::TcpListener;

use super::harness::{
    RUN, SkippingClock, call, hostile_spec, lines, python_spec, single_server, text, tool,
    tool_context, with_env, within_timeout,
};

fn temp_dir() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

#[tokio::test]
async fn a_server_that_dies_at_start_is_tried_five_times() {
    let dir = temp_dir();
    let spec = hostile_spec("dies_at_start", dir.path());
    let (servers, clock) = single_server(with_env(spec, "API_KEY", "hunter2hunter"));
    let error = within_timeout(servers.server_tools("dies_at_start", None, RUN)).await.unwrap_err();
    let message = error.to_string();
    assert!(matches!(error, McpError::RepeatedFailures { times: 5, .. }), "{message}");
    assert!(message.contains("exit status: 3"), "{message}");
    assert!(message.contains("the key *** is not valid"), "{message}");
    assert_eq!(clock.sleeps(), [1_000, 2_000, 4_000, 8_000]);
    assert_eq!(lines(dir.path(), "starts"), 5);
    // The error is returned again without another start.
    within_timeout(servers.server_tools("dies_at_start", None, RUN)).await.unwrap_err();
    assert_eq!(lines(dir.path(), "starts"), 5);
    clock.advance(Millis::from_secs(60));
    within_timeout(servers.server_tools("dies_at_start", None, RUN)).await.unwrap_err();
    assert_eq!(lines(dir.path(), "starts"), 6);
    assert_eq!(clock.sleeps().len(), 4);
}

#[tokio::test]
async fn a_server_that_exits_at_the_new_handshake_gets_the_old_one() {
    let dir = temp_dir();
    let (servers, _) = single_server(hostile_spec("exits_on_discover", dir.path()));
    let report = within_timeout(servers.check_server("exits_on_discover")).await.unwrap();
    assert_eq!(report.protocol, "2025-11-25");
    assert_eq!(report.name, "hostile ");
    let result = call(&servers, "hello", json!({})).await;
    assert!(result.unwrap().starts_with("hello from "));
}

#[tokio::test]
async fn a_server_that_ignores_the_new_handshake_is_probed_once() {
    let dir = temp_dir();
    let (servers, _) = single_server(hostile_spec("ignores_discover", dir.path()));
    let report = within_timeout(servers.check_server("ignores_discover")).await.unwrap();
    assert_eq!(report.protocol, "2025-11-25");
    assert_eq!(lines(dir.path(), "ignored_discovers"), 1);
    // The next start uses the known handshake mode.
    call(&servers, "hello", json!({})).await.unwrap();
    call(&servers, "die", json!({})).await.unwrap_err();
    call(&servers, "hello", json!({})).await.unwrap();
    assert_eq!(lines(dir.path(), "starts"), 3);
    assert_eq!(lines(dir.path(), "ignored_discovers"), 1);
}

#[tokio::test]
async fn a_slow_server_handles_both_handshakes() {
    let dir = temp_dir();
    let (servers, _) = single_server(hostile_spec("slow_start", dir.path()));
    let report = within_timeout(servers.check_server("slow_start")).await.unwrap();
    assert_eq!(report.protocol, "2025-11-25");
    let requests = std::fs::read_to_string(dir.path().join("first_requests")).unwrap();
    assert_eq!(requests, "server/discover, initialize\n");
    assert_eq!(lines(dir.path(), "starts"), 1);
    let output = call(&servers, "hello", json!({})).await.unwrap();
    assert!(output.starts_with("hello from "), "{output}");
}

#[tokio::test]
async fn an_elicitation_during_a_call_is_declined_and_reported() {
    for mode in ["default", "newer_protocol"] {
        let dir = temp_dir();
        let (servers, _) = single_server(hostile_spec(mode, dir.path()));
        let asking_tool = tool(&servers, "elicit_with_defaults").await;
        let (ctx, mut progress) = tool_context();
        let result = within_timeout(asking_tool.call(json!({}), &ctx)).await.unwrap();
        let result: serde_json::Value = serde_json::from_str(&text(&result)).unwrap();
        assert_eq!(result["elicitation"], json!({ "action": "decline" }), "{mode}");
        let expected = "declined the server's question \"who?\": a person can't be asked";
        assert_eq!(progress.try_recv(), Ok((None, expected.to_owned())), "{mode}");
    }
}

#[tokio::test]
async fn an_unreadable_elicitation_form_is_declined_and_reported() {
    let dir = temp_dir();
    let (servers, _) = single_server(hostile_spec("default", dir.path()));
    for field in [
        json!({ "type": "boolean", "default": "yes" }),
        json!({ "type": "object", "properties": {} }),
    ] {
        let asking_tool = tool(&servers, "elicit_with_field_schema").await;
        let (ctx, mut progress) = tool_context();
        let result = within_timeout(asking_tool.call(json!({ "field_schema": field }), &ctx)).await;
        let result: serde_json::Value = serde_json::from_str(&text(&result.unwrap())).unwrap();
        assert_eq!(result["elicitation"], json!({ "action": "decline" }), "{field}");
        let (_, message) = progress.try_recv().unwrap();
        assert!(message.starts_with("declined the server's question \"who?\""), "{message}");
    }
}

#[tokio::test]
async fn a_once_call_to_a_dying_server_ends_unknown_and_the_next_gets_a_new_server() {
    let dir = temp_dir();
    let (servers, clock) = single_server(hostile_spec("default", dir.path()));
    let failure = call(&servers, "die", json!({})).await.unwrap_err();
    assert!(failure.is_outcome_unknown(), "{failure}");
    assert!(failure.to_string().contains("exit status: 7"), "{failure}");
    assert!(failure.to_string().contains("I am dying"), "{failure}");
    assert_eq!(lines(dir.path(), "die_calls"), 1);
    call(&servers, "hello", json!({})).await.unwrap();
    assert_eq!(lines(dir.path(), "starts"), 2);
    assert_eq!(clock.sleeps(), [1_000]);
}

#[tokio::test]
async fn a_repeatable_call_is_retried_once() {
    let dir = temp_dir();
    let (servers, _) = single_server(hostile_spec("default", dir.path()));
    let output = call(&servers, "die_on_first_call", json!({})).await.unwrap();
    assert_eq!(output, "alive on attempt 2");
    let failure = call(&servers, "die_always", json!({})).await.unwrap_err();
    assert!(!failure.is_outcome_unknown(), "{failure}");
    assert_eq!(lines(dir.path(), "die_always_calls"), 2);
}

#[tokio::test]
async fn dropping_a_call_cancels_it_and_ignores_its_late_response() {
    let dir = temp_dir();
    let (servers, _) = single_server(hostile_spec("default", dir.path()));
    let hang_tool = tool(&servers, "hang").await;
    let (ctx, mut progress) = tool_context();
    {
        let call = hang_tool.call(json!({}), &ctx);
        tokio::pin!(call);
        tokio::select! {
            _ = &mut call => panic!("the call ended"),
            update = within_timeout(progress.recv()) => assert_eq!(update, Some((Some(25), "hanging".to_owned()))),
        }
    }
    let update = call(&servers, "wait_for_cancellation", json!({})).await.unwrap();
    assert_eq!(update, "cancelled: True");
    call(&servers, "hello", json!({})).await.unwrap();
    assert_eq!(lines(dir.path(), "starts"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_sends_too_much_is_closed_without_affecting_others() {
    let dir = temp_dir();
    let (other, _) = single_server(hostile_spec("default", dir.path()));
    call(&other, "hello", json!({})).await.unwrap();
    for (name, expected) in [
        ("endless_notifications", "too much unsolicited output"),
        ("endless_text_lines", "too much unsolicited output"),
        ("endless_line", "over 16 MB"),
        ("endless_requests", "without waiting"),
    ] {
        let dir = temp_dir();
        let (servers, _) = single_server(hostile_spec("default", dir.path()));
        let failure = call(&servers, name, json!({})).await.unwrap_err();
        assert!(failure.to_string().contains(expected), "{name}: {failure}");
        assert!(failure.is_outcome_unknown(), "{name}: {failure}");
        call(&servers, "hello", json!({})).await.unwrap();
    }
    call(&other, "hello", json!({})).await.unwrap();
    assert_eq!(lines(dir.path(), "starts"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn results_are_limited_and_too_long_ones_are_not_retried() {
    let dir = temp_dir();
    let (servers, _) = single_server(hostile_spec("default", dir.path()));
    let output = call(&servers, "result_12_mb", json!({})).await.unwrap();
    assert!(output.len() < 11_000_000, "{}", output.len());
    assert!(output.ends_with("(truncated: the text was 12000000 bytes long)"));
    let failure = call(&servers, "result_100_mb", json!({})).await.unwrap_err();
    assert!(failure.to_string().contains("over 16 MB"), "{failure}");
    assert_eq!(lines(dir.path(), "result_100_mb_calls"), 1);
}

#[tokio::test]
async fn garbage_between_messages_is_skipped() {
    let dir = temp_dir();
    let (servers, _) = single_server(hostile_spec("default", dir.path()));
    for (name, expected) in [
        ("garbage", "after the garbage"),
        ("invalid_utf8", "a\u{fffd}b"),
        ("unknown_content_type", "{\"type\":\"unknown\",\"body\":\"rain\"}"),
    ] {
        assert_eq!(call(&servers, name, json!({})).await.unwrap(), expected, "{name}");
    }
    let failure = call(&servers, "error_result", json!({})).await.unwrap_err();
    assert_eq!(failure.to_string(), "it did not work");
    for (name, expected) in [
        ("invalid_content", "`content` is not a list. Response: {"),
        ("violates_output_schema", "the response violates the output schema at /a: 5 is not"),
    ] {
        let failure = call(&servers, name, json!({})).await.unwrap_err();
        // The server has answered, so the outcome is known.
        assert!(!failure.is_outcome_unknown(), "{name}");
        let message = failure.to_string();
        assert!(message.contains("has answered, but ") && message.contains(expected), "{message}");
    }
    let failure = call(&servers, "error_response", json!({})).await.unwrap_err().to_string();
    assert!(failure.contains("rejected the call: not today"), "{failure}");
    assert!(failure.len() < 1_000);
    assert_eq!(lines(dir.path(), "starts"), 1);
}

#[tokio::test]
async fn requests_of_a_server_are_declined() {
    let dir = temp_dir();
    let (servers, _) = single_server(hostile_spec("default", dir.path()));
    let output = call(&servers, "send_four_requests", json!({})).await.unwrap();
    let output: serde_json::Value = serde_json::from_str(&output).unwrap();
    assert_eq!(output["elicitation"]["action"], "decline");
    assert_eq!(output["sampling"], -32601);
    assert_eq!(output["roots"]["roots"], json!([]));
    assert_eq!(output["unknown"], -32601);
}

#[tokio::test]
async fn a_server_gets_no_keys_from_our_environment() {
    let dir = temp_dir();
    let spec = with_env(hostile_spec("default", dir.path()), "GIVEN", "yes");
    let (servers, _) = single_server(spec);
    let output = call(&servers, "environment", json!({})).await.unwrap();
    let output: serde_json::Value = serde_json::from_str(&output).unwrap();
    let mut names: Vec<&str> = output.as_object().unwrap().keys().map(String::as_str).collect();
    let inherited =
        ["HOME", "USER", "LOGNAME", "SHELL", "TERM", "LANG", "LC_ALL", "LC_CTYPE", "TMPDIR"];
    for name in inherited {
        // Python may set this variable itself.
        let expected = std::env::var(name).ok().filter(|_| name != "LC_CTYPE");
        assert!(expected.is_none() || output[name] == json!(expected), "{name}: {output}");
    }
    assert!(std::env::vars().any(|(name, _)| name == "CARGO_MANIFEST_DIR"));
    names.retain(|name| !inherited.contains(name));
    names.sort_unstable();
    assert_eq!(names, ["GIVEN", "PATH"]);
}

#[tokio::test]
async fn a_list_changed_notification_refreshes_the_tool_list() {
    let dir = temp_dir();
    let (servers, _) = single_server(hostile_spec("default", dir.path()));
    call(&servers, "hello", json!({})).await.unwrap();
    call(&servers, "hello", json!({})).await.unwrap();
    assert_eq!(lines(dir.path(), "list_requests"), 1);
    let result = within_timeout(servers.server_tools("default", Some("added_tool"), RUN)).await;
    let message = result.unwrap_err().to_string();
    assert!(message.contains("has no tool `added_tool`: its tools are hello"), "{message}");
    call(&servers, "add_tool", json!({})).await.unwrap();
    tool(&servers, "added_tool").await;
    assert_eq!(lines(dir.path(), "list_requests"), 2);
}

#[tokio::test]
async fn invalid_tools_are_left_out_with_a_note() {
    let dir = temp_dir();
    let (servers, _) = single_server(hostile_spec("invalid_tools", dir.path()));
    let report = within_timeout(servers.check_server("invalid_tools")).await.unwrap();
    let names: Vec<&str> = report.tools.iter().map(|listed| listed.spec.name.as_str()).collect();
    assert_eq!(names, ["mcp:invalid_tools/good", "mcp:invalid_tools/long_description"]);
    assert_eq!(report.notes.len(), 7, "{:#?}", report.notes);
    assert!(report.tools[1].spec.description.len() < 5_000);
    let result =
        within_timeout(servers.server_tools("invalid_tools", Some("recursive_schema"), RUN)).await;
    let message = result.unwrap_err().to_string();
    assert!(message.contains("refers to itself"), "{message}");
}

#[tokio::test]
async fn endless_tool_lists_are_cut_off() {
    for (mode, tool_count, expected) in
        [("endless_tool_pages", 64, "too many pages"), ("many_tools", 256, "after the first 256")]
    {
        let dir = temp_dir();
        let (servers, _) = single_server(hostile_spec(mode, dir.path()));
        let report = within_timeout(servers.check_server(mode)).await.unwrap();
        assert_eq!(report.tools.len(), tool_count, "{mode}");
        assert!(report.notes[0].contains(expected), "{:?}", report.notes);
    }
}

#[tokio::test]
async fn a_server_that_dies_during_listing_reports_why() {
    let dir = temp_dir();
    let (servers, _) = single_server(hostile_spec("dies_while_listing", dir.path()));
    let error =
        within_timeout(servers.server_tools("dies_while_listing", None, RUN)).await.unwrap_err();
    assert!(error.to_string().contains("exit status: 5"), "{error}");
    assert_eq!(lines(dir.path(), "starts"), 2);
}

#[tokio::test]
async fn a_server_that_hangs_during_listing_is_restarted_once() {
    let dir = temp_dir();
    let mut spec = hostile_spec("ignores_first_list", dir.path());
    spec.timeout = Millis::from_secs(2);
    let (servers, _) = single_server(spec);
    let list_tools = || within_timeout(servers.server_tools("ignores_first_list", None, RUN));
    let (one, other) = tokio::join!(list_tools(), list_tools());
    let message = one.unwrap_err().to_string();
    assert!(message.contains("did not list its tools within 2 s"), "{message}");
    assert_eq!(other.unwrap_err().to_string(), message);
    assert_eq!(lines(dir.path(), "list_requests"), 1);
    assert_eq!(call(&servers, "hello", json!({})).await.map(|_| ()), Ok(()));
    assert_eq!(lines(dir.path(), "starts"), 2);
}

#[tokio::test]
async fn a_server_with_three_timed_out_calls_is_restarted() {
    let dir = temp_dir();
    let spec = hostile_spec("default", dir.path());
    let timeout = spec.timeout;
    let (servers, clock) = single_server(spec);
    let hang_tool = tool(&servers, "hang").await;
    // A cancelled call does not count as a timeout, and a response resets the count.
    for (elapsed, is_answered) in [
        (timeout, false),
        (timeout, true),
        (timeout, false),
        (Millis(1), false),
        (timeout, false),
        (timeout, false),
    ] {
        assert_eq!(lines(dir.path(), "starts"), 1);
        let (ctx, mut progress) = tool_context();
        {
            let call = hang_tool.call(json!({}), &ctx);
            tokio::pin!(call);
            tokio::select! {
                _ = &mut call => panic!("the call ended"),
                _ = within_timeout(progress.recv()) => clock.advance(elapsed),
            }
        }
        if is_answered {
            call(&servers, "hello", json!({})).await.unwrap();
        }
    }
    call(&servers, "hello", json!({})).await.unwrap();
    assert_eq!(lines(dir.path(), "starts"), 2);
}

/// Has a server and its child process connect to us. The connection closes when both are gone.
async fn process_family(servers: &McpServers) -> BufReader<tokio::net::TcpStream> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let result = call(servers, "start_child", json!({ "port": port })).await;
    assert_eq!(result.unwrap(), "started");
    let (stream, _) = within_timeout(listener.accept()).await.unwrap();
    let mut stream = BufReader::new(stream);
    let mut text = String::new();
    within_timeout(stream.read_line(&mut text)).await.unwrap();
    assert_eq!(text, "connected\n");
    stream
}

async fn assert_closed(mut stream: BufReader<tokio::net::TcpStream>) {
    let mut rest = Vec::new();
    // A reset connection counts as closed too.
    _ = within_timeout(stream.read_to_end(&mut rest)).await;
    assert!(rest.is_empty());
}

#[tokio::test]
async fn a_server_that_floods_between_calls_is_stopped_and_restarted_for_the_next_call() {
    for output in ["notifications", "responses", "blank_lines", "stderr"] {
        let dir = temp_dir();
        let (servers, _) = single_server(hostile_spec("default", dir.path()));
        let stream = process_family(&servers).await;
        let result = call(&servers, "flood_after_answer", json!({ "output": output })).await;
        assert_eq!(result.unwrap(), "answered", "{output}");
        // The server is killed though nobody calls it.
        assert_closed(stream).await;
        call(&servers, "hello", json!({})).await.unwrap();
        assert_eq!(lines(dir.path(), "starts"), 2, "{output}");
    }
}

#[tokio::test]
async fn a_run_scoped_server_and_its_children_end_with_the_run() {
    let dir = temp_dir();
    let mut spec = hostile_spec("default", dir.path());
    spec.per_run = true;
    let (servers, _) = single_server(spec);
    let stream = process_family(&servers).await;
    let another = RunClaimId { run: RunId::from_bits(8), ..RUN };
    let other =
        within_timeout(servers.server_tools("default", Some("hello"), another)).await.unwrap();
    let (ctx, _progress) = tool_context();
    within_timeout(other[0].call(json!({}), &ctx)).await.unwrap();
    assert_eq!(lines(dir.path(), "starts"), 2);
    within_timeout(servers.close_servers_of_claim(RUN)).await;
    assert_closed(stream).await;
    within_timeout(other[0].call(json!({}), &ctx)).await.unwrap();
    assert_eq!(lines(dir.path(), "starts"), 2);
}

#[tokio::test]
async fn a_server_that_ignores_sigterm_is_killed() {
    let dir = temp_dir();
    let (servers, _) = single_server(hostile_spec("ignores_sigterm", dir.path()));
    let stream = process_family(&servers).await;
    within_timeout(servers.close_all_servers()).await;
    assert_closed(stream).await;
}

#[tokio::test]
async fn dropping_servers_kills_them() {
    let dir = temp_dir();
    let (servers, _) = single_server(hostile_spec("default", dir.path()));
    let stream = process_family(&servers).await;
    drop(servers);
    assert_closed(stream).await;
}

#[tokio::test]
async fn unknown_servers_and_tools_are_reported_with_a_hint() {
    let missing_program = super::harness::stdio_spec("nowhere", Path::new("/no/such/program"), &[]);
    let mut invalid_name = python_spec("bad name", &[]);
    invalid_name.name = "bad name".into();
    let servers =
        McpServers::new(vec![missing_program, invalid_name], Arc::new(SkippingClock::default()));
    for (server, expected) in [
        ("nowhere", "`/no/such/program` could not be run"),
        ("bad name", "can't be used as it is configured"),
        ("other", "There is no MCP server `other`: the configured servers are bad name, nowhere"),
    ] {
        let error = within_timeout(servers.check_server(server)).await.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}
