//! Notes: added once per key, searched by words, deleted only by people. Scores are not
//! checked, only which notes are found, and their order where it is unambiguous.

use futures_util::future::join_all;
use longhaul_core::id::{NoteId, ResourceKey, RunId};
use longhaul_core::note::{AddNoteOutcome, MemoryNote, NOTES_MAX, NewMemoryNote};
use longhaul_core::port::store::PruneRequest;
use longhaul_core::time::Millis;

use crate::conformance::store::batches::end_batch;
use crate::conformance::store::fixture::StoreFixture;

/// Number of notes written concurrently.
const BATCH_SIZE: u64 = 500;

fn resource_key(name: &str) -> ResourceKey {
    ResourceKey::new(name).expect("a valid name")
}

fn new_note(key: &str, text: &str, tags: &[&str]) -> NewMemoryNote {
    let tags = tags.iter().map(|tag| (*tag).to_owned()).collect();
    NewMemoryNote::new(key, text, tags, None).expect("a valid note")
}

async fn remember(fixture: &StoreFixture, resource: &str, note: NewMemoryNote) -> AddNoteOutcome {
    let outcome = fixture.harness.records.add_note(&resource_key(resource), note).await;
    outcome.expect("remember")
}

/// Adds notes about Ada, each with its text as its key.
async fn remember_all(fixture: &StoreFixture, texts: &[&str]) {
    for text in texts {
        let outcome = remember(fixture, "ada", new_note(text, text, &[])).await;
        assert!(matches!(outcome, AddNoteOutcome::Stored(_)), "{text}: {outcome:?}");
        fixture.advance(Millis(5));
    }
}

async fn recall(fixture: &StoreFixture, query: &str) -> Vec<String> {
    let found = fixture.harness.records.search_notes(&resource_key("ada"), query, 50).await;
    texts(found.expect("recall"))
}

async fn list_notes(
    fixture: &StoreFixture,
    after: Option<NoteId>,
    limit: usize,
) -> Vec<MemoryNote> {
    let notes = fixture.harness.records.list_notes(&resource_key("ada"), after, limit).await;
    notes.expect("notes")
}

fn texts(notes: Vec<MemoryNote>) -> Vec<String> {
    notes.into_iter().map(|note| note.text).collect()
}

/// A second note with the same key changes nothing.
pub async fn a_note_is_added_once_per_key(fixture: StoreFixture) {
    let run = RunId::from_bits(7);
    let tags = vec!["food".to_owned(), "taste".to_owned()];
    let new = NewMemoryNote::new("k1", "likes tea", tags.clone(), Some(run)).expect("a note");
    let now = fixture.harness.records.now().await.expect("now");
    let AddNoteOutcome::Stored(id) = remember(&fixture, "ada", new.clone()).await else {
        panic!("a new note is added");
    };
    fixture.advance(Millis(1_000));
    for note in [new, new_note("k1", "likes coffee", &[])] {
        assert_eq!(remember(&fixture, "ada", note).await, AddNoteOutcome::Existing(id));
    }
    let expected = MemoryNote { id, text: "likes tea".to_owned(), tags, run: Some(run), at: now };
    assert_eq!(list_notes(&fixture, None, 9).await, [expected]);
    // Keys are scoped to a resource.
    let other = remember(&fixture, "bob", new_note("k1", "likes tea", &[])).await;
    assert!(matches!(other, AddNoteOutcome::Stored(other) if other != id));
}

/// Notes are listed newest first, in pages.
pub async fn notes_are_listed_newest_first(fixture: StoreFixture) {
    remember_all(&fixture, &["one", "two", "three", "four"]).await;
    let first = list_notes(&fixture, None, 2).await;
    let last = first.last().map(|note| note.id);
    assert_eq!(texts(first), ["four", "three"]);
    let rest = list_notes(&fixture, last, 9).await;
    let end = rest.last().map(|note| note.id);
    assert_eq!(texts(rest), ["two", "one"]);
    assert_eq!(list_notes(&fixture, end, 9).await, []);
    let unknown = Some(NoteId::from_bits(1));
    assert_eq!(list_notes(&fixture, unknown, 9).await, []);
}

/// Any word of a query matches, in any case. A query without words lists the newest notes.
pub async fn notes_are_searched_by_words(fixture: StoreFixture) {
    remember_all(
        &fixture,
        &["The deploy key is in the safe", "Prefers short answers", "The build runs nightly"],
    )
    .await;
    assert_eq!(recall(&fixture, "DEPLOY").await, ["The deploy key is in the safe"]);
    let mut both = recall(&fixture, "nightly answers").await;
    both.sort();
    assert_eq!(both, ["Prefers short answers", "The build runs nightly"]);
    assert_eq!(recall(&fixture, "unrelated").await, [""; 0]);
    // A part of a word does not match.
    assert_eq!(recall(&fixture, "night").await, [""; 0]);
    let newest =
        ["The build runs nightly", "Prefers short answers", "The deploy key is in the safe"];
    for query in ["", "  ", "?!"] {
        assert_eq!(recall(&fixture, query).await, newest, "{query:?}");
    }
    let found = fixture.harness.records.search_notes(&resource_key("ada"), "the", 1).await;
    assert_eq!(found.expect("recall").len(), 1);
}

