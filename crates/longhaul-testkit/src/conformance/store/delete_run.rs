//! Deleting the runs of a tree at a person's request.

use longhaul_core::change::OutboxRow;
use longhaul_core::change::RowChange;
use longhaul_core::id::{ResourceKey, RunId, Seq};
use longhaul_core::note::NewMemoryNote;
use longhaul_core::port::records::{DeleteRunsOutcome, DeletedRuns};
use longhaul_core::port::store::{JournalReadRequest, RunFilter};
use longhaul_core::raw::RawJson;
use longhaul_core::task::RetriedRun;

use crate::conformance::store::batches::{BatchExt as _, end_batch};
use crate::conformance::store::fixture::StoreFixture;
use crate::conformance::store::list::{all, failed_batch, ids};

async fn delete(fixture: &StoreFixture, root: RunId) -> DeleteRunsOutcome {
    fixture.harness.records.delete_run_tree(root).await.expect("delete")
}

/// An ended tree is deleted with its notes, and nothing of another run is. A number of the global log
/// is not used again, although the newest event is deleted.
pub async fn an_ended_tree_is_deleted(fixture: StoreFixture) {
    let person = ResourceKey::new("ann").expect("a key");
    let mut kept = fixture.open_and_claim(|_| {}).await;
    kept.append_ok(failed_batch()).await;
    let mut root =
        fixture.open_and_claim(|task| task.input = RawJson::from_serialize(&"secret word")).await;
    let child = fixture.new_run(|task| (task.root, task.parent) = (root.run, Some(root.run)));
    let child_id = child.id;
    fixture.open_runs(vec![child]).await;
    for (key, run) in [("a", kept.run), ("b", root.run), ("c", child_id)] {
        let text = format!("written by {key}");
        let note = NewMemoryNote::new(key, text, Vec::new(), Some(run)).expect("a note");
        fixture.harness.records.add_note(&person, note).await.expect("note");
    }
    assert_eq!(delete(&fixture, root.run).await, DeleteRunsOutcome::Open(root.run));
    root.append_ok(end_batch()).await;
    assert_eq!(delete(&fixture, root.run).await, DeleteRunsOutcome::Open(child_id));
    let mut child = fixture.claim_one(root.worker).await;
    child.append_ok(end_batch()).await;
    let last = fixture.harness.records.last_global_seq().await.expect("last");
    let deleted = DeletedRuns { runs: vec![root.run, child_id], notes: 2, continued_by: 0 };
    assert_eq!(delete(&fixture, root.run).await, DeleteRunsOutcome::Deleted(deleted));
    assert_eq!(delete(&fixture, root.run).await, DeleteRunsOutcome::NotFound);
    assert_eq!(ids(&fixture, all()).await, [kept.run]);
    let search = RunFilter { search: Some("secret".to_owned()), ..all() };
    assert_eq!(ids(&fixture, search).await, []);
    for run in [root.run, child_id] {
        let request = JournalReadRequest { run, after: Seq::START, limit: 9 };
        let page = fixture.harness.store.read_journal(request).await.expect("journal");
        assert_eq!(page.entries, []);
    }
    let notes = fixture.harness.records.list_notes(&person, None, 9).await.expect("notes");
    assert_eq!(notes.iter().map(|note| note.text.as_str()).collect::<Vec<_>>(), ["written by a"]);
    let found = fixture.harness.records.search_notes(&person, "written", 9).await.expect("notes");
    assert_eq!(found.len(), 1);
    assert_eq!(
        fixture.journal(kept.run).await.len() as u64,
        fixture.row(kept.run).await.last_seq.0
    );
    let new = fixture.open(|_| {}).await;
    let page = fixture.harness.records.read_all_journals(last, 9).await.expect("events");
    let runs: Vec<RunId> = page.entries.iter().map(|(_, entry)| entry.run).collect();
    assert_eq!(runs, [new], "the event of the new run comes after all numbers that were read");
    fixture.assert_consistent().await;
}

/// A run is kept while its inbox does not know its end, and its retries keep their budget.
pub async fn a_tree_in_use_is_kept(fixture: StoreFixture) {
    let mut failed = fixture.open_and_claim(|_| {}).await;
    let message = OutboxRow { endpoint: "inbox:mail".to_owned(), body: "{}".to_owned() };
    failed.append_ok(failed_batch().with_change(RowChange::AddOutbox(message))).await;
    assert_eq!(delete(&fixture, failed.run).await, DeleteRunsOutcome::Undelivered(failed.run));
    let due = fixture.harness.records.due_outbox_messages("inbox:mail", 9).await.expect("due");
    fixture.harness.records.record_outbox_attempt(due[0].id, None).await.expect("delivered");
    let retried = RetriedRun { run: failed.run, attempts: 1, first: None };
    let retry = fixture.open(|task| task.retry_of = Some(retried)).await;
    let deleted = DeletedRuns { runs: vec![failed.run], notes: 0, continued_by: 1 };
    assert_eq!(delete(&fixture, failed.run).await, DeleteRunsOutcome::Deleted(deleted));
    let account = fixture.harness.records.budget_account(failed.run).await.expect("account");
    assert!(account.is_some(), "the retry uses the budget of the first run");
    assert_eq!(ids(&fixture, all()).await, [retry]);
}
