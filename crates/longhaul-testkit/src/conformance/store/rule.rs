//! Remembered approvals: added once, counted, revoked and listed.

use longhaul_core::access::{Role, SYSTEM_PRINCIPAL};
use longhaul_core::change::RowChange;
use longhaul_core::id::{ApiKeyName, GateId, RuleId, RunId};
use longhaul_core::policy::gate::RulePattern;
use longhaul_core::policy::rule::{
    RULES_MAX, RememberedApprovalFilter, RememberedApprovalRevocation, RememberedApprovalRow,
    RememberedApprovalScope,
};
use longhaul_core::port::auth::GateLinkRow;
use longhaul_core::port::store::{AppendRefusalReason, AppendResult, PruneRequest};
use longhaul_core::raw::Hash;
use longhaul_core::time::{Clock as _, Millis};

use crate::conformance::store::auth::add_api_key;
use crate::conformance::store::batches::{
    BatchExt as _, change_batch, end_batch, gate_spec, raise_gate_batch,
};
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
        other_voters: Vec::new(),
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

/// Links to gates and remembered approvals beyond one run end with the key that they are from. The
/// journal of a run says when one of its own approvals ends.
pub async fn a_revoked_key_ends_its_links_and_rules(fixture: StoreFixture) {
    let auth = &fixture.harness.auth;
    assert!(add_api_key(&fixture, "ops", None, Role::Approver).await);
    let mut claimed = fixture.open_and_claim(|_| {}).await;
    let run = claimed.run;
    let gate = fixture.ids.gate();
    let mut batch = raise_gate_batch(gate_spec(gate));
    let mut kept = Vec::new();
    for (by, scope) in [
        ("key:ops", RememberedApprovalScope::Project),
        ("key:ops", RememberedApprovalScope::Agent(agent("helper"))),
        ("key:other", RememberedApprovalScope::Agent(agent("other"))),
        ("key:ops", RememberedApprovalScope::Run(run)),
    ] {
        let is_kept = by == "key:other" || scope.run().is_some();
        let row =
            RememberedApprovalRow { by: by.to_owned(), ..new_rule(&fixture, run, scope).await };
        kept.extend(is_kept.then_some(row.rule));
        batch = batch.with_change(RowChange::AddRule(Box::new(row)));
    }
    claimed.append_ok(batch).await;
    let by = ["key:ops", "key:ops2"];
    for by in by {
        let (hash, recipient, by) = (Hash::digest(by.as_bytes()), "anna".to_owned(), by.to_owned());
        let link = GateLinkRow { hash, gate, digest: None, recipient, by };
        auth.add_gate_link(link).await.expect("add link");
    }
    assert!(
        auth.revoke_api_key(&ApiKeyName::new("ops").expect("a name"))
            .await
            .expect("revoke")
            .is_some()
    );
    let mut found = Vec::new();
    for by in by {
        found.push(auth.find_gate_link(Hash::digest(by.as_bytes())).await.expect("link").is_some());
    }
    assert_eq!(found, [false, true]);
    let rows = list(&fixture, all()).await;
    let active = rows.iter().filter(|row| row.revoked.is_none()).map(|row| row.rule);
    assert_eq!(active.rev().collect::<Vec<_>>(), kept);
    let revoked = rows.into_iter().filter_map(|row| row.revoked);
    let at = fixture.harness.clock.now();
    let by = SYSTEM_PRINCIPAL.to_owned();
    let expected = RememberedApprovalRevocation { by, at };
    assert_eq!(revoked.collect::<Vec<_>>(), [expected.clone(), expected]);
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
