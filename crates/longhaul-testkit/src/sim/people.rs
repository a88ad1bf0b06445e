//! What people and the sweep say to runs: answers, messages, cancels, timers.
//!
//! Never: a driver. Everything here is an outsider's append.

use longhaul_core::change::TimerKind;
use longhaul_core::event::entry::Entry;
use longhaul_core::event::steer::{Delivery, SteerMessage};
use longhaul_core::id::{RunId, Seq, SteerId};
use longhaul_core::policy::budget::Raise;
use longhaul_core::policy::gate::{Answer, Decision, GateKind, GateRow, GateStatus, Scope};
use longhaul_core::port::store::{Append, Appended, Author, GatesAsk, ReadAsk, RowsAsk, RunRow};
use longhaul_core::status::Status;
use longhaul_core::usage::Micros;
use longhaul_run::outside::{View, Word, standing_digest, tell};
use longhaul_run::{Input, Moment, Run, decide};

use crate::sim::Fault;
use crate::sim::driver::Ports;

/// Says a word to a run.
pub async fn say(ports: &Ports, run: RunId, word: Word) -> Result<Option<Appended>, Fault> {
    let now = ports.shelves.now().await?;
    let Some(row) = ports.store.row(run).await? else {
        return Ok(None);
    };
    let view = View {
        run,
        status: row.status,
    };
    let Ok(batch) = tell(&view, word, Moment::at(now)) else {
        return Ok(None);
    };
    let author = Author::Outsider;
    Ok(Some(
        ports.store.append(Append { run, author, batch }).await?,
    ))
}

/// Tells every timer that is due; whether there was one.
pub async fn sweep(ports: &Ports) -> Result<bool, Fault> {
    let due = ports.shelves.due(500).await?;
    for timer in &due {
        if matches!(timer.what, TimerKind::ChildEnded(_)) {
            return Err("the simulation has no children".into());
        }
        let view = View {
            run: timer.run,
            status: Status::Running,
        };
        let now = ports.shelves.now().await?;
        let Ok(batch) = tell(&view, Word::Timer(Box::new(timer.clone())), Moment::at(now)) else {
            continue;
        };
        let author = Author::Outsider;
        ports
            .store
            .append(Append {
                run: timer.run,
                author,
                batch,
            })
            .await?;
    }
    Ok(!due.is_empty())
}

/// The open gates.
pub async fn open_gates(ports: &Ports) -> Result<Vec<GateRow>, Fault> {
    let ask = GatesAsk {
        status: Some(GateStatus::Open),
        limit: 1_000,
        ..GatesAsk::default()
    };
    Ok(ports.store.gates(ask).await?)
}

/// The runs that have not ended.
pub async fn open_runs(ports: &Ports) -> Result<Vec<RunRow>, Fault> {
    let open = Status::ALL
        .into_iter()
        .filter(|status| !status.is_terminal())
        .collect();
    let ask = RowsAsk {
        statuses: open,
        limit: 10_000,
        ..RowsAsk::default()
    };
    Ok(ports.store.rows(ask).await?)
}

/// Answers a gate in one of the ways that fit it.
pub async fn answer(ports: &Ports, gate: &GateRow, way: usize) -> Result<Option<Appended>, Fault> {
    let decision = match (&gate.spec.kind, way % 4) {
        (GateKind::Approval | GateKind::Result, 0) => Decision::Reject,
        (GateKind::Approval | GateKind::Result, _) => Decision::Approve,
        (GateKind::InDoubt, 0) => Decision::Reject,
        (GateKind::InDoubt, 1) => Decision::Complete,
        (GateKind::InDoubt, _) => Decision::Answer("it went well".into()),
        (GateKind::Question | GateKind::Blocked, _) => Decision::Answer("left".into()),
        (GateKind::Signal, _) => Decision::Complete,
    };
    let for_run = way % 8 == 5 && gate.spec.pattern.is_some() && decision == Decision::Approve;
    let answer = Answer {
        by: format!("person {}", way % 3),
        scope: if for_run { Scope::Run } else { Scope::Once },
        note: way.is_multiple_of(4).then(|| "not like this".to_owned()),
        payload: None,
        digest: standing_digest(gate),
        decision,
    };
    say(
        ports,
        gate.run,
        Word::Answer {
            gate: Box::new(gate.clone()),
            answer,
        },
    )
    .await
}

