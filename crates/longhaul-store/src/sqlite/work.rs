//! A command on its way through the writer: run inside a commit, answered after it.
//!
//! Never: an answer before the commit stands.

use longhaul_core::port::store::StoreError;
use tokio::sync::oneshot;

use crate::sqlite::fault::{Fault, Lost};
use crate::sqlite::tx::Tx;

/// What a command did, with its answer.
#[derive(Debug)]
pub(crate) enum Done<T> {
    /// It wrote something that others may wait for.
    Kept(T),
    /// It wrote nothing, or nothing that anybody waits for.
    Quiet(T),
    /// What it wrote is to be undone.
    Undone(T),
}

/// What a command did, without its answer.
#[derive(Debug)]
pub(crate) enum Ran {
    /// It wrote something that others may wait for.
    Kept,
    /// It wrote nothing that anybody waits for.
    Quiet,
    /// What it wrote is to be undone.
    Undone,
    /// It broke; what it wrote is to be undone.
    Broke(Lost),
}

/// A command that the writer can run and answer without knowing what it is.
pub(crate) trait Work: Send {
    /// Does it, inside the commit. It may be done again if that was rolled back.
    fn run(&mut self, tx: &Tx<'_>, at: &str) -> Ran;

    /// Tells its caller, after the commit; `lost` says that there was none.
    fn answer(self: Box<Self>, lost: Option<StoreError>);
}

/// A command with its caller.
pub(crate) struct Task<T, F> {
    work: F,
    done: Option<Result<T, StoreError>>,
    caller: oneshot::Sender<Result<T, StoreError>>,
}

impl<T, F> Task<T, F> {
    /// A command whose answer goes to `caller`.
    pub(crate) const fn new(work: F, caller: oneshot::Sender<Result<T, StoreError>>) -> Self {
        Self {
            work,
            done: None,
            caller,
        }
    }
}

impl<T, F> Work for Task<T, F>
where
    T: Send,
    F: Fn(&Tx<'_>) -> Result<Done<T>, Fault> + Send,
{
    fn run(&mut self, tx: &Tx<'_>, at: &str) -> Ran {
        let (ran, done) = match (self.work)(tx) {
            Ok(Done::Kept(value)) => (Ran::Kept, Ok(value)),
            Ok(Done::Quiet(value)) => (Ran::Quiet, Ok(value)),
            Ok(Done::Undone(value)) => (Ran::Undone, Ok(value)),
            Err(fault) => (Ran::Broke(fault.lost()), Err(fault.into_error(at))),
        };
        self.done = Some(done);
        ran
    }

    fn answer(self: Box<Self>, lost: Option<StoreError>) {
        let done = match lost {
            Some(error) => Some(Err(error)),
            None => self.done,
        };
        // A caller that has gone away does not want to know.
        if let Some(done) = done {
            _ = self.caller.send(done);
        }
    }
}
