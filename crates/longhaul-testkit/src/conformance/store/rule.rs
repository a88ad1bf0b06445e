//! Remembered approvals: added once, counted, revoked and listed.

use longhaul_core::change::RowChange;
use longhaul_core::id::{GateId, RuleId, RunId};
use longhaul_core::policy::gate::RulePattern;
use longhaul_core::policy::rule::{
    RULES_MAX, RememberedApprovalFilter, RememberedApprovalRevocation, RememberedApprovalRow,
    RememberedApprovalScope,
};
use longhaul_core::port::store::{AppendRefusalReason, AppendResult, PruneRequest};
use longhaul_core::time::Millis;

use crate::conformance::store::batches::{BatchExt as _, change_batch, end_batch};
use crate::conformance::store::fixture::{StoreFixture, agent, assert_appended, refused};

fn pattern(tool: &str) -> RulePattern {
    RulePattern { tool: tool.to_owned(), match_glob: Some("ls *".to_owned()) }
}

async fn new_rule(
    fixture: &StoreFixture,
    run: RunId,
    scope: RememberedApprovalScope,
) -> RememberedApprovalRow {
    RememberedApprovalRow {
        rule: fixture.ids.rule(),
        scope,
        pattern: pattern("shell"),
        by: "cli:anna".to_owned(),
        at: fixture.harness.records.now().await.expect("now"),
        run,
        gate: GateId::from_bits(3),
        used: 0,
        last_used: None,
        revoked: None,
    }
}

async fn add(fixture: &StoreFixture, row: &RememberedApprovalRow) -> AppendResult {
    let add = RowChange::AddRule(Box::new(row.clone()));
    fixture.append_outside(row.run, change_batch(add)).await
}

async fn list(
    fixture: &StoreFixture,
    filter: RememberedApprovalFilter,
) -> Vec<RememberedApprovalRow> {
    fixture.harness.records.list_rules(filter).await.expect("rules")
}

fn all() -> RememberedApprovalFilter {
    RememberedApprovalFilter {
        include_inactive: true,
        limit: 100,
        ..RememberedApprovalFilter::default()
    }
}

fn one(rule: RuleId) -> RememberedApprovalFilter {
    RememberedApprovalFilter { rule: Some(rule), limit: 1, ..RememberedApprovalFilter::default() }
}

/// Adds a rule of every scope to a new run. The first one belongs to the run.
async fn add_all_scopes(fixture: &StoreFixture) -> Vec<RememberedApprovalRow> {
    let run = fixture.open(|_| {}).await;
    let scopes = [
        RememberedApprovalScope::Run(run),
        RememberedApprovalScope::Agent(agent("helper")),
        RememberedApprovalScope::Agent(agent("other")),
        RememberedApprovalScope::Project,
    ];
    let mut rows = Vec::new();
    for scope in scopes {
        let row = new_rule(fixture, run, scope).await;
        assert_appended(&add(fixture, &row).await);
        rows.push(row);
    }
    rows
}

/// An active rule excludes others with its scope and pattern, and a revoked one does not.
pub async fn a_rule_is_added_once_per_scope_and_pattern(fixture: StoreFixture) {
    let rows = add_all_scopes(&fixture).await;
    for row in &rows {
        let duplicate = RememberedApprovalRow { rule: fixture.ids.rule(), ..row.clone() };
        assert_eq!(refused(add(&fixture, &duplicate).await), AppendRefusalReason::RuleExists);
        let other = RememberedApprovalRow { pattern: pattern("files"), ..duplicate.clone() };
        assert_appended(&add(&fixture, &other).await);
        assert!(fixture.harness.records.revoke_rule(row.rule, "cli:bob").await.expect("revoked"));
        let duplicate = RememberedApprovalRow { rule: fixture.ids.rule(), ..duplicate };
        assert_appended(&add(&fixture, &duplicate).await);
        let scope = vec![row.scope.clone()];
        let patterns = vec![row.pattern.clone(), pattern("nothing")];
        let active = fixture.harness.records.active_remembered_approvals(scope, patterns).await;
        assert_eq!(active.expect("rules"), [duplicate]);
    }
}

