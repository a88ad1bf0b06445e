//! Gates: raised once, answered once.
//!
//! Never: touches a gate's timer. It fires later and finds nothing to do.

use longhaul_core::change::{GateTransition, GateUpdate};
use longhaul_core::id::{GateId, RunId};
use longhaul_core::policy::gate::{GateRow, GateSpec, GateStatus, OnTimeout, RecordedAnswer};
use longhaul_core::port::store::{GateFilter, Refused};
use longhaul_core::time::Timestamp;
use rusqlite::{Result, Row, params, params_from_iter};

use crate::sqlite::column::{
    gate_status, gate_status_code, json, limit, maybe_time, time, to_json,
};
use crate::sqlite::error::ChangeError;
use crate::sqlite::filter::Filter;
use crate::sqlite::tx::Tx;

/// A gate opens.
pub(crate) fn raise(tx: &Tx<'_>, run: RunId, spec: &GateSpec) -> Result<()> {
    let deadline = spec.timeout.map(|span| tx.now.plus(span).as_micros());
    tx.exec(
        "INSERT OR REPLACE INTO gate (id, run, status, raised_at, deadline, submitter, spec, answers)
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

/// An open gate gets an answer or closes.
pub(crate) fn update(tx: &Tx<'_>, closing: &GateUpdate) -> Result<(), ChangeError> {
    let refuse = |why| Err(ChangeError::Refused(why));
    let Some(mut gate) = GateState::load(tx, closing.gate)? else {
        return refuse(Refused::GateNotFound);
    };
    if gate.status != GateStatus::Open {
        let last = gate.answers.pop().map(Box::new);
        return refuse(Refused::GateClosed(gate.status, last));
    }
    let (status, answer) = match &closing.transition {
        GateTransition::Voted(answer) => (GateStatus::Open, Some(answer)),
        GateTransition::Answered(answer) => (GateStatus::Answered, Some(answer)),
        GateTransition::Expired => (GateStatus::Expired, None),
        GateTransition::Withdrawn => (GateStatus::Withdrawn, None),
    };
    if let Some(answer) = answer {
        // A gate without a deadline is answerable for ever.
        if gate.deadline.is_some_and(|deadline| tx.now >= deadline) {
            return refuse(Refused::GateClosed(GateStatus::Expired, None));
        }
        gate.answers.push(RecordedAnswer { at: tx.now, answer: answer.clone() });
    }
    tx.exec(
        "UPDATE gate SET status = ?2, answers = ?3 WHERE id = ?1",
        params![closing.gate.bytes(), gate_status_code(status), to_json(&gate.answers)?],
    )
}

/// What the silence at a gate means, if it is still open.
pub(crate) fn open_gate_timeout(tx: &Tx<'_>, gate: GateId) -> Result<Option<OnTimeout>> {
    let spec: Option<GateSpec> = tx.one(
        "SELECT spec FROM gate WHERE id = ?1 AND status = 0",
        params![gate.bytes()],
        |row| json(row, 0),
    )?;
    Ok(spec.map(|spec| spec.on_timeout))
}

/// A gate as far as closing it asks.
struct GateState {
    status: GateStatus,
    deadline: Option<Timestamp>,
    answers: Vec<RecordedAnswer>,
}

impl GateState {
    fn load(tx: &Tx<'_>, gate: GateId) -> Result<Option<Self>> {
        tx.one(
            "SELECT status, deadline, answers FROM gate WHERE id = ?1",
            params![gate.bytes()],
            |row| {
                Ok(Self {
                    status: gate_status(row, 0)?,
                    deadline: maybe_time(row, 1)?,
                    answers: json(row, 2)?,
                })
            },
        )
    }
}

/// Gates, newest first.
pub(crate) fn gates(tx: &Tx<'_>, ask: &GateFilter) -> Result<Vec<GateRow>> {
    let mut filter = Filter::default();
    filter.only("id = ?", ask.gate.map(|gate| gate.bytes().to_vec()));
    filter.only("run = ?", ask.run.map(|run| run.bytes().to_vec()));
    filter.only("id < ?", ask.after.map(|gate| gate.bytes().to_vec()));
    match ask.status {
        // Said as a number, so that the index of open gates is seen to fit.
        Some(GateStatus::Open) => filter.always("status = 0"),
        status => filter.only("status = ?", status.map(gate_status_code)),
    }
    let select = "SELECT run, spec, status, raised_at, deadline, submitter, answers FROM gate";
    let (sql, values) = filter.finish(select, " ORDER BY id DESC", limit(ask.limit));
    tx.all(&sql, params_from_iter(values), gate_row)
}

fn gate_row(row: &Row<'_>) -> Result<GateRow> {
    Ok(GateRow {
        run: RunId::from_bytes(row.get(0)?),
        spec: json(row, 1)?,
        status: gate_status(row, 2)?,
        raised_at: time(row, 3)?,
        deadline: maybe_time(row, 4)?,
        submitter: row.get(5)?,
        answers: json(row, 6)?,
    })
}
