//! Remembered approvals: rules that are added when a person approves a call for the rest of the
//! run, for the agent or for the project.

use longhaul_core::access::SYSTEM_PRINCIPAL;
use longhaul_core::id::RuleId;
use longhaul_core::policy::gate::RulePattern;
use longhaul_core::policy::rule::{
    RULES_MAX, RememberedApprovalFilter, RememberedApprovalRevocation, RememberedApprovalRow,
    RememberedApprovalScope,
};
use longhaul_core::port::store::AppendRefusalReason;
use rusqlite::{Result, params};

use crate::sqlite::column::{get_json, get_u64, limit_to_column, to_json};
use crate::sqlite::error::RowChangeError;
use crate::sqlite::tx::Tx;

/// Selects the active rule (remembered approval) with this scope and pattern.
pub(crate) const SELECT_ACTIVE_RULE: &str =
    "SELECT data FROM rule WHERE scope = ?1 AND pattern = ?2 AND revoked = 0";

/// Counts the active rules (remembered approvals) that apply to more than one run.
pub(crate) const COUNT_SHARED_RULES: &str =
    "SELECT count(*) FROM rule WHERE scope < 'run:' AND revoked = 0";

/// Selects the active rules (remembered approvals) that apply to more than one run.
pub(crate) const SELECT_SHARED_RULES: &str =
    "SELECT data FROM rule WHERE scope < 'run:' AND revoked = 0";

/// Selects the rules (remembered approvals) that are older than a given rule, newest first: all of
/// them, or only the active ones. A rule for a single run is not active after that run has ended.
pub(crate) const SELECT_RULES: &str = "SELECT r.data
       FROM rule r LEFT JOIN run_head h ON h.run = r.run
      WHERE r.rule < ?1
        AND (?2 OR (r.revoked = 0 AND (r.scope < 'run:' OR h.state <> 5)))
      ORDER BY r.rule DESC LIMIT ?3";

/// Adds a rule (remembered approval). Refused if an active rule has the same scope and pattern, or
/// if the rule applies to more than one run and `RULES_MAX` such rules are active.
pub(crate) fn add_rule(tx: &Tx<'_>, row: &RememberedApprovalRow) -> Result<(), RowChangeError> {
    if active_rule(tx, &row.scope, &row.pattern)?.is_some() {
        return Err(RowChangeError::Refused(AppendRefusalReason::RuleExists));
    }
    let shared = tx.query_one(COUNT_SHARED_RULES, (), |row| get_u64(row, 0))?.unwrap_or_default();
    if row.scope.run().is_none() && shared >= RULES_MAX as u64 {
        return Err(RowChangeError::Refused(AppendRefusalReason::RulesFull));
    }
    tx.exec(
        "INSERT INTO rule (rule, run, scope, pattern, revoked, data) VALUES (?1, ?2, ?3, ?4, 0, ?5)",
        params![
            row.rule.bytes(),
            row.run.bytes(),
            scope_column_text(&row.scope),
            to_json(&row.pattern)?,
            to_json(row)?
        ],
    )
}

/// Counts one more use of a rule (remembered approval). A rule that was deleted meanwhile is
/// ignored.
pub(crate) fn count_rule_use(tx: &Tx<'_>, rule: RuleId) -> Result<()> {
    if let Some(mut row) = get_rule(tx, rule)? {
        row.used += 1;
        row.last_used = Some(tx.now);
        update_rule(tx, &row)?;
    }
    Ok(())
}

/// Revokes a rule (remembered approval). Returns `false` if there is no such active rule.
pub(crate) fn revoke_rule(tx: &Tx<'_>, rule: RuleId, by: &str) -> Result<bool> {
    let Some(mut row) = get_rule(tx, rule)?.filter(|row| row.revoked.is_none()) else {
        return Ok(false);
    };
    row.revoked = Some(RememberedApprovalRevocation { by: by.to_owned(), at: tx.now });
    update_rule(tx, &row)?;
    Ok(true)
}

/// Revokes the rules (remembered approvals) of a principal that apply to more than one run.
pub(crate) fn revoke_shared_rules_of(tx: &Tx<'_>, principal: &str) -> Result<()> {
    let rows: Vec<RememberedApprovalRow> =
        tx.query_all(SELECT_SHARED_RULES, (), |row| get_json(row, 0))?;
    for row in rows.iter().filter(|row| row.has_voter(principal)) {
        revoke_rule(tx, row.rule, SYSTEM_PRINCIPAL)?;
    }
    Ok(())
}

/// Lists the rules (remembered approvals) that match a filter, newest first.
pub(crate) fn list_rules(
    tx: &Tx<'_>,
    filter: &RememberedApprovalFilter,
) -> Result<Vec<RememberedApprovalRow>> {
    if let Some(rule) = filter.rule {
        return Ok(get_rule(tx, rule)?.into_iter().collect());
    }
    let before = filter.after.unwrap_or(RuleId::from_bits(u128::MAX));
    tx.query_all(
        SELECT_RULES,
        params![before.bytes(), filter.include_inactive, limit_to_column(filter.limit)],
        |row| get_json(row, 0),
    )
}

/// Returns the active rules (remembered approvals) with one of these scopes and one of these
/// patterns.
pub(crate) fn active_remembered_approvals(
    tx: &Tx<'_>,
    scopes: &[RememberedApprovalScope],
    patterns: &[RulePattern],
) -> Result<Vec<RememberedApprovalRow>> {
    let mut rows = Vec::new();
    for scope in scopes {
        for pattern in patterns {
            rows.extend(active_rule(tx, scope, pattern)?);
        }
    }
    Ok(rows)
}

fn active_rule(
    tx: &Tx<'_>,
    scope: &RememberedApprovalScope,
    pattern: &RulePattern,
) -> Result<Option<RememberedApprovalRow>> {
    let key = params![scope_column_text(scope), to_json(pattern)?];
    tx.query_one(SELECT_ACTIVE_RULE, key, |row| get_json(row, 0))
}

fn get_rule(tx: &Tx<'_>, rule: RuleId) -> Result<Option<RememberedApprovalRow>> {
    let sql = "SELECT data FROM rule WHERE rule = ?1";
    tx.query_one(sql, params![rule.bytes()], |row| get_json(row, 0))
}

fn update_rule(tx: &Tx<'_>, row: &RememberedApprovalRow) -> Result<()> {
    let sql = "UPDATE rule SET revoked = ?2, data = ?3 WHERE rule = ?1";
    tx.exec(sql, params![row.rule.bytes(), row.revoked.is_some(), to_json(row)?])
}

/// Returns the text that the column `scope` stores for the scope of a rule (remembered approval).
fn scope_column_text(scope: &RememberedApprovalScope) -> String {
    match scope {
        RememberedApprovalScope::Run(run) => format!("run:{run}"),
        RememberedApprovalScope::Agent(agent) => format!("agent:{agent}"),
        RememberedApprovalScope::Project => "project".to_owned(),
    }
}
