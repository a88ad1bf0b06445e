//! Filters and orders of lists of runs, and counts of runs.

use longhaul_core::change::{RowChange, RunSchedulingUpdate, UsageRow};
use longhaul_core::event::Event;
use longhaul_core::event::environment::ProgressReported;
use longhaul_core::id::{ResourceKey, ThreadKey};
use longhaul_core::port::store::{RunCounts, RunFilter, RunSort};
use longhaul_core::raw::RawJson;
use longhaul_core::task::{RetriedRun, TaskSpec};
use longhaul_core::time::{Clock as _, Millis};
use longhaul_core::usage::{MicroUsd, Usage};

use crate::conformance::store::batches::{BatchExt as _, end_batch, events_batch, progress};
use crate::conformance::store::chain::position;
use crate::conformance::store::fixture::{ClaimedRun, StoreFixture};
use crate::conformance::store::list::{all, failed_batch, ids};

/// Runs are filtered by what was submitted: text, thread, resource, tag and time.
pub async fn tasks_are_filtered_and_searched(fixture: StoreFixture) {
    let input = |text: &str| {
        let input = RawJson::from_serialize(&text);
        move |task: &mut TaskSpec| task.input = input
    };
    let plain = fixture.open(|_| {}).await;
    let leak = fixture.open(input("Fix the LEAK\nin ticket 123")).await;
    fixture.advance(Millis(1_000));
    let noon = fixture.harness.clock.now();
    let umlaut = fixture.open(input("Über 100% o_f")).await;
    let tagged = fixture
        .open(|task| {
            task.tags = vec!["red".to_owned(), "a\"b".to_owned()];
            task.thread = ThreadKey::new("chat").ok();
            task.resource = ResourceKey::new("ann").ok();
        })
        .await;
    let found = async |change: fn(&mut RunFilter)| {
        let mut filter = all();
        change(&mut filter);
        ids(&fixture, filter).await
    };
    assert_eq!(found(|filter| filter.search = Some("ticket 123".into())).await, [leak]);
    assert_eq!(found(|filter| filter.search = Some("tHe leak".into())).await, [leak]);
    assert_eq!(found(|filter| filter.search = Some("über".into())).await, [umlaut]);
    for not_a_pattern in ["fix%leak", "t_e", "100%%", "'"] {
        let filter = RunFilter { search: Some(not_a_pattern.to_owned()), ..all() };
        assert_eq!(ids(&fixture, filter).await, [], "{not_a_pattern}");
    }
    assert_eq!(found(|filter| filter.tag = Some("red".into())).await, [tagged]);
    assert_eq!(found(|filter| filter.tag = Some("a\"b".into())).await, [tagged]);
    assert_eq!(found(|filter| filter.tag = Some("re".into())).await, []);
    assert_eq!(found(|filter| filter.thread = ThreadKey::new("chat").ok()).await, [tagged]);
    assert_eq!(found(|filter| filter.resource = ResourceKey::new("ann").ok()).await, [tagged]);
    let since = RunFilter { since: Some(noon), ..all() };
    assert_eq!(ids(&fixture, since.clone()).await, [tagged, umlaut]);
    let until = RunFilter { until: Some(noon), ..all() };
    assert_eq!(ids(&fixture, until).await, [leak, plain]);
    let between = RunFilter { until: Some(noon), ..since };
    assert_eq!(ids(&fixture, between).await, []);
    let row = fixture.row(leak).await;
    assert_eq!((row.title.as_str(), row.tags.as_slice()), ("Fix the LEAK in ticket 123", &[][..]));
    assert_eq!(fixture.row(tagged).await.tags, ["red", "a\"b"]);
}

/// A list of submitted runs has no child runs, and of a chain only the newest run.
pub async fn submitted_runs_are_listed_without_children(fixture: StoreFixture) {
    let plain = fixture.open(|_| {}).await;
    let child = fixture.new_run(|task| (task.root, task.parent) = (plain, Some(plain)));
    fixture.open_runs(vec![child]).await;
    let mut first = fixture.new_run(|_| {});
    first.task.chain = Some(position(0, first.id));
    let chain = first.id;
    fixture.open_runs(vec![first]).await;
    let submitted = RunFilter { roots_only: true, ..all() };
    assert_eq!(ids(&fixture, submitted.clone()).await, [chain, plain]);
    let step = fixture.new_run(|task| {
        (task.root, task.parent) = (chain, Some(chain));
        task.chain = Some(position(1, chain));
    });
    let newest = step.id;
    fixture.open_runs(vec![step]).await;
    assert_eq!(ids(&fixture, submitted).await, [newest, plain]);
}

