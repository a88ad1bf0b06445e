//! A server whose program has changed is started again before its next use, if that is allowed.

use std::sync::{Arc, Mutex};

use longhaul_core::raw::Hash;
use longhaul_mcp::{McpServers, StartCheck};
use serde_json::json;

use super::harness::{
    SkippingClock, call, hostile_spec, lines, text, tool, tool_context, within_timeout,
};

/// A check whose version the test sets. The error is the reason why no server may be started.
#[derive(Debug)]
struct SettableCheck(Mutex<Result<Hash, String>>);

impl SettableCheck {
    fn set(&self, version: Result<&str, &str>) {
        let version = version.map(|version| Hash::digest(version.as_bytes()));
        *self.0.lock().unwrap() = version.map_err(str::to_owned);
    }
}

impl StartCheck for SettableCheck {
    fn check_start(&self, _: &str) -> Result<Hash, String> {
        self.0.lock().unwrap().clone()
    }

    fn has_other_version(&self, server: &str, running: Hash) -> bool {
        self.check_start(server).is_ok_and(|version| version != running)
    }
}

#[tokio::test]
async fn a_changed_program_is_restarted_once_it_may_be_started() {
    for per_run in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let check = Arc::new(SettableCheck(Mutex::new(Ok(Hash::digest(b"1")))));
        let mut spec = hostile_spec("default", dir.path());
        spec.per_run = per_run;
        let clock = Arc::new(SkippingClock::default());
        let servers = McpServers::with_start_check(vec![spec], clock, Some(check.clone()));
        let hello = tool(&servers, "hello").await;
        let (ctx, _progress) = tool_context();
        let hello_text = async || text(&within_timeout(hello.call(json!({}), &ctx)).await.unwrap());
        let first = hello_text().await;
        assert_eq!(hello_text().await, first);
        // The running program stays in use while its new version must not be started.
        check.set(Err("The program is not trusted."));
        assert_eq!(hello_text().await, first);
        // A call in flight is finished by the old process.
        let waiting = tool(&servers, "answer_when_allowed").await;
        let (waiting_ctx, mut progress) = tool_context();
        let call_in_flight = waiting.call(json!({}), &waiting_ctx);
        tokio::pin!(call_in_flight);
        tokio::select! {
            _ = &mut call_in_flight => panic!("the call ended"),
            _ = within_timeout(progress.recv()) => check.set(Ok("2")),
        }
        let second = hello_text().await;
        assert_ne!(second, first);
        std::fs::write(dir.path().join("allow_answer"), "").unwrap();
        let answer = text(&within_timeout(call_in_flight).await.unwrap());
        assert_eq!(answer.replace("answered by", "hello from"), first);
        assert_eq!(hello_text().await, second);
        assert_eq!(lines(dir.path(), "starts"), 2);
        // A server that has ended is not started again without permission.
        check.set(Err("The program is not trusted."));
        call(&servers, "die", json!({})).await.unwrap_err();
        let failure = within_timeout(hello.call(json!({}), &ctx)).await.unwrap_err();
        let expected = "The MCP server `default` is not started: The program is not trusted.";
        assert_eq!(failure.message(), expected);
        assert_eq!(lines(dir.path(), "starts"), 2);
    }
}
