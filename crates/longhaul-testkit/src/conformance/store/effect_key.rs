//! Effect keys: one call holds a key, waiting runs are woken when it is settled, and a settled key
//! outlives its run.

use longhaul_core::change::{LateToolResult, RowChange};
use longhaul_core::id::CallId;
use longhaul_core::policy::effect_key::{
    ClaimedEffectKey, EffectKeyChange, EffectKeyClaim, EffectKeyHolder, EffectKeyState,
};
use longhaul_core::port::store::{AppendRefusalReason, AppendResult, PruneRequest};
use longhaul_core::raw::Hash;
use longhaul_core::status::Status;
use longhaul_core::time::Millis;

use crate::conformance::store::batches::{
    BatchExt as _, cancel_batch, end_batch, events_batch, park_batch, progress,
};
use crate::conformance::store::fixture::{ClaimedRun, StoreFixture, assert_appended, refused};

const CALL: CallId = CallId { turn: 1, index: 1 };

fn key() -> Hash {
    Hash::digest(b"invoice:17")
}

fn claim_of(run: &ClaimedRun) -> EffectKeyClaim {
    let holder = EffectKeyHolder { run: run.run, call: CALL };
    EffectKeyClaim { key: key(), holder, replaces: None }
}

async fn change(run: &mut ClaimedRun, change: EffectKeyChange) -> AppendResult {
    run.append(events_batch([progress(1)]).with_change(RowChange::UpdateKey(change))).await
}

async fn claim(run: &mut ClaimedRun) -> AppendResult {
    let claim = claim_of(run);
    change(run, EffectKeyChange::Claim(claim)).await
}

async fn settle(run: &mut ClaimedRun, state: Option<EffectKeyState>) {
    let claim = claim_of(run);
    assert_appended(&change(run, EffectKeyChange::Settle { claim, state }).await);
}

fn taken_by(run: &ClaimedRun, state: EffectKeyState) -> AppendRefusalReason {
    let EffectKeyClaim { key, holder, .. } = claim_of(run);
    AppendRefusalReason::KeyTaken(ClaimedEffectKey { key, holder, state })
}

/// A key has one holder, which may claim it again. A key that is freed can be claimed by another
/// call, and a key that is done never.
pub async fn a_key_has_one_holder(fixture: StoreFixture) {
    let [mut first, mut second] =
        [fixture.open_and_claim(|_| {}).await, fixture.open_and_claim(|_| {}).await];
    assert_appended(&claim(&mut first).await);
    assert_appended(&claim(&mut first).await);
    let key_held = taken_by(&first, EffectKeyState::Held);
    assert_eq!(refused(claim(&mut second).await), key_held);
    // Only the holder settles its key.
    settle(&mut second, None).await;
    assert_eq!(refused(claim(&mut second).await), key_held);
    settle(&mut first, None).await;
    assert_appended(&claim(&mut second).await);
    settle(&mut second, Some(EffectKeyState::Done)).await;
    let done = taken_by(&second, EffectKeyState::Done);
    for run in [&mut first, &mut second] {
        assert_eq!(refused(claim(run).await), done);
        settle(run, None).await;
        assert_eq!(refused(claim(run).await), done, "a key that is done is final");
    }
}

/// A call with an unknown outcome keeps its key until the same call, or a call that replaces it,
/// claims or settles the key. A call of a failed run is completed by its retry.
pub async fn a_key_with_an_unknown_outcome_is_replaced(fixture: StoreFixture) {
    let [mut first, mut second] =
        [fixture.open_and_claim(|_| {}).await, fixture.open_and_claim(|_| {}).await];
    assert_appended(&claim(&mut first).await);
    settle(&mut first, Some(EffectKeyState::Unknown)).await;
    assert_eq!(refused(claim(&mut second).await), taken_by(&first, EffectKeyState::Unknown));
    let replaces = Some(claim_of(&first).holder);
    let replacement = EffectKeyClaim { replaces, ..claim_of(&second) };
    assert_appended(&change(&mut second, EffectKeyChange::Claim(replacement)).await);
    let key_held = taken_by(&second, EffectKeyState::Held);
    assert_eq!(refused(claim(&mut first).await), key_held);
    // The holder is another one by now.
    let late = EffectKeyClaim { replaces, ..claim_of(&first) };
    assert_appended(
        &change(&mut first, EffectKeyChange::Settle { claim: late, state: None }).await,
    );
    assert_eq!(refused(claim(&mut first).await), key_held);
    settle(&mut second, Some(EffectKeyState::Unknown)).await;
    // A retry names the run whose model made the call, and the result is in its own journal.
    let retry_claim = claim_of(&second);
    assert_appended(&change(&mut first, EffectKeyChange::Claim(retry_claim)).await);
    let done = EffectKeyChange::Settle { claim: retry_claim, state: Some(EffectKeyState::Done) };
    assert_appended(&change(&mut first, done).await);
    assert_eq!(refused(claim(&mut second).await), taken_by(&first, EffectKeyState::Done));
}

