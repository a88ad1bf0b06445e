//! One running shell command: its processes and its output.
//!
//! Invariant: the command does not outlive its call. Dropping it kills the processes and stores the
//! output so far.

use std::io;
use std::process::Stdio;
use std::sync::Arc;

use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe::Receiver;
use tokio::process::{Child, Command};

use longhaul_core::event::tool::ToolOutput;
use longhaul_core::port::tool::{PartialToolOutput, Progress, ToolContext, ToolFailure};
use longhaul_core::time::{Clock, Millis};

use crate::command::{CapturedOutput, ProcessGroup, ProgramExit, within_pipe_grace};

/// Maximum number of bytes kept of a command's output, half of them from the beginning. With the
/// notes that we add, the result stays below the 10 MiB limit for a stored tool output.
pub(super) const OUTPUT_BYTES_MAX: usize = 10 * 1024 * 1024 - 64 * 1024;
/// Interval of progress reports during a command.
pub(super) const REPORT_INTERVAL: Millis = Millis::from_secs(1);
/// Maximum length of an output line in a progress report, in bytes.
pub(super) const LINE_BYTES_MAX: usize = 200;

/// Capacity of the output pipe in bytes.
const PIPE_BYTES: usize = 64 * 1024;

/// A running shell command.
#[derive(Debug)]
pub(super) struct ShellProcess {
    child: Child,
    pipe: Receiver,
    output: CapturedOutput,
    partial_output: Option<PartialToolOutput>,
    progress: Arc<dyn Progress>,
    /// Process group of the command, which is killed when dropped.
    group: ProcessGroup,
}

impl ShellProcess {
    /// Starts the command. Stdout and stderr share one pipe, so that their lines stay in order.
    pub(super) fn start_command(mut command: Command, ctx: &ToolContext) -> io::Result<Self> {
        let (reader, writer) = io::pipe()?;
        command
            .stdin(Stdio::null())
            .stdout(writer.try_clone()?)
            .stderr(writer)
            .process_group(0)
            .kill_on_drop(true);
        let child = command.spawn()?;
        // The command holds the write ends, which would keep the pipe open.
        drop(command);
        Ok(Self {
            group: ProcessGroup::led_by(&child),
            child,
            pipe: Receiver::from_owned_fd(reader.into())?,
            output: CapturedOutput::new(OUTPUT_BYTES_MAX),
            partial_output: Some(ctx.partial_output.clone()),
            progress: Arc::clone(&ctx.progress),
        })
    }

    /// Reads the output until the command exits. The caller enforces the timeout.
    pub(super) async fn run_until_exit(
        mut self,
        clock: &dyn Clock,
    ) -> Result<ToolOutput, ToolFailure> {
        let mut buffer = vec![0; 16 * 1024];
        let mut reported_bytes = 0;
        let mut is_eof = false;
        let mut report_timer = clock.sleep(REPORT_INTERVAL);
        let exit = loop {
            tokio::select! {
                biased;
                result = self.pipe.read(&mut buffer), if !is_eof => match result {
                    Ok(count @ 1..) => self.output.push_bytes(&buffer[..count]),
                    // All processes have closed the output pipe.
                    Ok(0) | Err(_) => is_eof = true,
                },
                status = self.child.wait() => {
                    let wait_failure = |error| {
                        ToolFailure::with_possible_effect(format!(
                            "the exit status is unknown: {error}"
                        ))
                    };
                    break ProgramExit::from_status(status.map_err(wait_failure)?);
                }
                () = report_timer.as_mut() => {
                    if self.output.total_bytes() > reported_bytes {
                        reported_bytes = self.output.total_bytes();
                        self.report_progress();
                    }
                    report_timer = clock.sleep(REPORT_INTERVAL);
                }
            }
        };
        self.group.kill();
        if !is_eof {
            let (pipe, output) = (&mut self.pipe, &mut self.output);
            let drain = async {
                while let Ok(count @ 1..) = pipe.read(&mut buffer).await {
                    output.push_bytes(&buffer[..count]);
                }
            };
            within_pipe_grace(clock, drain).await;
        }
        self.partial_output = None;
        Ok(ToolOutput::text(command_result_text(&self.output, exit)))
    }

    fn report_progress(&self) {
        let last = self.output.tail_text(LINE_BYTES_MAX);
        if let Some(line) = last.lines().next_back() {
            self.progress.report(None, line.trim());
        }
    }
}

impl Drop for ShellProcess {
    fn drop(&mut self) {
        self.group.kill();
        if let Some(partial_output) = self.partial_output.take() {
            // What is in the pipe right now is at most the pipe's capacity.
            let mut buffer = vec![0; PIPE_BYTES];
            if let Ok(count) = rustix::io::read(&self.pipe, &mut buffer) {
                self.output.push_bytes(&buffer[..count]);
            }
            partial_output.set_output_so_far(text_with_loss_note(&self.output));
        }
    }
}

/// Returns the output as text. If some of it was dropped, the last line says so, because a model is
/// shown the end of a long result and not the place where something is missing.
pub(super) fn text_with_loss_note(output: &CapturedOutput) -> String {
    let mut text = output.text_with_gap_note();
    if let Some((head_bytes, tail_bytes)) = output.kept_sizes() {
        if !text.ends_with('\n') {
            text.push('\n');
        }
        text.push_str(&format!(
            "[The command printed {} bytes in total. The first {head_bytes} and the last {tail_bytes} are \
             kept; the {} between them are lost. Redirect the output to a file to read all of it.]\n",
            output.total_bytes(),
            output.dropped_bytes()
        ));
    }
    text
}

/// Returns the output as text, with a note about how the command ended.
fn command_result_text(output: &CapturedOutput, exit: ProgramExit) -> String {
    let exit_text = match exit {
        ProgramExit::Code(code) => format!("exit {code}"),
        ProgramExit::Signal(_) | ProgramExit::TimedOut(_) | ProgramExit::OutputLimit(_) => {
            format!("the command {exit}")
        }
    };
    result_text(output, exit_text)
}

/// Returns the output as text, followed by this text about how the command ended.
pub(super) fn result_text(output: &CapturedOutput, exit_text: String) -> String {
    let mut text = text_with_loss_note(output);
    if text.is_empty() {
        text.push_str("[The command printed nothing.]");
    }
    if !text.ends_with('\n') {
        text.push('\n');
    }
    text + &exit_text
}

pub(super) fn shell_failure(reason: impl std::fmt::Display) -> ToolFailure {
    ToolFailure::new(format!("The command was not run: {reason}."))
}
