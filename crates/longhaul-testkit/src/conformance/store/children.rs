//! Child runs: created with the event of their start, and announced with their end.

use longhaul_core::change::{Blob, RowChange, TimerDueTime, TimerKind, TimerUpdate};
use longhaul_core::event::Event;
use longhaul_core::event::environment::{ChildEnded, ChildStarted};
use longhaul_core::id::{CallId, RunId};
use longhaul_core::port::store::AppendRefusalReason;
use longhaul_core::status::{RunOutcome, Status};
use longhaul_core::task::OPEN_DESCENDANTS_MAX;

use crate::conformance::store::batches::{
    BatchExt as _, change_batch, end_batch, events_batch, park_batch, progress, spend_timer,
};
use crate::conformance::store::fixture::{StoreFixture, agent, assert_appended, refused};

/// A child run, its definition and the event of its start are written together, and once if the
/// append is repeated. The end of the child wakes its parent.
pub async fn a_child_starts_and_ends_with_its_events(fixture: StoreFixture) {
    let mut parent = fixture.open_and_claim(|_| {}).await;
    let definition = Blob::new(b"{\"name\": \"reader\"}".to_vec());
    let hash = definition.hash();
    let new = fixture.new_run(|task| {
        task.root = parent.run;
        task.parent = Some(parent.run);
        task.depth = 1;
        task.definition = hash;
    });
    let child = new.id;
    let call = CallId { turn: 1, index: 1 };
    let started =
        ChildStarted { child, agent: agent("reader"), call: Some(call), background: false };
    let batch = events_batch([Event::ChildStarted(started)])
        .with_change(RowChange::PutDefinition(definition))
        .with_change(RowChange::CreateRun(Box::new(new)));
    let author = parent.author();
    parent.append_ok(batch.clone()).await;
    assert_appended(&fixture.append(parent.run, author, batch).await);
    let row = fixture.row(child).await;
    assert_eq!((row.parent, row.root, row.status), (Some(parent.run), parent.run, Status::Pending));
    assert_eq!(fixture.row(parent.run).await.last_seq, parent.last);
    let stored = fixture.harness.records.agent_definition(hash).await.expect("definition");
    assert!(stored.is_some());
    parent.append_ok(park_batch("child")).await;
    let mut claimed_run = fixture.claim_one(parent.worker).await;
    assert_eq!(claimed_run.run, child);
    let timer = fixture.ids.timer();
    let kind = TimerKind::ChildEnded(child);
    let arm = TimerUpdate::Arm { timer, run: parent.run, due: TimerDueTime::Now, kind };
    claimed_run.append_ok(end_batch().with_change(RowChange::SetTimer(arm))).await;
    let due = fixture.harness.records.due_timers(9).await.expect("due");
    assert_eq!(
        due.iter().map(|due| (due.timer, due.run)).collect::<Vec<_>>(),
        [(timer, parent.run)]
    );
    let outcome = RunOutcome::Cancelled("enough".to_owned());
    let ended = ChildEnded { child, outcome, full: None, submitters: Vec::new() };
    let report = events_batch([Event::ChildEnded(Box::new(ended))]).with_change(spend_timer(timer));
    assert_appended(&fixture.append_outside(parent.run, report).await);
    fixture.assert_status(parent.run, Status::Running, "worker").await;
}

/// No child starts while the maximum number of runs is open below its root. Ended runs and other
/// trees do not count, and a refused batch creates no run.
pub async fn the_open_runs_of_a_tree_are_limited(fixture: StoreFixture) {
    let mut root = fixture.open_and_claim(|_| {}).await;
    let root_id = root.run;
    let new_child = |parent: RunId| {
        let new = fixture.new_run(|task| {
            task.root = root_id;
            task.parent = Some(parent);
        });
        RowChange::CreateRun(Box::new(new))
    };
    let first = fixture.new_run(|task| {
        task.root = root.run;
        task.parent = Some(root.run);
    });
    let first_id = first.id;
    root.append_ok(change_batch(RowChange::CreateRun(Box::new(first)))).await;
    let mut child = fixture.claim_one(root.worker).await;
    assert_eq!(child.run, first_id);
    let mut too_many = events_batch([progress(1)]);
    too_many.changes.extend((0..OPEN_DESCENDANTS_MAX).map(|_| new_child(child.run)));
    let reason = refused(child.append(too_many.clone()).await);
    assert_eq!(reason, AppendRefusalReason::TreeFull);
    too_many.changes.pop();
    child.append_ok(too_many).await;
    let reason = refused(root.change(new_child(root.run)).await);
    assert_eq!(reason, AppendRefusalReason::TreeFull);
    fixture.open(|_| {}).await;
    child.end().await;
    assert_appended(&root.change(new_child(root.run)).await);
    let reason = refused(root.change(new_child(root.run)).await);
    assert_eq!(reason, AppendRefusalReason::TreeFull);
}
