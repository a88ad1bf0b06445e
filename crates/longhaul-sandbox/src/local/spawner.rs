//! The thread that starts the processes of commands.
//!
//! The kernel kills a command when the thread that started it has ended. The threads of the async
//! runtime may end at any time, so that one thread which lives as long as the provider starts all
//! commands.

use std::io;
use std::sync::mpsc;

use longhaul_core::port::sandbox::SandboxError;
use tokio::process::{Child, Command};
use tokio::runtime::Handle;

/// A command to start, and the receiver of its process.
type Request = (Command, mpsc::SyncSender<io::Result<Child>>);

/// The thread that starts the processes of commands.
#[derive(Debug)]
pub(crate) struct Spawner {
    requests: mpsc::Sender<Request>,
}

impl Spawner {
    /// Starts the thread. It ends when the spawner is dropped.
    pub(crate) fn start() -> Result<Self, SandboxError> {
        let runtime = Handle::current();
        let (requests, receiver) = mpsc::channel::<Request>();
        let run = move || {
            // The process is registered with the runtime, which reports its end.
            let _context = runtime.enter();
            while let Ok((mut command, reply)) = receiver.recv() {
                let spawned = command.spawn();
                // Closes the ends of pipes that belong to the process.
                drop(command);
                _ = reply.send(spawned);
            }
        };
        let thread = std::thread::Builder::new().name("sandbox-spawner".to_owned()).spawn(run);
        match thread {
            Ok(_) => Ok(Self { requests }),
            Err(error) => Err(SandboxError::Unavailable(format!(
                "the thread that starts commands can't be created: {error}"
            ))),
        }
    }

    /// Starts a process. Blocks until it has been started.
    pub(crate) fn spawn(&self, command: Command) -> io::Result<Child> {
        let (reply, spawned) = mpsc::sync_channel(1);
        let ended = || io::Error::other("the thread that starts commands has ended");
        self.requests.send((command, reply)).map_err(|_| ended())?;
        spawned.recv().map_err(|_| ended())?
    }
}