/// A parked run is woken when the key that it waits for is settled, in any way. An ended run is not
/// woken, and a run can't wait for a key that is not held.
pub async fn a_settled_key_wakes_the_waiting_runs(fixture: StoreFixture) {
    for state in [None, Some(EffectKeyState::Done), Some(EffectKeyState::Unknown)] {
        let mut holder = fixture.open_and_claim(|_| {}).await;
        let mut waiting = fixture.open_and_claim(|_| {}).await;
        let mut ended = fixture.open_and_claim(|_| {}).await;
        let name = format!("{state:?}");
        let key = Hash::digest(name.as_bytes());
        let claim = EffectKeyClaim { key, ..claim_of(&holder) };
        let wait = EffectKeyChange::Wait { key, holder: claim.holder };
        let park = || park_batch("key").with_change(RowChange::UpdateKey(wait));
        assert_eq!(refused(waiting.append(park()).await), AppendRefusalReason::KeyNotHeld);
        assert_appended(&change(&mut holder, EffectKeyChange::Claim(claim)).await);
        waiting.append_ok(park()).await;
        ended.append_ok(park()).await;
        let after = ended.last;
        assert_appended(&fixture.append_as_closer(ended.run, after, cancel_batch()).await);
        fixture.assert_status(waiting.run, Status::Waiting, "key").await;
        fixture.assert_consistent().await;
        assert_appended(&change(&mut holder, EffectKeyChange::Settle { claim, state }).await);
        fixture.assert_status(waiting.run, Status::Running, "worker").await;
        let woken = fixture.claim_one(waiting.worker).await;
        assert_eq!(woken.run, waiting.run, "{name}");
        assert!(fixture.try_claim_one(waiting.worker).await.is_none(), "{name}");
    }
}

/// A key stays claimed after its run was pruned.
pub async fn a_key_outlives_its_run(fixture: StoreFixture) {
    let mut first = fixture.open_and_claim(|_| {}).await;
    assert_appended(&claim(&mut first).await);
    settle(&mut first, Some(EffectKeyState::Done)).await;
    first.append_ok(end_batch()).await;
    fixture.advance(Millis::from_secs(60));
    let mut second = fixture.open_and_claim(|_| {}).await;
    let request = PruneRequest {
        runs_older_than: Millis::from_secs(1),
        blobs_older_than: Millis::from_secs(1),
        limit: 10,
    };
    let pruned = fixture.harness.store.prune_old_data(request).await.expect("prune");
    assert_eq!(pruned.runs, 1);
    assert_eq!(refused(claim(&mut second).await), taken_by(&first, EffectKeyState::Done));
}

/// Only the key of a call whose outcome is unknown is freed, and the run keeps who did so.
pub async fn a_key_in_doubt_is_freed(fixture: StoreFixture) {
    let freed = || LateToolResult { call: CALL, text: "freed by cli:anna".to_owned() };
    let records = &fixture.harness.records;
    for state in [EffectKeyState::Held, EffectKeyState::Done, EffectKeyState::Unknown] {
        let [mut first, mut second] =
            [fixture.open_and_claim(|_| {}).await, fixture.open_and_claim(|_| {}).await];
        let key = Hash::digest(format!("{state:?}").as_bytes());
        let claim = EffectKeyClaim { key, ..claim_of(&first) };
        assert_appended(&change(&mut first, EffectKeyChange::Claim(claim)).await);
        if state != EffectKeyState::Held {
            let settle = EffectKeyChange::Settle { claim, state: Some(state) };
            assert_appended(&change(&mut first, settle).await);
        }
        first.append_ok(end_batch()).await;
        let is_in_doubt = state == EffectKeyState::Unknown;
        let other_call = LateToolResult { call: CallId { turn: 1, index: 2 }, ..freed() };
        assert!(!records.free_effect_key(first.run, other_call).await.expect("free"));
        assert!(!records.free_effect_key(second.run, freed()).await.expect("free"));
        assert_eq!(records.free_effect_key(first.run, freed()).await.expect("free"), is_in_doubt);
        assert!(!records.free_effect_key(first.run, freed()).await.expect("free"));
        let stored = records.late_tool_results(first.run).await.expect("late results");
        assert_eq!(stored, Vec::from_iter(is_in_doubt.then(freed)), "{state:?}");
        let next = EffectKeyClaim { key, ..claim_of(&second) };
        let claimed = change(&mut second, EffectKeyChange::Claim(next)).await;
        match is_in_doubt {
            true => assert_appended(&claimed),
            false => {
                let holder = claim.holder;
                let taken = ClaimedEffectKey { key, holder, state };
                assert_eq!(refused(claimed), AppendRefusalReason::KeyTaken(taken));
            }
        }
    }
}
