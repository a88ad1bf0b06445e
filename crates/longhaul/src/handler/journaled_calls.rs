//! The calls of a handler's function in the journal of a run, and the format of their results.

use std::collections::BTreeSet;

use longhaul_core::event::Event;
use longhaul_core::event::tool::ToolOutput;
use longhaul_core::id::{CallId, RunId, Seq};
use longhaul_core::port::store::{JournalReadRequest, Store, StoreError};
use longhaul_core::raw::RawJson;
use longhaul_core::status::RunOutput;
use longhaul_core::task::TaskSpec;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::handler::request::HandlerError;

/// Number of journal entries that are read at once.
const PAGE_SIZE: usize = 500;

/// Maximum size of a handler's result as JSON in bytes. It follows from the size limit for the
/// input of the tool `finish`.
const RESULT_BYTES_MAX: usize = 4 * 1024 * 1024 - "{\"output\":}".len();

/// Result of a handler, as it is journaled.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum HandlerResult {
    /// Value that is not a `Response`, as JSON.
    Value(RawJson),
    /// Output of the run, from a `Response` that the handler returned.
    Response(Box<RunOutput>),
}

impl HandlerResult {
    /// Returns the JSON that the journal stores. Fails if it is too long or nested too deeply.
    pub(crate) fn encode(&self) -> Result<String, HandlerError> {
        let json = serde_json::to_string(self)?;
        let bytes = json.len() - "{\"value\":}".len();
        if bytes > RESULT_BYTES_MAX {
            return Err(HandlerError::permanent(format!(
                "the result has {bytes} bytes as JSON, but the maximum is {RESULT_BYTES_MAX}: \
                 write it to a file, and return the file's name"
            )));
        }
        // Checked in a form as deep as that which `finish` receives: a result that can't be parsed
        // then must fail now.
        match serde_json::from_str::<Value>(&json) {
            Ok(_) => Ok(json),
            Err(error) => {
                Err(HandlerError::permanent(format!("the result can't be stored: {error}")))
            }
        }
    }
}

/// The calls of the handler's function that the journal of a run contains.
#[derive(Debug, Default)]
pub(crate) struct JournaledHandlerCalls {
    /// Task of the run. `None` means that the journal is empty.
    pub(crate) task: Option<TaskSpec>,
    /// Number of started calls, including calls that a crash or a timeout interrupted.
    pub(crate) starts: u32,
    started: BTreeSet<CallId>,
    /// Output of the first call that succeeded. `None` means that none has succeeded.
    pub(crate) result: Option<ToolOutput>,
    /// Output of the last call that failed in the current attempt of the run. `None` means that
    /// none has failed.
    pub(crate) failure: Option<ToolOutput>,
}

impl JournaledHandlerCalls {
    pub(crate) async fn read_journal(store: &dyn Store, run: RunId) -> Result<Self, StoreError> {
        let mut calls = Self::default();
        let mut after = Seq::START;
        loop {
            let limit = PAGE_SIZE;
            let page = store.read_journal(JournalReadRequest { run, after, limit }).await?;
            let Some(last) = page.entries.last() else {
                return Ok(calls);
            };
            after = last.seq;
            for entry in page.entries {
                calls.apply_event(entry.event);
            }
        }
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "only the task, the calls and the retries matter"
    )]
    fn apply_event(&mut self, event: Event) {
        match event {
            Event::RunCreated(created) => self.task = Some(created.task),
            Event::RunRetried(_) => self.failure = None,
            Event::ToolStarted(started) => {
                self.starts += 1;
                self.started.insert(started.call);
            }
            // Only the first result: `finish` completes as a call too.
            Event::ToolCompleted(completed) => _ = self.result.get_or_insert(completed.output),
            // A call that a message or a timeout interrupted or prevented is made again: a function
            // can't read messages.
            Event::ToolFailed(failed) if self.started.contains(&failed.call) => {
                self.failure = Some(failed.output);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use longhaul_core::event::run::RunRetried;
    use longhaul_core::event::tool::{ToolEnded, ToolStarted};
    use longhaul_core::time::Millis;

    use super::*;

    #[test]
    fn a_failure_is_recorded_only_if_its_call_was_started_in_this_attempt() {
        let call = |index| CallId { turn: 1, index };
        let failed = |index| {
            Event::ToolFailed(ToolEnded {
                call: call(index),
                output: ToolOutput::text("interrupted by a message"),
                active: Millis::ZERO,
            })
        };
        let mut journaled = JournaledHandlerCalls::default();
        // A message arrived before the call started.
        journaled.apply_event(failed(1));
        assert!(journaled.failure.is_none());
        journaled.apply_event(Event::ToolStarted(ToolStarted {
            call: call(2),
            attempt: 1,
            until: None,
            child: None,
        }));
        journaled.apply_event(failed(2));
        assert!(journaled.failure.is_some());
        journaled.apply_event(Event::RunRetried(RunRetried { attempt: 2 }));
        assert!(journaled.failure.is_none());
        assert_eq!(journaled.starts, 1);
    }

    #[test]
    fn encoded_handler_results_decode_to_the_same_value() {
        let output = RunOutput { text: "two".into(), confidence: Some(80), ..RunOutput::default() };
        for (result, start) in [
            (HandlerResult::Value(RawJson::from_serialize(&[1, 2])), "{\"value\":[1,2]}"),
            (HandlerResult::Response(Box::new(output)), "{\"response\":{"),
        ] {
            let encoded = result.encode().unwrap();
            assert!(encoded.starts_with(start), "{encoded}");
            assert_eq!(serde_json::from_str::<HandlerResult>(&encoded).unwrap(), result);
        }
        assert!(serde_json::from_str::<HandlerResult>("7").is_err());
    }
}
