//! Rows of sandboxes. The provider of a sandbox knows the sandbox itself.
//!
//! Invariant: the row of a sandbox that still exists is never deleted, because nobody else would
//! delete the sandbox.

use longhaul_core::change::{SandboxFilter, SandboxRow, SandboxState};
use rusqlite::{Result, params, params_from_iter};

use crate::sqlite::column::{ENDED, get_json, limit_to_column, to_json};
use crate::sqlite::command::CommandOutcome;
use crate::sqlite::error::WriteCommandError;
use crate::sqlite::filter::WhereClauseBuilder;
use crate::sqlite::slot::release_sandbox_slot;
use crate::sqlite::tx::Tx;

/// Creates or replaces the row of a sandbox.
pub(crate) fn set_sandbox(tx: &Tx<'_>, row: &SandboxRow) -> Result<()> {
    tx.exec(
        "INSERT INTO sandbox (sandbox, owner, holds_slot, gone, data) VALUES (?1, ?2, ?3, ?4, ?5)
         ON CONFLICT (sandbox) DO UPDATE
            SET owner = excluded.owner, holds_slot = excluded.holds_slot, gone = excluded.gone,
                data = excluded.data",
        params![
            row.event.sandbox.bytes(),
            row.owner.bytes(),
            row.state.holds_slot(),
            row.state.is_gone(),
            to_json(row)?
        ],
    )
}

/// Lists sandboxes that match a filter, by id.
pub(crate) fn list_sandboxes(tx: &Tx<'_>, filter: &SandboxFilter) -> Result<Vec<SandboxRow>> {
    let mut clauses = WhereClauseBuilder::default();
    clauses.add_optional_condition("owner = ?", filter.owner.map(|run| run.bytes().to_vec()));
    clauses.add_optional_condition("sandbox > ?", filter.after.map(|id| id.bytes().to_vec()));
    if !filter.with_gone {
        // A literal, so that SQLite uses the partial index on sandboxes that exist.
        clauses.add_fixed_condition("gone = 0");
    }
    let (sql, values) = clauses.into_select_statement(
        "SELECT data FROM sandbox",
        " ORDER BY sandbox",
        limit_to_column(filter.limit),
    );
    tx.query_all(&sql, params_from_iter(values), |row| get_json(row, 0))
}

/// Replaces the row of a sandbox in the state `from` whose owner has ended, and releases its slot if
/// its new state needs none. Returns `false` if there is no such sandbox.
pub(crate) fn update_sandbox_of_ended_run(
    tx: &Tx<'_>,
    row: &SandboxRow,
    from: SandboxState,
) -> std::result::Result<CommandOutcome<bool>, WriteCommandError> {
    let found = tx.query_one(
        "SELECT 1 FROM sandbox b CROSS JOIN run_head h ON h.run = b.owner
          WHERE b.sandbox = ?1 AND b.owner = ?2 AND b.data ->> '$.state' = ?3 AND h.state = ?4",
        params![row.event.sandbox.bytes(), row.owner.bytes(), from.as_str(), ENDED],
        |_| Ok(()),
    )?;
    if found.is_none() {
        return Ok(CommandOutcome::Silent(false));
    }
    set_sandbox(tx, row)?;
    if !row.state.holds_slot() {
        release_sandbox_slot(tx, row.event.sandbox)?;
    }
    Ok(CommandOutcome::Changed(true))
}
