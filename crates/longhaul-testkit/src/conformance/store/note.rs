//! Notes: kept once, found by their words, removed by people only.
//!
//! Never: an exact weight. What is checked is which notes are found, and their
//! order where one fits clearly better or both fit alike.

use futures_util::future::join_all;
use longhaul_core::id::{NoteId, ResourceKey, RunId};
use longhaul_core::note::{NOTES_MAX, NewNote, Note, NoteOutcome};
use longhaul_core::port::store::PruneRequest;
use longhaul_core::time::Millis;

use crate::conformance::store::batches::end_batch;
use crate::conformance::store::fixture::StoreFixture;

/// So many notes are written at once where there are many.
const BATCH_SIZE: u64 = 500;

fn resource_key(name: &str) -> ResourceKey {
    ResourceKey::new(name).expect("a good name")
}

fn new_note(key: &str, text: &str, tags: &[&str]) -> NewNote {
    let tags = tags.iter().map(|tag| (*tag).to_owned()).collect();
    NewNote::new(key, text, tags, None).expect("a good note")
}

async fn remember(world: &StoreFixture, resource: &str, note: NewNote) -> NoteOutcome {
    let noted = world.harness.records.add_note(&resource_key(resource), note).await;
    noted.expect("remember")
}

/// Keeps notes about Ada, each under its own text.
async fn remember_all(world: &StoreFixture, texts: &[&str]) {
    for text in texts {
        let noted = remember(world, "ada", new_note(text, text, &[])).await;
        assert!(matches!(noted, NoteOutcome::Stored(_)), "{text}: {noted:?}");
        world.advance(Millis(5));
    }
}

async fn recall(world: &StoreFixture, query: &str) -> Vec<String> {
    let found = world.harness.records.search_notes(&resource_key("ada"), query, 50).await;
    texts(found.expect("recall"))
}

async fn list_notes(world: &StoreFixture, after: Option<NoteId>, limit: usize) -> Vec<Note> {
    let notes = world.harness.records.list_notes(&resource_key("ada"), after, limit).await;
    notes.expect("notes")
}

fn texts(notes: Vec<Note>) -> Vec<String> {
    notes.into_iter().map(|note| note.text).collect()
}

/// The same key again changes nothing, whatever comes with it.
pub async fn a_note_is_added_once_per_key(world: StoreFixture) {
    let run = RunId::from_bits(7);
    let tags = vec!["food".to_owned(), "taste".to_owned()];
    let new = NewNote::new("k1", "likes tea", tags.clone(), Some(run)).expect("a note");
    let now = world.harness.records.now().await.expect("now");
    let NoteOutcome::Stored(id) = remember(&world, "ada", new.clone()).await else {
        panic!("a new note is kept");
    };
    world.advance(Millis(1_000));
    for again in [new, new_note("k1", "likes coffee", &[])] {
        assert_eq!(remember(&world, "ada", again).await, NoteOutcome::Existing(id));
    }
    let kept = Note { id, text: "likes tea".to_owned(), tags, run: Some(run), at: now };
    assert_eq!(list_notes(&world, None, 9).await, [kept]);
    // A key is its writer's own, and a resource's.
    let other = remember(&world, "bob", new_note("k1", "likes tea", &[])).await;
    assert!(matches!(other, NoteOutcome::Stored(other) if other != id));
}

/// A list begins with the newest and goes on after one of them.
pub async fn notes_are_listed_newest_first(world: StoreFixture) {
    remember_all(&world, &["one", "two", "three", "four"]).await;
    let first = list_notes(&world, None, 2).await;
    let last = first.last().map(|note| note.id);
    assert_eq!(texts(first), ["four", "three"]);
    let rest = list_notes(&world, last, 9).await;
    let end = rest.last().map(|note| note.id);
    assert_eq!(texts(rest), ["two", "one"]);
    assert_eq!(list_notes(&world, end, 9).await, []);
    let unknown = Some(NoteId::from_bits(1));
    assert_eq!(list_notes(&world, unknown, 9).await, []);
}

