//! One command under way: its processes, and what they have printed.
//!
//! Never: outlives its call. Dropped, it kills its processes and leaves what
//! they had printed.

use std::io;
use std::process::Stdio;
use std::sync::Arc;

use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe::Receiver;
use tokio::process::{Child, Command};

use longhaul_core::event::tool::ToolOutput;
use longhaul_core::port::tool::{PartialOutput, Progress, ToolContext, ToolFailure};
use longhaul_core::time::{Clock, Millis};

use crate::command::{CapturedOutput, Exit, ProcessGroup};

/// So much of what it prints is kept, half of it from the beginning. With our own
/// words it stays under the 10 MiB that a run keeps of one result.
const OUTPUT_BYTES_MAX: usize = 10 * 1024 * 1024 - 64 * 1024;
/// So long it is listened to when the shell has ended: somebody who left its
/// group may hold the pipe open for ever.
const PIPE_GRACE: Millis = Millis(500);
/// How often it is told what was printed last.
const REPORT_INTERVAL: Millis = Millis::from_secs(1);
/// The longest line that is told.
const LINE_BYTES_MAX: usize = 200;

/// So much fits into a pipe.
const PIPE_BYTES: usize = 64 * 1024;

/// A command under way.
#[derive(Debug)]
pub(super) struct ShellProcess {
    child: Child,
    pipe: Receiver,
    output: CapturedOutput,
    partial_output: Option<PartialOutput>,
    progress: Arc<dyn Progress>,
    /// Last, so that what was heard is there when it is dropped.
    group: ProcessGroup,
}

/// What comes next of a job.
enum ProcessEvent {
    Printed(usize),
    /// Nobody holds the pipe any more.
    Eof,
    Exited(Exit),
    ReportDue,
}

impl ShellProcess {
    /// Starts it. Output and errors go into one pipe, so that they stay in order.
    pub(super) fn start(mut command: Command, around: &ToolContext) -> io::Result<Self> {
        let (reader, writer) = io::pipe()?;
        command
            .stdin(Stdio::null())
            .stdout(writer.try_clone()?)
            .stderr(writer)
            .process_group(0)
            .kill_on_drop(true);
        let child = command.spawn()?;
        // It holds the writing ends, which would keep the pipe open.
        drop(command);
        Ok(Self {
            group: ProcessGroup::from_leader(&child),
            child,
            pipe: Receiver::from_owned_fd(reader.into())?,
            output: CapturedOutput::new(OUTPUT_BYTES_MAX),
            partial_output: Some(around.partial_output.clone()),
            progress: Arc::clone(&around.progress),
        })
    }

    /// Listens until it has ended. Its time is the caller's to hold.
    pub(super) async fn run(mut self, clock: &dyn Clock) -> Result<ToolOutput, ToolFailure> {
        let mut buffer = vec![0; 16 * 1024];
        let mut told = 0;
        let mut is_silent = false;
        let mut tell = clock.sleep(REPORT_INTERVAL);
        let exit = loop {
            let next = tokio::select! {
                biased;
                read = self.pipe.read(&mut buffer), if !is_silent => match read {
                    Ok(count @ 1..) => ProcessEvent::Printed(count),
                    Ok(0) | Err(_) => ProcessEvent::Eof,
                },
                status = self.child.wait() => {
                    let lost = |why| ToolFailure::new(format!("how it ended can't be told: {why}"));
                    ProcessEvent::Exited(Exit::from_status(status.map_err(lost)?))
                }
                () = tell.as_mut() => ProcessEvent::ReportDue,
            };
            match next {
                ProcessEvent::Printed(count) => self.output.push(&buffer[..count]),
                ProcessEvent::Eof => is_silent = true,
                ProcessEvent::Exited(exit) => break exit,
                ProcessEvent::ReportDue => {
                    if self.output.total_bytes() > told {
                        told = self.output.total_bytes();
                        self.report_progress();
                    }
                    tell = clock.sleep(REPORT_INTERVAL);
                }
            }
        };
        self.group.kill();
        if !is_silent {
            self.drain(clock, &mut buffer).await;
        }
        self.partial_output = None;
        Ok(ToolOutput::text(result_text(&self.output, exit)))
    }

    /// What is still in the pipe.
    async fn drain(&mut self, clock: &dyn Clock, buffer: &mut [u8]) {
        let mut over = clock.sleep(PIPE_GRACE);
        loop {
            tokio::select! {
                biased;
                () = over.as_mut() => return,
                read = self.pipe.read(buffer) => match read {
                    Ok(count @ 1..) => self.output.push(&buffer[..count]),
                    Ok(0) | Err(_) => return,
                },
            }
        }
    }

    /// What stands in the pipe right now, which holds no more than a little.
    fn drain_now(&mut self) {
        let mut buffer = vec![0; PIPE_BYTES];
        if let Ok(count) = rustix::io::read(&self.pipe, &mut buffer) {
            self.output.push(&buffer[..count]);
        }
    }

    fn report_progress(&self) {
        let last = self.output.last_text(LINE_BYTES_MAX);
        if let Some(line) = last.lines().next_back() {
            self.progress.report(None, line.trim());
        }
    }
}

impl Drop for ShellProcess {
    fn drop(&mut self) {
        self.group.kill();
        if let Some(so_far) = self.partial_output.take() {
            self.drain_now();
            so_far.set(output_text(&self.output));
        }
    }
}

/// What was printed. Where that is not all of it, its last line says so: a model
/// is shown the end of a long result, and not the place where something is missing.
fn output_text(heard: &CapturedOutput) -> String {
    let mut text = heard.text();
    if let Some(parts) = heard.kept_ends() {
        if !text.ends_with('\n') {
            text.push('\n');
        }
        text.push_str(&format!(
            "[It printed {} bytes in all. Its first {} and its last {} are kept; the {} between \
             them are lost. What is to be read whole goes into a file.]\n",
            heard.total_bytes(),
            parts.head_bytes,
            parts.tail_bytes,
            heard.dropped_bytes()
        ));
    }
    text
}

/// What was printed, and how it ended.
fn result_text(heard: &CapturedOutput, exit: Exit) -> String {
    let mut text = output_text(heard);
    if text.is_empty() {
        text.push_str("[It printed nothing.]");
    }
    if !text.ends_with('\n') {
        text.push('\n');
    }
    match exit {
        Exit::Code(code) => text.push_str(&format!("exit {code}")),
        Exit::Signal(_) | Exit::TimedOut(_) | Exit::OutputLimit(_) => {
            text.push_str(&format!("it {exit}"))
        }
    }
    text
}
