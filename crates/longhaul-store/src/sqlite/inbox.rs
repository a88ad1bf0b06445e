//! Numbers of runs by inbox.

use std::collections::BTreeMap;

use longhaul_core::id::InboxName;
use longhaul_core::port::records::InboxRow;
use rusqlite::{Result, params};

use crate::sqlite::column::{get_parsed, get_u64};
use crate::sqlite::run_row::NOT_RETRIED;
use crate::sqlite::tx::Tx;

/// Counts the open runs by inbox. Ended runs, which are the most, are not read.
pub(crate) const COUNT_OPEN_RUNS: &str = "SELECT r.inbox,
        SUM(h.epoch = 0 AND h.state IN (0, 2, 3)),
        SUM(h.state = 1 OR (h.state = 0 AND h.epoch > 0)),
        SUM(h.state = 4 OR (h.epoch > 0 AND h.state IN (2, 3)))
   FROM run_head h INDEXED BY run_head_open CROSS JOIN run r ON r.id = h.run
  WHERE h.state <> 5 AND (?1 IS NULL OR r.inbox = ?1)
  GROUP BY r.inbox";

/// Counts the failed runs that no later run retries, by inbox.
pub(crate) fn count_failed_runs() -> String {
    format!(
        "SELECT r.inbox, COUNT(*)
           FROM run_head h INDEXED BY run_head_failed CROSS JOIN run r ON r.id = h.run
          WHERE h.outcome = 6 AND (?1 IS NULL OR r.inbox = ?1) AND {NOT_RETRIED}
          GROUP BY r.inbox"
    )
}

/// Returns the numbers of open and failed runs by inbox, ordered by the inboxes' names.
pub(crate) fn count_by_inbox(tx: &Tx<'_>, inbox: Option<&InboxName>) -> Result<Vec<InboxRow>> {
    let only = inbox.map(|inbox| inbox.as_str());
    let open = tx.query_all(COUNT_OPEN_RUNS, params![only], |row| {
        Ok(InboxRow {
            inbox: get_parsed(row, 0)?,
            pending: get_u64(row, 1)?,
            running: get_u64(row, 2)?,
            waiting: get_u64(row, 3)?,
            failed: 0,
        })
    })?;
    let failed: Vec<(InboxName, u64)> =
        tx.query_all(&count_failed_runs(), params![only], |row| {
            Ok((get_parsed(row, 0)?, get_u64(row, 1)?))
        })?;
    let mut rows: BTreeMap<InboxName, InboxRow> =
        open.into_iter().map(|row| (row.inbox.clone(), row)).collect();
    for (inbox, count) in failed {
        let empty =
            InboxRow { inbox: inbox.clone(), pending: 0, running: 0, waiting: 0, failed: 0 };
        rows.entry(inbox).or_insert(empty).failed = count;
    }
    Ok(rows.into_values().collect())
}
