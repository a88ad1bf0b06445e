//! Notes: kept under their writer's key, found again by their words.
//!
//! Never: takes a query for more than words, or removes a note that no person
//! has named.

use longhaul_core::id::{NoteId, ResourceKey, RunId};
use longhaul_core::note::{NOTES_MAX, NewNote, Note, NoteOutcome, query_words, separate_unspaced};
use longhaul_core::raw::Hash;
use rusqlite::{Result, Row, params};

use crate::sqlite::column::{get_u64, int, json, limit, time, to_json};
use crate::sqlite::tx::Tx;

/// The notes with any of some words. The resource's own word weighs nothing.
pub(crate) const SEARCH_NOTES: &str = "SELECT n.id, n.text, n.tags, n.run, n.at
       FROM note_fts CROSS JOIN note n ON n.number = note_fts.rowid
      WHERE note_fts MATCH ?1 AND n.resource = ?2
      ORDER BY bm25(note_fts, 0.0, 1.0, 1.0), n.number DESC LIMIT ?3";

/// The notes of a resource before a number, the newest first.
pub(crate) const SELECT_NOTES: &str = "SELECT id, text, tags, run, at FROM note
      WHERE resource = ?1 AND number < ?2 ORDER BY number DESC LIMIT ?3";

const COUNT: &str = "SELECT count(*) FROM note WHERE resource = ?1";

/// Keeps a note, unless its key is known or there are too many.
pub(crate) fn add(tx: &Tx<'_>, resource: &ResourceKey, note: &NewNote) -> Result<NoteOutcome> {
    let known = "SELECT id FROM note WHERE resource = ?1 AND key = ?2";
    let known = tx.one(known, params![resource.as_str(), note.key()], note_id)?;
    if let Some(id) = known {
        return Ok(NoteOutcome::Existing(id));
    }
    let count = tx.one(COUNT, params![resource.as_str()], |row| get_u64(row, 0))?;
    if count.unwrap_or_default() >= NOTES_MAX {
        return Ok(NoteOutcome::Full);
    }
    let kept = note.to_note(resource, tx.now);
    tx.run(
        "INSERT INTO note (id, resource, key, text, tags, run, at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        params![
            kept.id.bytes(),
            resource.as_str(),
            note.key(),
            kept.text,
            to_json(&kept.tags)?,
            kept.run.map(RunId::bytes),
            kept.at.as_micros(),
        ],
    )?;
    tx.run(
        "INSERT INTO note_fts (rowid, resource, words, tags) VALUES (?1, ?2, ?3, ?4)",
        params![
            tx.conn.last_insert_rowid(),
            resource_token(resource),
            separate_unspaced(&kept.text),
            separate_unspaced(&kept.tags.join(" ")),
        ],
    )?;
    Ok(NoteOutcome::Stored(kept.id))
}

/// The notes that fit a query, the best first; without a word in it the newest.
pub(crate) fn search(
    tx: &Tx<'_>,
    resource: &ResourceKey,
    query: &str,
    count: usize,
) -> Result<Vec<Note>> {
    let words = query_words(query);
    if words.is_empty() {
        return notes(tx, resource, None, count);
    }
    // Every word stands in quotes of ours, and no quote is part of a word.
    let words: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
    let of = resource_token(resource);
    let any = words.join(" OR ");
    let wanted = format!("(resource : \"{of}\") AND ({{words tags}} : ({any}))");
    tx.all(SEARCH_NOTES, params![wanted, resource.as_str(), limit(count)], note_row)
}

/// The notes of a resource, the newest first.
pub(crate) fn notes(
    tx: &Tx<'_>,
    resource: &ResourceKey,
    after: Option<NoteId>,
    count: usize,
) -> Result<Vec<Note>> {
    let before = match after {
        None => Some(i64::MAX),
        Some(after) => {
            tx.one("SELECT number FROM note WHERE id = ?1", params![after.bytes()], |row| {
                row.get(0)
            })?
        }
    };
    // Nobody knows what came after a note that is gone.
    let Some(before) = before else {
        return Ok(Vec::new());
    };
    tx.all(SELECT_NOTES, params![resource.as_str(), before, limit(count)], note_row)
}

/// Forgets a note; false: there is none.
pub(crate) fn delete(tx: &Tx<'_>, note: NoteId) -> Result<bool> {
    let sql = "DELETE FROM note WHERE id = ?1 RETURNING number";
    let number = tx.one(sql, params![note.bytes()], |row| get_u64(row, 0))?;
    if let Some(number) = number {
        tx.run("DELETE FROM note_fts WHERE rowid = ?1", params![int(number)])?;
    }
    Ok(number.is_some())
}

/// Forgets all notes of a resource, and says how many there were.
pub(crate) fn clear(tx: &Tx<'_>, resource: &ResourceKey) -> Result<u64> {
    let of = params![resource.as_str()];
    tx.run(
        "DELETE FROM note_fts WHERE rowid IN (SELECT number FROM note WHERE resource = ?1)",
        of,
    )?;
    let gone = tx.run("DELETE FROM note WHERE resource = ?1", of)?;
    Ok(gone as u64)
}

/// The resource as one word: letters and digits that no text has by chance.
fn resource_token(resource: &ResourceKey) -> String {
    format!("r{}", Hash::digest(resource.as_str().as_bytes()))
}

fn note_id(row: &Row<'_>) -> Result<NoteId> {
    row.get(0).map(NoteId::from_bytes)
}

fn note_row(row: &Row<'_>) -> Result<Note> {
    let run: Option<[u8; 16]> = row.get(3)?;
    Ok(Note {
        id: note_id(row)?,
        text: row.get(1)?,
        tags: json(row, 2)?,
        run: run.map(RunId::from_bytes),
        at: time(row, 4)?,
    })
}
