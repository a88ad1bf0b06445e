//! Rows of gates. A gate is a question or an approval that waits for a person.
//!
//! Closing a gate does not delete its timers: when they fire, they find the gate closed and do
//! nothing.

use longhaul_core::change::{GateTransition, GateUpdate};
use longhaul_core::id::{GateId, RunId};
use longhaul_core::policy::gate::{GateRow, GateSpec, GateStatus, RecordedAnswer};
use longhaul_core::port::store::{AppendRefusalReason, GateFilter};
use longhaul_core::time::Timestamp;
use rusqlite::{Result, Row, params, params_from_iter};

use crate::sqlite::column::{
    gate_status_code, get_gate_status, get_json, get_optional_time, get_time, limit_to_column,
    to_json,
};
use crate::sqlite::error::RowChangeError;
use crate::sqlite::filter::WhereClauseBuilder;
use crate::sqlite::tx::Tx;

/// Inserts the row of a new, open gate. Refused if a gate with this id exists.
pub(crate) fn raise_gate(tx: &Tx<'_>, run: RunId, spec: &GateSpec) -> Result<(), RowChangeError> {
    if GateState::load_gate_state(tx, spec.id)?.is_some() {
        return Err(RowChangeError::Refused(AppendRefusalReason::GateExists));
    }
    let deadline = spec.timeout.map(|timeout| tx.now.plus(timeout).as_micros());
    tx.exec(
        "INSERT INTO gate (id, run, status, raised_at, deadline, submitter, spec, answers)
         VALUES (?1, ?2, ?3, ?4, ?5, (SELECT submitter FROM run WHERE id = ?2), ?6, '[]')",
        params![
            spec.id.bytes(),
            run.bytes(),
            gate_status_code(GateStatus::Open),
            tx.now_micros(),
            deadline,
            to_json(spec)?
        ],
    )
}

/// Adds an answer to an open gate, or closes the gate.
pub(crate) fn answer_or_close_gate(
    tx: &Tx<'_>,
    gate_update: &GateUpdate,
) -> Result<(), RowChangeError> {
    let refuse = |refusal| Err(RowChangeError::Refused(refusal));
    let Some(mut gate) = GateState::load_gate_state(tx, gate_update.gate)? else {
        return refuse(AppendRefusalReason::GateNotFound);
    };
    if gate.status != GateStatus::Open {
        let last = gate.answers.pop().map(Box::new);
        return refuse(AppendRefusalReason::GateClosed(gate.status, last));
    }
    if gate_update.seen_answers.is_some_and(|seen| seen != gate.answers.len()) {
        return refuse(AppendRefusalReason::GateAnswersChanged);
    }
    let (status, answer) = match &gate_update.transition {
        GateTransition::Voted(answer) => (GateStatus::Open, Some(answer)),
        GateTransition::Answered(answer) | GateTransition::AnsweredByMessage(answer) => {
            (GateStatus::Answered, Some(answer))
        }
        GateTransition::Expired => (GateStatus::Expired, None),
        GateTransition::Withdrawn => (GateStatus::Withdrawn, None),
    };
    if let Some(answer) = answer {
        let has_deadline = !matches!(gate_update.transition, GateTransition::AnsweredByMessage(_));
        // A gate without a deadline can always be answered.
        if has_deadline && gate.deadline.is_some_and(|deadline| tx.now >= deadline) {
            return refuse(AppendRefusalReason::GateClosed(GateStatus::Expired, None));
        }
        gate.answers.push(RecordedAnswer { at: tx.now, answer: answer.clone() });
    }
    tx.exec(
        "UPDATE gate SET status = ?2, answers = ?3 WHERE id = ?1",
        params![gate_update.gate.bytes(), gate_status_code(status), to_json(&gate.answers)?],
    )
}

/// Switches off the automatic approval of the open gates of a run, so that they wait until a person
/// answers.
pub(crate) fn remove_auto_approval_of_open_gates(tx: &Tx<'_>, run: RunId) -> Result<()> {
    let (run, status) = (Some(run), Some(GateStatus::Open));
    let filter = GateFilter { run, status, limit: usize::MAX, ..GateFilter::default() };
    for gate in list_gates(tx, &filter)? {
        if gate.spec.auto_approve.is_some() {
            let spec = GateSpec { auto_approve: None, ..gate.spec };
            let sql = "UPDATE gate SET spec = ?2 WHERE id = ?1";
            tx.run(sql, params![spec.id.bytes(), to_json(&spec)?])?;
        }
    }
    Ok(())
}

/// Returns the row of an open gate. `None` means that the gate is not open.
pub(crate) fn find_open_gate(tx: &Tx<'_>, gate: GateId) -> Result<Option<GateRow>> {
    let open = Some(GateStatus::Open);
    let filter = GateFilter { gate: Some(gate), status: open, limit: 1, ..GateFilter::default() };
    Ok(list_gates(tx, &filter)?.pop())
}

/// The columns of a gate's row that are needed to update it.
struct GateState {
    status: GateStatus,
    deadline: Option<Timestamp>,
    answers: Vec<RecordedAnswer>,
}

impl GateState {
    fn load_gate_state(tx: &Tx<'_>, gate: GateId) -> Result<Option<Self>> {
        tx.query_one(
            "SELECT status, deadline, answers FROM gate WHERE id = ?1",
            params![gate.bytes()],
            |row| {
                Ok(Self {
                    status: get_gate_status(row, 0)?,
                    deadline: get_optional_time(row, 1)?,
                    answers: get_json(row, 2)?,
                })
            },
        )
    }
}

/// Lists gates that match a filter, newest first.
pub(crate) fn list_gates(tx: &Tx<'_>, gate_filter: &GateFilter) -> Result<Vec<GateRow>> {
    let mut filter = WhereClauseBuilder::default();
    filter.add_optional_condition("id = ?", gate_filter.gate.map(|gate| gate.bytes().to_vec()));
    filter.add_optional_condition("run = ?", gate_filter.run.map(|run| run.bytes().to_vec()));
    filter.add_optional_condition("id < ?", gate_filter.after.map(|gate| gate.bytes().to_vec()));
    filter.add_optional_condition(
        "EXISTS (SELECT 1 FROM json_each(spec, '$.tags') WHERE value = ?)",
        gate_filter.tag.clone(),
    );
    match gate_filter.status {
        // A literal instead of a parameter, so that SQLite uses the partial index on open gates.
        Some(GateStatus::Open) => filter.add_fixed_condition("status = 0"),
        status => filter.add_optional_condition("status = ?", status.map(gate_status_code)),
    }
    let select = "SELECT run, spec, status, raised_at, deadline, submitter, answers FROM gate";
    let (sql, values) = filter.into_select_statement(
        select,
        " ORDER BY id DESC",
        limit_to_column(gate_filter.limit),
    );
    tx.query_all(&sql, params_from_iter(values), read_gate_row)
}

fn read_gate_row(row: &Row<'_>) -> Result<GateRow> {
    Ok(GateRow {
        run: RunId::from_bytes(row.get(0)?),
        spec: get_json(row, 1)?,
        status: get_gate_status(row, 2)?,
        raised_at: get_time(row, 3)?,
        deadline: get_optional_time(row, 4)?,
        submitter: row.get(5)?,
        answers: get_json(row, 6)?,
    })
}