/// Any word of a query finds, in any case; none lists the newest.
pub async fn notes_are_searched_by_words(world: StoreFixture) {
    remember_all(
        &world,
        &["The deploy key is in the safe", "Prefers short answers", "The build runs nightly"],
    )
    .await;
    assert_eq!(recall(&world, "DEPLOY").await, ["The deploy key is in the safe"]);
    let mut both = recall(&world, "nightly answers").await;
    both.sort();
    assert_eq!(both, ["Prefers short answers", "The build runs nightly"]);
    assert_eq!(recall(&world, "unheard").await, [""; 0]);
    // A part of a word is another word.
    assert_eq!(recall(&world, "night").await, [""; 0]);
    let newest =
        ["The build runs nightly", "Prefers short answers", "The deploy key is in the safe"];
    for nothing in ["", "  ", "?!"] {
        assert_eq!(recall(&world, nothing).await, newest, "{nothing:?}");
    }
    let two = world.harness.records.search_notes(&resource_key("ada"), "the", 1).await;
    assert_eq!(two.expect("recall").len(), 1);
}

/// More of the words, rarer words and a shorter note weigh more than being new.
pub async fn better_matches_come_first(world: StoreFixture) {
    let others = ["likes tea", "likes jazz", "likes chess", "likes rain", "naps"];
    remember_all(&world, &others).await;
    remember_all(
        &world,
        &[
            "server berlin rack",
            "server paris rack",
            "server madrid rack",
            "server berlin",
            "server oslo rack, and a good deal more that has nothing to do with it at all",
        ],
    )
    .await;
    let found = recall(&world, "server berlin rack").await;
    assert_eq!(found.len(), 5);
    assert_eq!(found[0], "server berlin rack");
    assert_eq!(found[1], "server berlin");
    assert_eq!(
        found[4],
        "server oslo rack, and a good deal more that has nothing to do with it at all"
    );
}

/// Of notes that fit alike the newest comes first.
pub async fn equal_matches_come_newest_first(world: StoreFixture) {
    for number in 0..5 {
        let key = number.to_string();
        remember(&world, "ada", new_note(&key, "likes tea", &[&key])).await;
    }
    remember_all(&world, &["something else"]).await;
    let found = world.harness.records.search_notes(&resource_key("ada"), "tea", 9).await;
    let tags = found.expect("recall").into_iter().map(|note| note.tags);
    let tags: Vec<String> = tags.flatten().collect();
    assert_eq!(tags, ["4", "3", "2", "1", "0"]);
}

/// What a model writes is words: nothing in it is an operator, a filter or an end.
pub async fn a_query_has_no_syntax(world: StoreFixture) {
    remember_all(&world, &["alpha beta", "gamma delta", "epsilon zeta"]).await;
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
        let found = recall(&world, query).await;
        assert_eq!(found.first().map(String::as_str), Some(one[0]), "{query:?}");
    }
    let found = recall(&world, "alp*").await;
    assert_eq!(found, [""; 0], "a star is no wildcard");
    let long = "alpha ".repeat(50_000);
    assert_eq!(recall(&world, &long).await, one);
}

/// Marks on letters make no difference, on either side.
pub async fn search_ignores_accents(world: StoreFixture) {
    remember_all(&world, &["Lives in Zürich", "Café au lait", "Peña, São"]).await;
    for query in ["zurich", "ZÜRICH", "Zu\u{308}rich"] {
        assert_eq!(recall(&world, query).await, ["Lives in Zürich"], "{query}");
    }
    assert_eq!(recall(&world, "cafe").await, ["Café au lait"]);
    assert_eq!(recall(&world, "pena").await, ["Peña, São"]);
}

/// Where no blank stands between words, a part of a text is found all the same.
pub async fn unspaced_scripts_are_searchable(world: StoreFixture) {
    let texts = [
        "彼女は東京に住んでいます",
        "京都が好き",
        "서울에서 일합니다",
        "ชอบกินข้าวผัด",
        "Meets 王小明 on Mondays",
    ];
    remember_all(&world, &texts).await;
    assert_eq!(recall(&world, "東京").await, [texts[0]]);
    assert_eq!(recall(&world, "京都").await, [texts[1]]);
    assert_eq!(recall(&world, "서울").await, [texts[2]]);
    assert_eq!(recall(&world, "王小明").await, [texts[4]]);
    assert_eq!(recall(&world, "小明").await, [texts[4]]);
    let mut both = recall(&world, "京").await;
    both.sort();
    assert_eq!(both, [texts[1], texts[0]]);
    assert_eq!(recall(&world, "大阪").await, [""; 0]);
}

