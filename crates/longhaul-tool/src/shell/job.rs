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
use longhaul_core::port::tool::{Progress, SoFar, ToolContext, ToolFailure};
use longhaul_core::time::{Clock, Millis};

use crate::command::{Exit, Group, Heard};

/// So much of what it prints is kept, half of it from the beginning. With our own
/// words it stays under the 10 MiB that a run keeps of one result.
const KEEP_BYTES: usize = 10 * 1024 * 1024 - 64 * 1024;
/// So long it is listened to when the shell has ended: somebody who left its
/// group may hold the pipe open for ever.
const GRACE: Millis = Millis(500);
/// How often it is told what was printed last.
const TELL: Millis = Millis::from_secs(1);
/// The longest line that is told.
const LINE_BYTES_MAX: usize = 200;

/// So much fits into a pipe.
const PIPE_BYTES: usize = 64 * 1024;

/// A command under way.
#[derive(Debug)]
pub(super) struct Job {
    child: Child,
    pipe: Receiver,
    heard: Heard,
    so_far: Option<SoFar>,
    progress: Arc<dyn Progress>,
    /// Last, so that what was heard is there when it is dropped.
    group: Group,
}

/// What comes next of a job.
enum Next {
    Printed(usize),
    /// Nobody holds the pipe any more.
    Silent,
    Ended(Exit),
    Tell,
}

impl Job {
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
            group: Group::of(&child),
            child,
            pipe: Receiver::from_owned_fd(reader.into())?,
            heard: Heard::new(KEEP_BYTES),
            so_far: Some(around.so_far.clone()),
            progress: Arc::clone(&around.progress),
        })
    }

    /// Listens until it has ended. Its time is the caller's to hold.
    pub(super) async fn run(mut self, clock: &dyn Clock) -> Result<ToolOutput, ToolFailure> {
        let mut buffer = vec![0; 16 * 1024];
        let mut told = 0;
        let mut is_silent = false;
        let mut tell = clock.sleep(TELL);
        let exit = loop {
            let next = tokio::select! {
                biased;
                read = self.pipe.read(&mut buffer), if !is_silent => match read {
                    Ok(count @ 1..) => Next::Printed(count),
                    Ok(0) | Err(_) => Next::Silent,
                },
                status = self.child.wait() => {
                    let lost = |why| ToolFailure::new(format!("how it ended can't be told: {why}"));
                    Next::Ended(Exit::of(status.map_err(lost)?))
                }
                () = tell.as_mut() => Next::Tell,
            };
            match next {
                Next::Printed(count) => self.heard.take(&buffer[..count]),
                Next::Silent => is_silent = true,
                Next::Ended(exit) => break exit,
                Next::Tell => {
                    if self.heard.bytes() > told {
                        told = self.heard.bytes();
                        self.tell();
                    }
                    tell = clock.sleep(TELL);
                }
            }
        };
        self.group.kill();
        if !is_silent {
            self.drain(clock, &mut buffer).await;
        }
        self.so_far = None;
        Ok(ToolOutput::text(said(&self.heard, exit)))
    }

    /// What is still in the pipe.
    async fn drain(&mut self, clock: &dyn Clock, buffer: &mut [u8]) {
        let mut over = clock.sleep(GRACE);
        loop {
            tokio::select! {
                biased;
                () = over.as_mut() => return,
                read = self.pipe.read(buffer) => match read {
                    Ok(count @ 1..) => self.heard.take(&buffer[..count]),
                    Ok(0) | Err(_) => return,
                },
            }
        }
    }

    /// What stands in the pipe right now, which holds no more than a little.
    fn heard_last(&mut self) {
        let mut buffer = vec![0; PIPE_BYTES];
        if let Ok(count) = rustix::io::read(&self.pipe, &mut buffer) {
            self.heard.take(&buffer[..count]);
        }
    }

    fn tell(&self) {
        let last = self.heard.last(LINE_BYTES_MAX);
        if let Some(line) = last.lines().next_back() {
            self.progress.report(None, line.trim());
        }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        self.group.kill();
        if let Some(so_far) = self.so_far.take() {
            self.heard_last();
            so_far.leave(printed(&self.heard));
        }
    }
}

/// What was printed. Where that is not all of it, its last line says so: a model
/// is shown the end of a long result, and not the place where something is missing.
fn printed(heard: &Heard) -> String {
    let mut text = heard.text();
    if let Some(parts) = heard.parts() {
        if !text.ends_with('\n') {
            text.push('\n');
        }
        text.push_str(&format!(
            "[It printed {} bytes in all. Its first {} and its last {} are kept; the {} between \
             them are lost. What is to be read whole goes into a file.]\n",
            heard.bytes(),
            parts.first,
            parts.last,
            heard.dropped()
        ));
    }
    text
}

/// What was printed, and how it ended.
fn said(heard: &Heard, exit: Exit) -> String {
    let mut text = printed(heard);
    if text.is_empty() {
        text.push_str("[It printed nothing.]");
    }
    if !text.ends_with('\n') {
        text.push('\n');
    }
    match exit {
        Exit::Code(code) => text.push_str(&format!("exit {code}")),
        Exit::Signal(_) | Exit::Late(_) | Exit::Long(_) => text.push_str(&format!("it {exit}")),
    }
    text
}