/// Runs that need a person are found by status, reason and failure, and all runs are counted.
pub async fn runs_that_need_a_person_are_listed_and_counted(fixture: StoreFixture) {
    let mut runs = Vec::new();
    for _ in 0..5 {
        runs.push(fixture.open_and_claim(|_| {}).await);
    }
    let child = fixture.new_run(|task| {
        task.root = runs[0].run;
        task.parent = Some(runs[0].run);
    });
    fixture.open_runs(vec![child]).await;
    let mut child = fixture.claim_one(runs[0].worker).await;
    child.append_ok(failed_batch()).await;
    runs[0].park("budget").await;
    runs[1].park("worker").await;
    let blocked = RunSchedulingUpdate::Park { reason: "child", blocked: true, release_lane: false };
    let blocked = events_batch([progress(1)]).with_change(RowChange::UpdateScheduling(blocked));
    runs[2].append_ok(blocked).await;
    runs[3].append_ok(failed_batch()).await;
    add_cost(&mut runs[4], Some(7)).await;
    add_cost(&mut runs[4], None).await;
    runs[4].append_ok(end_batch()).await;
    let [budget, waiting, blocked, failed, _] = [0, 1, 2, 3, 4].map(|index| runs[index].run);
    let mine = RunFilter { needs_person: true, ..all() };
    assert_eq!(ids(&fixture, mine.clone()).await, [failed, blocked, budget]);
    let by_reason = async |reasons: &[&str]| {
        let reasons = reasons.iter().map(|reason| (*reason).to_owned()).collect();
        ids(&fixture, RunFilter { reasons, ..all() }).await
    };
    assert_eq!(by_reason(&["worker", "budget"]).await, [waiting, budget]);
    assert_eq!(by_reason(&["turn_limit"]).await, [child.run, failed]);
    assert_eq!(by_reason(&["lane"]).await, []);
    let counts = RunCounts {
        total: 6,
        open: 3,
        waiting_for_person: 2,
        failed: 1,
        cost: MicroUsd(7),
        unpriced: 1,
    };
    assert_eq!(fixture.harness.records.count_runs().await.expect("counts"), counts);
    let retried = RetriedRun { run: failed, attempts: 1, first: None };
    fixture.open(|task| task.retry_of = Some(retried)).await;
    assert_eq!(ids(&fixture, mine).await, [blocked, budget]);
    assert_eq!(by_reason(&["worker"]).await.len(), 2);
    let after = RunCounts { total: 7, open: 4, failed: 0, ..counts };
    assert_eq!(fixture.harness.records.count_runs().await.expect("counts"), after);
}

/// Each order lists every run once, over all pages. Equal runs are ordered by age.
pub async fn sorted_lists_are_read_in_pages(fixture: StoreFixture) {
    let mut runs = Vec::new();
    for cost in [3, 9, 3, 1] {
        fixture.advance(Millis(1_000));
        let mut claimed_run = fixture.open_and_claim(|_| {}).await;
        add_cost(&mut claimed_run, Some(cost)).await;
        runs.push(claimed_run);
    }
    runs[0].end().await;
    fixture.advance(Millis(2_000));
    let new = fixture.open(|_| {}).await;
    let [a, b, c, d] = [0, 1, 2, 3].map(|index| runs[index].run);
    for (sort, expected) in [
        (RunSort::Created, [new, d, c, b, a]),
        (RunSort::Started, [d, c, b, a, new]),
        (RunSort::Cost, [b, c, a, d, new]),
        (RunSort::Active, [b, c, a, d, new]),
        (RunSort::Waiting, [b, c, a, d, new]),
    ] {
        let mut listed = Vec::new();
        for _ in 0..3 {
            let filter = RunFilter { sort, after: listed.last().copied(), limit: 2, ..all() };
            listed.extend(ids(&fixture, filter).await);
        }
        assert_eq!(listed, expected, "{sort:?}");
    }
}

/// A run's row has the progress that its agent reported last.
pub async fn the_last_progress_is_in_the_row(fixture: StoreFixture) {
    let mut claimed_run = fixture.open_and_claim(|_| {}).await;
    assert_eq!(fixture.row(claimed_run.run).await.progress, None);
    let report = |percent, message: &str| ProgressReported { percent, message: message.to_owned() };
    let reports = [report(10, "begun"), report(40, "half \"done\"")];
    claimed_run.append_ok(events_batch(reports.clone().map(Event::ProgressReported))).await;
    claimed_run.park("child").await;
    assert_eq!(fixture.row(claimed_run.run).await.progress, Some(reports[1].clone()));
}

/// Adds a model call with this cost to a run. The call took as many milliseconds as it cost.
async fn add_cost(claimed_run: &mut ClaimedRun, cost: Option<u64>) {
    let usage = UsageRow {
        model: "m".to_owned(),
        usage: Usage::default(),
        cost: cost.map(MicroUsd),
        turns: 1,
        active: Millis(cost.unwrap_or_default()),
    };
    claimed_run.change(RowChange::AddUsage(usage)).await;
}
