//! Sandboxes: lists, shows, starts, stops and deletes them, and runs commands in them for people.

use longhaul_api::sandbox::{RunSandboxView, SandboxExecBody, SandboxExecView, SandboxView};
use longhaul_core::change::{
    JournalBatch, RowChange, SandboxFilter, SandboxRow, SandboxSlot, SandboxState,
};
use longhaul_core::event::Event;
use longhaul_core::event::environment::SandboxCommandRun;
use longhaul_core::id::{RunId, SandboxId};
use longhaul_core::port::sandbox::{
    ExecStatus, OutputStream, Sandbox, SandboxCommand, SandboxError, Sandboxes,
};
use longhaul_core::port::store::{AppendRefusalReason, AppendRequest, AppendResult, JournalAuthor};
use longhaul_core::time::Millis;
use longhaul_run::change_idle_sandbox;

use crate::background::sandboxes::{delete_sandbox, record_sandbox_state, stop_sandbox};
use crate::error::{Error, Result};
use crate::guard::redaction::Redaction;
use crate::handle::Longhaul;
use crate::panics::guard;

/// Default time after which a command that a person runs is killed.
const EXEC_TIMEOUT: Millis = Millis::from_secs(60);

/// Maximum time after which a command that a person runs is killed.
const EXEC_TIMEOUT_MAX: Millis = Millis::from_secs(600);

/// Maximum number of bytes kept from the end of each output stream.
const OUTPUT_BYTES_MAX: usize = 1024 * 1024;

/// Timeout for starting a sandbox for a person.
const START_TIMEOUT: Millis = Millis::from_secs(5 * 60);

impl Longhaul {
    /// Lists sandboxes by id, i.e. in the order in which they were created.
    pub async fn list_sandboxes(&self, filter: SandboxFilter) -> Result<Vec<SandboxView>> {
        let rows = self.services.records.list_sandboxes(filter).await?;
        Ok(rows.iter().map(SandboxView::from).collect())
    }

    /// Returns the sandbox with this id.
    pub async fn get_sandbox(&self, id: SandboxId) -> Result<SandboxView> {
        Ok(SandboxView::from(&self.sandbox_row(id).await?))
    }

    /// Stops an idle sandbox and keeps its files.
    pub async fn stop_sandbox(&self, id: SandboxId, by: &str) -> Result<SandboxView> {
        let row = self.idle_sandbox_row(id).await?;
        if row.state.holds_slot() {
            let provider = self.sandbox_provider(&row)?;
            stop_sandbox(&self.services, &*provider, (&row, format!("stopped by {by}"))).await?;
        }
        self.get_sandbox(id).await
    }

    /// Deletes an idle sandbox with its files. If its run continues, the run gets a new sandbox.
    pub async fn delete_sandbox(&self, id: SandboxId, by: &str) -> Result<SandboxView> {
        self.stop_sandbox(id, by).await?;
        let row = self.idle_sandbox_row(id).await?;
        if !row.state.is_gone() {
            let provider = self.sandbox_provider(&row)?;
            delete_sandbox(&self.services, &*provider, (&row, format!("deleted by {by}"))).await?;
        }
        self.get_sandbox(id).await
    }

    /// Starts the stopped sandbox of a run that has not ended. Without use it is stopped again after
    /// a while.
    pub async fn start_sandbox(&self, id: SandboxId, by: &str) -> Result<SandboxView> {
        let row = self.idle_sandbox_row(id).await?;
        if row.owner_ended || row.state != SandboxState::Stopped {
            let reason = match row.owner_ended {
                true => "its run has ended, so it is not started again".to_owned(),
                false => format!("it is {}, not stopped", row.state.as_str()),
            };
            return Err(Error::SandboxUnusable { sandbox: id, reason });
        }
        let now = self.services.records.now().await?;
        // A person uses the sandbox from now on.
        let row = SandboxRow { idle_since: Some(now), ..row };
        let reason = Some(format!("started by {by}"));
        let (starting, batch) = change_idle_sandbox(&row, SandboxState::Starting, (now, reason));
        self.append_start(&row, batch).await?;
        let provider = self.sandbox_provider(&row)?;
        let opened = self.open_sandbox(&*provider, &starting).await;
        let state = if opened.is_ok() { SandboxState::Running } else { SandboxState::Stopped };
        let reason = opened.as_ref().err().map(ToString::to_string);
        record_sandbox_state(&self.services, &starting, (state, reason)).await?;
        opened
            .map_err(|error| Error::SandboxUnusable { sandbox: id, reason: error.to_string() })?;
        self.get_sandbox(id).await
    }