/// More matching words, rarer words and a shorter note rank higher than a newer note.
pub async fn better_matches_come_first(fixture: StoreFixture) {
    let others = ["likes tea", "likes jazz", "likes chess", "likes rain", "naps"];
    remember_all(&fixture, &others).await;
    remember_all(
        &fixture,
        &[
            "server berlin rack",
            "server paris rack",
            "server madrid rack",
            "server berlin",
            "server oslo rack, and a good deal more that has nothing to do with it at all",
        ],
    )
    .await;
    let found = recall(&fixture, "server berlin rack").await;
    assert_eq!(found.len(), 5);
    assert_eq!(found[0], "server berlin rack");
    assert_eq!(found[1], "server berlin");
    assert_eq!(
        found[4],
        "server oslo rack, and a good deal more that has nothing to do with it at all"
    );
}

/// Of notes with the same score, the newest comes first.
pub async fn equal_matches_come_newest_first(fixture: StoreFixture) {
    for number in 0..5 {
        let key = number.to_string();
        remember(&fixture, "ada", new_note(&key, "likes tea", &[&key])).await;
    }
    remember_all(&fixture, &["something else"]).await;
    let found = fixture.harness.records.search_notes(&resource_key("ada"), "tea", 9).await;
    let tags = found.expect("recall").into_iter().map(|note| note.tags);
    let tags: Vec<String> = tags.flatten().collect();
    assert_eq!(tags, ["4", "3", "2", "1", "0"]);
}

/// A query is plain words: nothing in it is an operator, a filter or a terminator.
pub async fn a_query_has_no_syntax(fixture: StoreFixture) {
    remember_all(&fixture, &["alpha beta", "gamma delta", "epsilon zeta"]).await;
    let one = ["alpha beta"];
    for query in [
        "\"alpha",
        "alpha\"",
        "alpha*",
        "alpha)",
        "(alpha",
        "^alpha",
        "-alpha",
        "alpha AND",
        "alpha OR",
        "NOT alpha",
        "words_ : alpha",
        "{tags} : alpha",
        "alpha + ",
        "alpha'; DROP TABLE note; --",
        "NEAR(alpha, 2",
        "alpha\0",
        "\u{202e}alpha",
        "alpha % _ \\ \"\"\"",
    ] {
        let found = recall(&fixture, query).await;
        assert_eq!(found.first().map(String::as_str), Some(one[0]), "{query:?}");
    }
    let found = recall(&fixture, "alp*").await;
    assert_eq!(found, [""; 0], "a star is not a wildcard");
    let long = "alpha ".repeat(50_000);
    assert_eq!(recall(&fixture, &long).await, one);
}

/// Accents make no difference, in notes or queries.
pub async fn search_ignores_accents(fixture: StoreFixture) {
    remember_all(&fixture, &["Lives in Zürich", "Café au lait", "Peña, São"]).await;
    for query in ["zurich", "ZÜRICH", "Zu\u{308}rich"] {
        assert_eq!(recall(&fixture, query).await, ["Lives in Zürich"], "{query}");
    }
    assert_eq!(recall(&fixture, "cafe").await, ["Café au lait"]);
    assert_eq!(recall(&fixture, "pena").await, ["Peña, São"]);
}

/// In scripts without spaces between words, parts of a text are found.
pub async fn unspaced_scripts_are_searchable(fixture: StoreFixture) {
    let texts = [
        "彼女は東京に住んでいます",
        "京都が好き",
        "서울에서 일합니다",
        "ชอบกินข้าวผัด",
        "Meets 王小明 on Mondays",
    ];
    remember_all(&fixture, &texts).await;
    assert_eq!(recall(&fixture, "東京").await, [texts[0]]);
    assert_eq!(recall(&fixture, "京都").await, [texts[1]]);
    assert_eq!(recall(&fixture, "서울").await, [texts[2]]);
    assert_eq!(recall(&fixture, "王小明").await, [texts[4]]);
    assert_eq!(recall(&fixture, "小明").await, [texts[4]]);
    let mut both = recall(&fixture, "京").await;
    both.sort();
    assert_eq!(both, [texts[1], texts[0]]);
    assert_eq!(recall(&fixture, "大阪").await, [""; 0]);
}