/// A use is counted, and a rule is revoked once.
pub async fn a_rule_is_used_and_revoked(fixture: StoreFixture) {
    let row = add_all_scopes(&fixture).await.remove(0);
    fixture.advance(Millis(5));
    let used_at = fixture.harness.records.now().await.expect("now");
    for _ in 0..2 {
        let batch = change_batch(RowChange::UseRule(row.rule));
        assert_appended(&fixture.append_outside(row.run, batch).await);
    }
    let used = RememberedApprovalRow { used: 2, last_used: Some(used_at), ..row.clone() };
    assert_eq!(list(&fixture, one(row.rule)).await, std::slice::from_ref(&used));
    let revoke = || {
        let revoke = RowChange::RevokeRule { rule: row.rule, by: "cli:bob".to_owned() };
        fixture.append_outside(row.run, change_batch(revoke))
    };
    fixture.advance(Millis(5));
    let at = fixture.harness.records.now().await.expect("now");
    assert_appended(&revoke().await);
    let revoked = Some(RememberedApprovalRevocation { by: "cli:bob".to_owned(), at });
    assert_eq!(list(&fixture, one(row.rule)).await, [RememberedApprovalRow { revoked, ..used }]);
    assert_eq!(refused(revoke().await), AppendRefusalReason::RuleInactive);
    let unknown = RuleId::from_bits(9);
    for rule in [row.rule, unknown] {
        let revoked = fixture.harness.records.revoke_rule(rule, "cli:bob").await;
        assert!(!revoked.expect("not revoked"));
    }
    assert_eq!(list(&fixture, one(unknown)).await, []);
    let unknown = change_batch(RowChange::UseRule(unknown));
    assert_appended(&fixture.append_outside(row.run, unknown).await);
}

/// The newest rules come first. Revoked rules and rules of ended runs are listed on request.
pub async fn active_rules_are_listed_in_pages(fixture: StoreFixture) {
    let mut rows = add_all_scopes(&fixture).await;
    rows.sort_by_key(|row| std::cmp::Reverse(row.rule));
    assert_eq!(list(&fixture, all()).await, rows);
    let page =
        |after| RememberedApprovalFilter { after, limit: 3, ..RememberedApprovalFilter::default() };
    assert_eq!(list(&fixture, page(None)).await, rows[..3]);
    assert_eq!(list(&fixture, page(Some(rows[2].rule))).await, rows[3..]);
    let is_shared = |row: &&RememberedApprovalRow| row.scope.run().is_none();
    let shared: Vec<_> = rows.iter().filter(is_shared).cloned().collect();
    let last = fixture.row(rows[0].run).await.last_seq;
    assert_appended(&fixture.append_as_closer(rows[0].run, last, end_batch()).await);
    assert_eq!(list(&fixture, page(None)).await, shared);
    assert!(fixture.harness.records.revoke_rule(shared[0].rule, "cli:bob").await.expect("revoked"));
    assert_eq!(list(&fixture, page(None)).await, shared[1..]);
    assert_eq!(list(&fixture, all()).await.len(), 4);
}

/// Rules of runs don't count towards the limit.
pub async fn shared_rules_are_bounded(fixture: StoreFixture) {
    let run = fixture.open(|_| {}).await;
    let row = |index: usize, scope| {
        let (fixture, pattern) = (&fixture, pattern(&index.to_string()));
        async move { RememberedApprovalRow { pattern, ..new_rule(fixture, run, scope).await } }
    };
    let mut batch = longhaul_core::change::JournalBatch::default();
    for index in 0..RULES_MAX {
        let row = row(index, RememberedApprovalScope::Project).await;
        batch = batch.with_change(RowChange::AddRule(Box::new(row)));
    }
    assert_appended(&fixture.append_outside(run, batch).await);
    let extra = row(RULES_MAX, RememberedApprovalScope::Agent(agent("helper"))).await;
    assert_eq!(refused(add(&fixture, &extra).await), AppendRefusalReason::RulesFull);
    assert_appended(&add(&fixture, &row(RULES_MAX, RememberedApprovalScope::Run(run)).await).await);
}

/// A rule of the agent or the project stays when the run is pruned in which it was added.
pub async fn shared_rules_outlive_their_run(fixture: StoreFixture) {
    let rows = add_all_scopes(&fixture).await;
    let last = fixture.row(rows[0].run).await.last_seq;
    assert_appended(&fixture.append_as_closer(rows[0].run, last, end_batch()).await);
    // The newest journal is never pruned.
    fixture.advance(Millis(1));
    fixture.open(|_| {}).await;
    fixture.advance(Millis::from_secs(60));
    let request =
        PruneRequest { runs_older_than: Millis(1), blobs_older_than: Millis(1), limit: 10 };
    assert_eq!(fixture.harness.store.prune_old_data(request).await.expect("pruned").runs, 1);
    let mut kept = rows[1..].to_vec();
    kept.sort_by_key(|row| std::cmp::Reverse(row.rule));
    assert_eq!(list(&fixture, all()).await, kept);
}