    /// Appends the start of a sandbox, which acquires a slot of its provider.
    async fn append_start(&self, row: &SandboxRow, mut batch: JournalBatch) -> Result<()> {
        let sandbox = row.event.sandbox;
        batch.changes.push(RowChange::AcquireSlot(SandboxSlot {
            sandbox,
            provider: row.event.provider.clone(),
            capacity: self.services.sandboxes.settings().max_running,
        }));
        let run = self.run_row(row.owner).await?;
        let author = JournalAuthor::Closer { after: run.last_seq };
        let append = AppendRequest { run: row.owner, author, batch };
        let reason = match self.services.append_and_notify(append).await? {
            AppendResult::Committed { .. } => return Ok(()),
            AppendResult::Refused(AppendRefusalReason::NoSlot) => {
                "all slots of its provider are in use: stop another sandbox first"
            }
            AppendResult::Refused(_)
            | AppendResult::Conflict
            | AppendResult::Fenced
            | AppendResult::RunEnded
            | AppendResult::RunNotFound => "its run has just changed: try again",
        };
        Err(Error::SandboxUnusable { sandbox, reason: reason.to_owned() })
    }

    /// Runs a command in a running sandbox and records it in the journal of the run.
    pub async fn exec_in_sandbox(
        &self,
        id: SandboxId,
        body: SandboxExecBody,
        by: &str,
    ) -> Result<SandboxExecView> {
        let row = self.sandbox_row(id).await?;
        if row.state != SandboxState::Running {
            let reason = format!(
                "it is {}: start it with `longhaul sandboxes start {id}`",
                row.state.as_str()
            );
            return Err(Error::SandboxUnusable { sandbox: id, reason });
        }
        if !row.owner_ended {
            let command = body.command.iter().map(|part| {
                let mut part = part.clone();
                Redaction(&*self.services.redact).clean(&mut part);
                part
            });
            let event =
                SandboxCommandRun { sandbox: id, command: command.collect(), by: by.to_owned() };
            let batch = JournalBatch {
                events: vec![Event::SandboxCommandRun(event)],
                ..JournalBatch::default()
            };
            let author = JournalAuthor::Outsider;
            let append = AppendRequest { run: row.owner, author, batch };
            self.services.append_and_notify(append).await?;
        }
        let provider = self.sandbox_provider(&row)?;
        let unusable =
            |error: SandboxError| Error::SandboxUnusable { sandbox: id, reason: error.to_string() };
        let sandbox = self.open_sandbox(&*provider, &row).await.map_err(unusable)?;
        let timeout = body.timeout.map_or(EXEC_TIMEOUT, Millis::from_secs).min(EXEC_TIMEOUT_MAX);
        let command = SandboxCommand {
            argv: body.command,
            cwd: body.cwd,
            timeout: Some(timeout),
            ..SandboxCommand::default()
        };
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let mut receive = |stream, bytes: &[u8]| match stream {
            OutputStream::Stdout => push_bounded(&mut stdout, bytes),
            OutputStream::Stderr => push_bounded(&mut stderr, bytes),
        };
        let exit = sandbox.exec(command, &mut receive).await.map_err(unusable)?;
        let (code, killed) = match exit.status {
            ExecStatus::Exited(code) => (Some(code), None),
            ExecStatus::Signaled(signal) => (None, Some(format!("signal {signal}"))),
            ExecStatus::TimedOut => (None, Some("its time was up".to_owned())),
            ExecStatus::OverLimit => (None, Some("it used too much memory or disk".to_owned())),
        };
        let text = |bytes: &[u8]| {
            let mut text = String::from_utf8_lossy(bytes).into_owned();
            Redaction(&*self.services.redact).clean(&mut text);
            text
        };
        Ok(SandboxExecView {
            exit: code,
            killed,
            stdout: text(&stdout),
            stderr: text(&stderr),
            refused: exit.refusals.into_iter().collect(),
        })
    }

