//! One shell command in the sandbox of a run.

use std::sync::{Arc, Mutex};

use longhaul_core::event::tool::ToolOutput;
use longhaul_core::port::sandbox::{
    ExecExit, ExecStatus, Sandbox, SandboxCommand, SandboxError, WORKSPACE,
};
use longhaul_core::port::tool::{PartialToolOutput, ToolContext, ToolFailure};
use longhaul_core::time::Clock;

use crate::command::CapturedOutput;
use crate::shell::process::{
    LINE_BYTES_MAX, OUTPUT_BYTES_MAX, REPORT_INTERVAL, result_text, shell_failure,
    text_with_loss_note,
};

/// Runs a command in the sandbox until it ends. The caller enforces the timeout.
pub(super) async fn run_in_sandbox(
    sandbox: &Arc<dyn Sandbox>,
    (script, cwd): (&str, Option<&str>),
    (ctx, clock): (&ToolContext, &dyn Clock),
) -> Result<ToolOutput, ToolFailure> {
    let mut command = SandboxCommand::shell(script);
    command.cwd = cwd.map(sandbox_path).transpose()?;
    let vars = [("TERM", "dumb".to_owned()), ("LONGHAUL_RUN", ctx.run.to_string())];
    command.env = vars.map(|(name, value)| (name.to_owned(), value)).into();
    let output = Arc::new(Mutex::new(CapturedOutput::new(OUTPUT_BYTES_MAX)));
    // Dropped when the call is dropped, which kills the command.
    let partial = PartialGuard { output: Arc::clone(&output), partial: ctx.partial_output.clone() };
    let mut receive = |_, bytes: &[u8]| lock(&output).push_bytes(bytes);
    let exit = tokio::select! {
        biased;
        exit = sandbox.exec(command, &mut receive) => exit,
        () = report_progress(&partial.output, (ctx, clock)) => {
            Err(SandboxError::Unavailable(String::new()))
        }
    };
    let exit = exit.map_err(|error| match &error {
        SandboxError::File(_) | SandboxError::Refused(_) => shell_failure(&error),
        SandboxError::NotFound | SandboxError::NoCapacity(_) | SandboxError::Unavailable(_) => {
            ToolFailure::outcome_unknown(format!(
                "The outcome of the command is unknown: {error}. Check the state of the files \
                 before you repeat it."
            ))
        }
    })?;
    let captured = lock(&output);
    Ok(ToolOutput::text(format!("{}{}", result_text(&captured, exit_text(&exit)), refusals(&exit))))
}

/// Returns the path in the sandbox of a working directory that the model gives.
fn sandbox_path(cwd: &str) -> Result<String, ToolFailure> {
    if cwd.contains('\0') {
        return Err(shell_failure("`cwd` contains a NUL character"));
    }
    Ok(match cwd.starts_with('/') {
        true => cwd.to_owned(),
        false => format!("{WORKSPACE}/{cwd}"),
    })
}

fn exit_text(exit: &ExecExit) -> String {
    match exit.status {
        ExecStatus::Exited(code) => format!("exit {code}"),
        ExecStatus::Signaled(signal) => format!("the command was killed by signal {signal}"),
        ExecStatus::TimedOut => "the command was killed: its time was up".to_owned(),
        ExecStatus::OverLimit => {
            "the command was killed: the sandbox used more memory or disk than it may".to_owned()
        }
    }
}

/// Returns what the sandbox refused to the command, as lines for the model.
fn refusals(exit: &ExecExit) -> String {
    let lines = exit.refusals.iter().map(|refusal| format!("\n[{refusal}]"));
    lines.collect()
}

async fn report_progress(output: &Mutex<CapturedOutput>, (ctx, clock): (&ToolContext, &dyn Clock)) {
    let mut reported_bytes = 0;
    loop {
        clock.sleep(REPORT_INTERVAL).await;
        let last = {
            let output = lock(output);
            let is_new = output.total_bytes() > reported_bytes;
            reported_bytes = output.total_bytes();
            is_new.then(|| output.tail_text(LINE_BYTES_MAX))
        };
        if let Some(line) = last.as_deref().and_then(|text| text.lines().next_back()) {
            ctx.progress.report(None, line.trim());
        }
    }
}

/// Keeps the output of a command that is dropped before it ends.
struct PartialGuard {
    output: Arc<Mutex<CapturedOutput>>,
    partial: PartialToolOutput,
}

impl Drop for PartialGuard {
    fn drop(&mut self) {
        self.partial.set_output_so_far(text_with_loss_note(&lock(&self.output)));
    }
}

fn lock(output: &Mutex<CapturedOutput>) -> std::sync::MutexGuard<'_, CapturedOutput> {
    output.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