/// Writes to a run.
pub async fn steer(ports: &Ports, run: RunId, steer: SteerId, way: usize) -> Result<bool, Fault> {
    let delivery = match way % 4 {
        0 => Delivery::AfterBatch,
        1 => Delivery::BeforeNextTool,
        2 => Delivery::Interrupt,
        _ => Delivery::FollowUp,
    };
    let text = "please hurry".to_owned();
    let word = Word::Steer(SteerMessage {
        steer,
        text,
        delivery,
        by: "anna".into(),
    });
    Ok(matches!(
        say(ports, run, word).await?,
        Some(Appended::At { .. })
    ))
}

/// Cancels a run as a caller would: as an outsider, and if nobody drives it, by
/// closing it.
pub async fn cancel(ports: &Ports, run: RunId) -> Result<(), Fault> {
    let input = Input::Close {
        by: "anna".into(),
        reason: "enough".into(),
    };
    if !close(ports, run, input).await? {
        let word = Word::Cancel {
            by: "anna".into(),
            reason: "enough".into(),
        };
        say(ports, run, word).await?;
    }
    Ok(())
}

/// Pauses a run as a caller would.
pub async fn pause(ports: &Ports, run: RunId) -> Result<(), Fault> {
    if !close(ports, run, Input::Still { by: "anna".into() }).await? {
        say(ports, run, Word::Pause { by: "anna".into() }).await?;
    }
    Ok(())
}

/// Decides for a run that nobody drives; whether it was so.
async fn close(ports: &Ports, run: RunId, input: Input) -> Result<bool, Fault> {
    let Some(folded) = fold(ports, run).await? else {
        return Ok(true);
    };
    let now = ports.shelves.now().await?;
    let Ok(batch) = decide(&folded, input, Moment::at(now)) else {
        return Ok(false);
    };
    let author = Author::Closer {
        after: folded.seq(),
    };
    let appended = ports.store.append(Append { run, author, batch }).await?;
    Ok(matches!(appended, Appended::At { .. } | Appended::RunEnded))
}

/// Lets a run go on, with more to spend.
pub async fn resume(ports: &Ports, run: RunId) -> Result<(), Fault> {
    let raise = Raise {
        micros: Some(Micros(1_000_000_000)),
        tokens: Some(1_000_000_000),
        turns: Some(1_000),
        active: None,
    };
    say(
        ports,
        run,
        Word::Resume {
            by: "anna".into(),
            raise: Some(raise),
        },
    )
    .await?;
    Ok(())
}

/// Folds a run's whole journal.
pub async fn fold(ports: &Ports, run: RunId) -> Result<Option<Run>, Fault> {
    let mut folded: Option<Run> = None;
    loop {
        let after = folded.as_ref().map_or(Seq::START, Run::seq);
        let page = ports
            .store
            .read(ReadAsk {
                run,
                after,
                limit: 500,
            })
            .await?;
        for entry in &page.entries {
            match &mut folded {
                None => folded = Some(Run::begin(entry)?),
                Some(run) => run.apply(entry)?,
            }
        }
        if page.entries.is_empty() || folded.as_ref().is_some_and(|run| run.seq() >= page.last) {
            return Ok(folded);
        }
    }
}

/// A run's whole journal.
pub async fn journal(ports: &Ports, run: RunId) -> Result<Vec<Entry>, Fault> {
    let mut entries: Vec<Entry> = Vec::new();
    loop {
        let after = entries.last().map_or(Seq::START, |entry| entry.seq);
        let page = ports
            .store
            .read(ReadAsk {
                run,
                after,
                limit: 500,
            })
            .await?;
        if page.entries.is_empty() {
            return Ok(entries);
        }
        entries.extend(page.entries);
    }
}