    /// Returns the current sandbox of a run for its view.
    pub(super) async fn sandbox_of_ended_run(&self, run: RunId) -> Result<Option<RunSandboxView>> {
        let filter =
            SandboxFilter { owner: Some(run), with_gone: true, limit: 100, ..Default::default() };
        let rows = self.services.records.list_sandboxes(filter).await?;
        Ok(rows.last().map(|row| RunSandboxView::new(&row.event, row.state)))
    }

    async fn sandbox_row(&self, id: SandboxId) -> Result<SandboxRow> {
        // The list begins after the id before this one.
        let after = Some(SandboxId::from_bits(id.bits().saturating_sub(1)));
        let filter = SandboxFilter { with_gone: true, after, limit: 1, ..Default::default() };
        let rows = self.services.records.list_sandboxes(filter).await?;
        let row = rows.into_iter().find(|row| row.event.sandbox == id);
        row.ok_or(Error::SandboxNotFound(id))
    }

    /// Returns the row of a sandbox that its run does not use now.
    async fn idle_sandbox_row(&self, id: SandboxId) -> Result<SandboxRow> {
        let row = self.sandbox_row(id).await?;
        if row.idle_since.is_some() || row.state.is_gone() {
            return Ok(row);
        }
        let reason = format!("its run uses it: pause the run with `longhaul pause {}`", row.owner);
        Err(Error::SandboxUnusable { sandbox: id, reason })
    }

    fn sandbox_provider(&self, row: &SandboxRow) -> Result<std::sync::Arc<dyn Sandboxes>> {
        let provider = self.services.sandboxes.find_provider(&row.event.provider);
        let sandbox = row.event.sandbox;
        provider.cloned().map_err(|reason| Error::SandboxUnusable { sandbox, reason })
    }

    /// Connects to the sandbox with the settings of its run's agent.
    async fn open_sandbox(
        &self,
        provider: &dyn Sandboxes,
        row: &SandboxRow,
    ) -> std::result::Result<std::sync::Arc<dyn Sandbox>, SandboxError> {
        let unavailable = |error: String| SandboxError::Unavailable(error);
        let run = self.run_row(row.owner).await.map_err(|error| unavailable(error.to_string()))?;
        let (definitions, records) = (&self.services.definitions, &*self.services.records);
        let agent = definitions.load_agent(records, run.definition).await;
        let agent = agent.map_err(|error| unavailable(error.to_string()))?;
        let config = agent.as_ref().and_then(|agent| agent.sandbox_config());
        let config = config.cloned().unwrap_or_default();
        let spec = self.services.sandboxes.spec(&config, &row.event);
        let started = provider.start(&row.event.handle, &spec);
        let started = guard(&*self.services.clock, START_TIMEOUT, started).await;
        started.map_err(|error| unavailable(error.to_string()))?
    }
}

/// Appends bytes and keeps only the end if there are too many.
fn push_bounded(kept: &mut Vec<u8>, bytes: &[u8]) {
    kept.extend_from_slice(bytes);
    let excess = kept.len().saturating_sub(OUTPUT_BYTES_MAX);
    // Removed rarely, because each removal moves all that is kept.
    if excess > OUTPUT_BYTES_MAX / 4 {
        kept.drain(..excess);
    }
}