/// A tag is a word of its note.
pub async fn notes_are_found_by_their_tags(world: StoreFixture) {
    remember(&world, "ada", new_note("1", "likes tea", &["preference", "飲み物"])).await;
    remember(&world, "ada", new_note("2", "ships on Fridays", &["habit"])).await;
    assert_eq!(recall(&world, "preference").await, ["likes tea"]);
    assert_eq!(recall(&world, "飲み物").await, ["likes tea"]);
}

/// Nobody is told what was written about somebody else.
pub async fn a_resource_sees_its_own_notes_only(world: StoreFixture) {
    remember(&world, "ada", new_note("1", "likes tea", &[])).await;
    remember(&world, "ad", new_note("1", "likes coffee", &[])).await;
    remember(&world, "ADA", new_note("1", "likes water", &[])).await;
    assert_eq!(recall(&world, "likes").await, ["likes tea"]);
    assert_eq!(recall(&world, "ada ADA ad").await, [""; 0]);
    assert_eq!(texts(list_notes(&world, None, 9).await), ["likes tea"]);
    let gone = world.harness.records.clear_notes(&resource_key("ad")).await;
    assert_eq!(gone.expect("clear"), 1);
    assert_eq!(recall(&world, "likes").await, ["likes tea"]);
}

/// What a person has forgotten is neither listed nor found, and its key is free.
pub async fn a_deleted_note_is_not_found(world: StoreFixture) {
    remember_all(&world, &["likes tea", "likes jazz", "likes chess"]).await;
    let notes = list_notes(&world, None, 9).await;
    let jazz = notes[1].id;
    let forget = async |id| world.harness.records.delete_note(id).await.expect("forget");
    assert!(forget(jazz).await);
    assert!(!forget(jazz).await);
    assert_eq!(recall(&world, "jazz").await, [""; 0]);
    assert_eq!(recall(&world, "likes").await, ["likes chess", "likes tea"]);
    world.advance(Millis(5));
    remember_all(&world, &["likes jazz"]).await;
    assert_eq!(recall(&world, "jazz").await, ["likes jazz"]);
    let cleared = world.harness.records.clear_notes(&resource_key("ada")).await;
    assert_eq!(cleared.expect("clear"), 3);
    assert_eq!(recall(&world, "likes jazz").await, [""; 0]);
    assert_eq!(list_notes(&world, None, 9).await, []);
    remember_all(&world, &["likes tea"]).await;
    assert_eq!(recall(&world, "tea").await, ["likes tea"]);
}

/// A run is forgotten in time; what it has written down is not.
pub async fn notes_outlive_the_run_that_wrote_them(world: StoreFixture) {
    let mut held = world.open_and_claim(|_| {}).await;
    let new = NewNote::new("k", "likes tea", Vec::new(), Some(held.run)).expect("a note");
    remember(&world, "ada", new).await;
    held.append_ok(end_batch()).await;
    // The newest run of all is kept.
    world.open(|_| {}).await;
    world.advance(Millis::from_secs(1_000));
    let ask = PruneRequest {
        runs_older_than: Millis::from_secs(1),
        blobs_older_than: Millis::from_secs(1),
        limit: 10,
    };
    let pruned = world.harness.store.prune(ask).await.expect("prune");
    assert_eq!(pruned.runs, 1);
    let notes = list_notes(&world, None, 9).await;
    assert_eq!(notes[0].run, Some(held.run));
}

/// Beyond the bound a note is refused, and none is removed to make room.
pub async fn notes_are_limited(world: StoreFixture) {
    for from in (0..NOTES_MAX).step_by(usize::try_from(BATCH_SIZE).unwrap_or(1)) {
        let numbers = (from..from + BATCH_SIZE).map(|number| number.to_string());
        let notes = numbers.map(|key| new_note(&key, &format!("note {key}"), &[]));
        let noted = join_all(notes.map(|note| remember(&world, "ada", note))).await;
        assert!(noted.iter().all(|noted| matches!(noted, NoteOutcome::Stored(_))));
    }
    let one_more = remember(&world, "ada", new_note("more", "one more", &[])).await;
    assert_eq!(one_more, NoteOutcome::Full);
    let known = remember(&world, "ada", new_note("77", "again", &[])).await;
    assert!(matches!(known, NoteOutcome::Existing(_)));
    assert_eq!(recall(&world, "77").await, ["note 77"]);
    let other = remember(&world, "bob", new_note("more", "one more", &[])).await;
    assert!(matches!(other, NoteOutcome::Stored(_)));
}
