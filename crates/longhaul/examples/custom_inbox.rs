//! An inbox over another system: a ticket system whose open tickets become tasks, and which gets the
//! answers. Here the ticket system is a list in memory.
//!
//! It needs no model and stores nothing, so it runs anywhere.

#![allow(clippy::print_stdout, reason = "an example prints its result")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use longhaul::inbox::{ClaimFilter, Inbox, InboxError, InboxTask, TaskFailure};
use longhaul::{CancellationToken, HandlerError, RunView, Runtime, Task, async_trait};

/// State of a ticket.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Ticket {
    Open(&'static str),
    Assigned,
    Closed(String),
}

/// A ticket system with numbered tickets.
#[derive(Debug, Clone, Default)]
struct TicketSystem(Arc<Mutex<BTreeMap<u32, Ticket>>>);

impl TicketSystem {
    fn with_tickets<T>(&self, update: impl FnOnce(&mut BTreeMap<u32, Ticket>) -> T) -> T {
        update(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn close(&self, number: &str, answer: String) -> Result<(), InboxError> {
        let number = number.parse()?;
        // Closing a ticket twice has no further effect, so it may be repeated after a crash.
        self.with_tickets(|tickets| tickets.insert(number, Ticket::Closed(answer)));
        Ok(())
    }
}

/// The inbox of the ticket system, with a signal that all tickets are closed.
#[derive(Debug)]
struct TicketInbox {
    system: TicketSystem,
    all_closed: CancellationToken,
}

impl TicketInbox {
    fn signal_if_all_closed(&self) {
        let is_closed = |ticket: &Ticket| matches!(ticket, Ticket::Closed(_));
        if self.system.with_tickets(|tickets| tickets.values().all(is_closed)) {
            self.all_closed.cancel();
        }
    }
}

#[async_trait]
impl Inbox for TicketInbox {
    fn name(&self) -> &str {
        "tickets"
    }

    async fn claim(&self, filter: &ClaimFilter) -> Result<Vec<InboxTask>, InboxError> {
        Ok(self.system.with_tickets(|tickets| {
            let mut tasks = Vec::new();
            for (number, ticket) in tickets.iter_mut() {
                if let Ticket::Open(question) = *ticket
                    && tasks.len() < filter.limit
                {
                    *ticket = Ticket::Assigned;
                    let task = Task::new("answer").input(question);
                    tasks.push(InboxTask::new(number.to_string(), task));
                }
            }
            tasks
        }))
    }

    async fn complete(&self, id: &str, run: &RunView) -> Result<(), InboxError> {
        let text = run.output.as_ref().map(|output| output.text.clone());
        self.system.close(id, text.unwrap_or_default())
    }

    async fn fail(&self, id: &str, failure: &TaskFailure) -> Result<(), InboxError> {
        self.system.close(id, format!("Sorry: {}", failure.error.message))
    }

    async fn on_complete(&self, _id: &str, _run: &RunView) {
        self.signal_if_all_closed();
    }

    async fn on_error(&self, _id: &str, _failure: &TaskFailure) {
        self.signal_if_all_closed();
    }
}

#[tokio::main]
pub(crate) async fn main() -> Result<(), longhaul::Error> {
    let runtime = Runtime::builder()
        .store("sqlite::memory:")
        .handler("answer", |request, _progress| async move {
            match request.input::<String>()?.as_str() {
                "When do you open?" => Ok("We open at nine."),
                _ => Err(HandlerError::new("we don't know that")),
            }
        })
        .open()
        .await?;
    let system = TicketSystem::default();
    system.with_tickets(|tickets| {
        tickets.insert(1, Ticket::Open("When do you open?"));
        tickets.insert(2, Ticket::Open("Why is the sky blue?"));
    });
    let all_closed = CancellationToken::new();
    let inbox = TicketInbox { system: system.clone(), all_closed: all_closed.clone() };
    runtime.worker().source(inbox).run(all_closed).await?;
    system.with_tickets(|tickets| println!("{tickets:?}"));
    Ok(())
}