/// Tags are searched like words of the note.
pub async fn notes_are_found_by_their_tags(fixture: StoreFixture) {
    remember(&fixture, "ada", new_note("1", "likes tea", &["preference", "飲み物"])).await;
    remember(&fixture, "ada", new_note("2", "ships on Fridays", &["habit"])).await;
    assert_eq!(recall(&fixture, "preference").await, ["likes tea"]);
    assert_eq!(recall(&fixture, "飲み物").await, ["likes tea"]);
}

/// Notes of other resources are neither listed nor found.
pub async fn a_resource_sees_its_own_notes_only(fixture: StoreFixture) {
    remember(&fixture, "ada", new_note("1", "likes tea", &[])).await;
    remember(&fixture, "ad", new_note("1", "likes coffee", &[])).await;
    remember(&fixture, "ADA", new_note("1", "likes water", &[])).await;
    assert_eq!(recall(&fixture, "likes").await, ["likes tea"]);
    assert_eq!(recall(&fixture, "ada ADA ad").await, [""; 0]);
    assert_eq!(texts(list_notes(&fixture, None, 9).await), ["likes tea"]);
    let removed = fixture.harness.records.clear_notes(&resource_key("ad")).await;
    assert_eq!(removed.expect("clear"), 1);
    assert_eq!(recall(&fixture, "likes").await, ["likes tea"]);
}

/// A deleted note is neither listed nor found, and its key is free again.
pub async fn a_deleted_note_is_not_found(fixture: StoreFixture) {
    remember_all(&fixture, &["likes tea", "likes jazz", "likes chess"]).await;
    let notes = list_notes(&fixture, None, 9).await;
    let jazz = notes[1].id;
    let forget = async |id| fixture.harness.records.delete_note(id).await.expect("forget");
    assert!(forget(jazz).await);
    assert!(!forget(jazz).await);
    assert_eq!(recall(&fixture, "jazz").await, [""; 0]);
    assert_eq!(recall(&fixture, "likes").await, ["likes chess", "likes tea"]);
    fixture.advance(Millis(5));
    remember_all(&fixture, &["likes jazz"]).await;
    assert_eq!(recall(&fixture, "jazz").await, ["likes jazz"]);
    let cleared = fixture.harness.records.clear_notes(&resource_key("ada")).await;
    assert_eq!(cleared.expect("clear"), 3);
    assert_eq!(recall(&fixture, "likes jazz").await, [""; 0]);
    assert_eq!(list_notes(&fixture, None, 9).await, []);
    remember_all(&fixture, &["likes tea"]).await;
    assert_eq!(recall(&fixture, "tea").await, ["likes tea"]);
}

/// Pruning a run does not delete its notes.
pub async fn notes_outlive_the_run_that_wrote_them(fixture: StoreFixture) {
    let mut claimed_run = fixture.open_and_claim(|_| {}).await;
    let new =
        NewMemoryNote::new("k", "likes tea", Vec::new(), Some(claimed_run.run)).expect("a note");
    remember(&fixture, "ada", new).await;
    claimed_run.append_ok(end_batch()).await;
    // The run with the newest event is never pruned.
    fixture.open(|_| {}).await;
    fixture.advance(Millis::from_secs(1_000));
    let request = PruneRequest {
        runs_older_than: Millis::from_secs(1),
        blobs_older_than: Millis::from_secs(1),
        limit: 10,
    };
    let pruned = fixture.harness.store.prune_old_data(request).await.expect("prune");
    assert_eq!(pruned.runs, 1);
    let notes = list_notes(&fixture, None, 9).await;
    assert_eq!(notes[0].run, Some(claimed_run.run));
}

/// Above the limit a note is refused, and no other note is deleted to make room.
pub async fn notes_are_limited(fixture: StoreFixture) {
    for from in (0..NOTES_MAX).step_by(usize::try_from(BATCH_SIZE).unwrap_or(1)) {
        let numbers = (from..from + BATCH_SIZE).map(|number| number.to_string());
        let notes = numbers.map(|key| new_note(&key, &format!("note {key}"), &[]));
        let outcomes = join_all(notes.map(|note| remember(&fixture, "ada", note))).await;
        assert!(outcomes.iter().all(|outcome| matches!(outcome, AddNoteOutcome::Stored(_))));
    }
    let full = remember(&fixture, "ada", new_note("more", "one more", &[])).await;
    assert_eq!(full, AddNoteOutcome::Full);
    let outcome = remember(&fixture, "ada", new_note("77", "again", &[])).await;
    assert!(matches!(outcome, AddNoteOutcome::Existing(_)));
    assert_eq!(recall(&fixture, "77").await, ["note 77"]);
    let other = remember(&fixture, "bob", new_note("more", "one more", &[])).await;
    assert!(matches!(other, AddNoteOutcome::Stored(_)));
}
