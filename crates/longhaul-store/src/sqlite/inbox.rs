//! Counts the runs of each inbox.

use std::collections::BTreeMap;

use longhaul_core::id::InboxName;
use longhaul_core::port::records::InboxRunCounts;
use longhaul_core::status::Status;
use rusqlite::{Result, params_from_iter};

use crate::sqlite::column::{get_parsed, get_u64};
use crate::sqlite::run_row::{NOT_RETRIED, open_head_state};
use crate::sqlite::tx::Tx;

/// Which inboxes a statement counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InboxesToCount {
    All,
    /// The inbox whose name is the first parameter of the statement. Other inboxes are not read.
    One,
}

impl InboxesToCount {
    const fn condition(self) -> &'static str {
        match self {
            Self::All => "",
            Self::One => "AND h.inbox = ?1",
        }
    }
}

/// Returns the statement that counts the open runs by inbox, state and epoch. An index has these
/// columns in this order, so SQLite neither reads table rows nor sorts.
pub(crate) fn count_open_runs_sql(inboxes: InboxesToCount) -> String {
    format!(
        "SELECT h.inbox, h.state, h.epoch, COUNT(*)
           FROM run_head h INDEXED BY run_head_open_inbox
          WHERE h.state <> 5 {} GROUP BY h.inbox, h.state, h.epoch",
        inboxes.condition()
    )
}

/// Returns the statement that counts the failed runs that no later run retries, by inbox.
pub(crate) fn count_failed_runs_sql(inboxes: InboxesToCount) -> String {
    format!(
        "SELECT h.inbox, COUNT(*) FROM run_head h INDEXED BY run_head_failed_inbox
          WHERE h.outcome = 6 {} AND {NOT_RETRIED} GROUP BY h.inbox",
        inboxes.condition()
    )
}

/// Returns the numbers of open and failed runs of an inbox, or of each inbox if `inbox` is `None`,
/// ordered by the inboxes' names.
pub(crate) fn run_counts_by_inbox(
    tx: &Tx<'_>,
    inbox: Option<&InboxName>,
) -> Result<Vec<InboxRunCounts>> {
    let inboxes = inbox.map_or(InboxesToCount::All, |_| InboxesToCount::One);
    let name = || params_from_iter(inbox.map(InboxName::as_str));
    let open: Vec<(InboxName, i64, u64, u64)> =
        tx.query_all(&count_open_runs_sql(inboxes), name(), |row| {
            Ok((get_parsed(row, 0)?, row.get(1)?, get_u64(row, 2)?, get_u64(row, 3)?))
        })?;
    let failed: Vec<(InboxName, u64)> =
        tx.query_all(&count_failed_runs_sql(inboxes), name(), |row| {
            Ok((get_parsed(row, 0)?, get_u64(row, 1)?))
        })?;
    let mut counts_by_inbox: BTreeMap<InboxName, InboxRunCounts> = BTreeMap::new();
    for (inbox, state, epoch, count) in open {
        let counts = counts_by_inbox.entry(inbox).or_insert_with_key(zero_inbox_counts);
        let (status, _) = open_head_state(state).status_and_reason(epoch == 0);
        let counter = match (status == Status::Pending, status == Status::Running) {
            (true, _) => &mut counts.pending,
            (_, true) => &mut counts.running,
            (false, false) => &mut counts.waiting,
        };
        *counter += count;
    }
    for (inbox, count) in failed {
        counts_by_inbox.entry(inbox).or_insert_with_key(zero_inbox_counts).failed = count;
    }
    Ok(counts_by_inbox.into_values().collect())
}

fn zero_inbox_counts(inbox: &InboxName) -> InboxRunCounts {
    InboxRunCounts { inbox: inbox.clone(), pending: 0, running: 0, waiting: 0, failed: 0 }
}
