//! Effect keys, each of which names an effect that happens at most once: which call has claimed a
//! key, and which runs wait until the outcome of that call is known.
//!
//! Invariant: a key has at most one holder. The row of a key whose call may have taken effect is
//! deleted only by a person.

use longhaul_core::change::LateToolResult;
use longhaul_core::id::{CallId, RunId};
use longhaul_core::policy::effect_key::{
    ClaimedEffectKey, EffectKeyChange, EffectKeyClaim, EffectKeyHolder, EffectKeyState,
};
use longhaul_core::port::store::AppendRefusalReason;
use longhaul_core::raw::Hash;
use rusqlite::{Result, params};

use crate::sqlite::column::{PARKED, get_parsed};
use crate::sqlite::error::RowChangeError;
use crate::sqlite::head::wake_run;
use crate::sqlite::records::save_late_result;
use crate::sqlite::tx::Tx;

/// Selects the parked runs that wait for the outcome of the call that holds an effect key.
pub(crate) const SELECT_WAITING_RUNS: &str = "SELECT w.run FROM effect_key_wait w
       CROSS JOIN run_head h ON h.run = w.run
      WHERE w.key = ?1 AND h.state = ?2";

/// Applies a change to an effect key (name of an effect that must happen at most once). `run` is
/// the run whose append makes the change.
pub(crate) fn update_effect_key(
    tx: &Tx<'_>,
    run: RunId,
    change: &EffectKeyChange,
) -> Result<(), RowChangeError> {
    match change {
        EffectKeyChange::Claim(claim) => claim_effect_key(tx, run, claim),
        EffectKeyChange::Wait { key, holder } => record_wait_for_effect_key(tx, run, *key, *holder),
        EffectKeyChange::Settle { claim, state } => settle_effect_key(tx, run, claim, *state),
    }
}

/// Claims an effect key (name of an effect that must happen at most once) for a call that starts.
/// Refused if another call has claimed the key, unless this call replaces that claim.
fn claim_effect_key(tx: &Tx<'_>, run: RunId, claim: &EffectKeyClaim) -> Result<(), RowChangeError> {
    match load_effect_key(tx, claim.key)? {
        Some(taken) if !claim.may_change_key(&taken) => {
            Err(RowChangeError::Refused(AppendRefusalReason::KeyTaken(taken)))
        }
        Some(_) | None => {
            let sql = "DELETE FROM effect_key_wait WHERE key = ?1 AND run = ?2";
            tx.run(sql, params![claim.key.bytes(), run.bytes()])?;
            Ok(save_effect_key(tx, claim.key, claim.holder, EffectKeyState::Held)?)
        }
    }
}

/// Records that a run waits for the call `holder`. Refused if `holder` no longer holds the key.
fn record_wait_for_effect_key(
    tx: &Tx<'_>,
    run: RunId,
    key: Hash,
    holder: EffectKeyHolder,
) -> Result<(), RowChangeError> {
    if load_effect_key(tx, key)?
        != Some(ClaimedEffectKey { key, holder, state: EffectKeyState::Held })
    {
        return Err(RowChangeError::Refused(AppendRefusalReason::KeyNotHeld));
    }
    let sql = "INSERT OR IGNORE INTO effect_key_wait (key, run) VALUES (?1, ?2)";
    tx.exec(sql, params![key.bytes(), run.bytes()])
}

/// Sets the state of the effect key of a call that has ended, and wakes the runs that wait for the
/// key. If `state` is `None`, the key is freed. Does nothing if another call has claimed the key.
fn settle_effect_key(
    tx: &Tx<'_>,
    run: RunId,
    claim: &EffectKeyClaim,
    state: Option<EffectKeyState>,
) -> Result<(), RowChangeError> {
    if !load_effect_key(tx, claim.key)?.is_some_and(|taken| claim.may_change_key(&taken)) {
        return Ok(());
    }
    tx.run("DELETE FROM effect_key WHERE key = ?1", params![claim.key.bytes()])?;
    if let Some(state) = state {
        let run = if state == EffectKeyState::Done { run } else { claim.holder.run };
        save_effect_key(tx, claim.key, EffectKeyHolder { run, ..claim.holder }, state)?;
    }
    let waiting: Vec<[u8; 16]> =
        tx.query_all(SELECT_WAITING_RUNS, params![claim.key.bytes(), PARKED], |row| row.get(0))?;
    tx.run("DELETE FROM effect_key_wait WHERE key = ?1", params![claim.key.bytes()])?;
    waiting.into_iter().try_for_each(|run| wake_run(tx, RunId::from_bytes(run)))
}

/// Deletes the row of the effect key of a call whose outcome is unknown.
pub(crate) const FREE_KEY_IN_DOUBT: &str =
    "DELETE FROM effect_key WHERE run = ?1 AND call = ?2 AND state = 2";

/// Frees the effect key of a call whose outcome is unknown, and stores who did so. Returns `false`
/// if the call holds no such key.
pub(crate) fn free_effect_key(tx: &Tx<'_>, run: RunId, freed: &LateToolResult) -> Result<bool> {
    // No run waits for a key whose outcome is unknown.
    let count = tx.run(FREE_KEY_IN_DOUBT, params![run.bytes(), freed.call.to_string()])?;
    if count > 0 {
        save_late_result(tx, run, freed)?;
    }
    Ok(count > 0)
}

/// Returns the row of an effect key (name of an effect that must happen at most once). `None` means
/// that no call has claimed the key.
pub(crate) fn load_effect_key(tx: &Tx<'_>, key: Hash) -> Result<Option<ClaimedEffectKey>> {
    let sql = "SELECT run, call, state FROM effect_key WHERE key = ?1";
    tx.query_one(sql, params![key.bytes()], |row| {
        let call: CallId = get_parsed(row, 1)?;
        let holder = EffectKeyHolder { run: RunId::from_bytes(row.get(0)?), call };
        let state = match row.get(2)? {
            0 => EffectKeyState::Held,
            1 => EffectKeyState::Done,
            _ => EffectKeyState::Unknown,
        };
        Ok(ClaimedEffectKey { key, holder, state })
    })
}

fn save_effect_key(
    tx: &Tx<'_>,
    key: Hash,
    holder: EffectKeyHolder,
    state: EffectKeyState,
) -> Result<()> {
    let state = match state {
        EffectKeyState::Held => 0,
        EffectKeyState::Done => 1,
        EffectKeyState::Unknown => 2,
    };
    tx.exec(
        "INSERT OR REPLACE INTO effect_key (key, run, call, state, at) VALUES (?1, ?2, ?3, ?4, ?5)",
        params![key.bytes(), holder.run.bytes(), holder.call.to_string(), state, tx.now_micros()],
    )
}
