//! Notes of a resource (the person or thing that the notes are about), with full-text search. A
//! search query is split into words; it has no other syntax.

use longhaul_core::id::{NoteId, ResourceKey, RunId};
use longhaul_core::note::{
    AddNoteOutcome, MemoryNote, NOTES_MAX, NewMemoryNote, insert_spaces_in_unspaced_scripts,
    query_words,
};
use longhaul_core::raw::Hash;
use rusqlite::{Result, Row, params};

use crate::sqlite::column::{
    count_to_column, get_json, get_time, get_u64, limit_to_column, to_json,
};
use crate::sqlite::tx::Tx;

/// Selects the notes about a resource (a person or thing) that contain any of the given words. The
/// token of the resource in the index does not affect the ranking.
pub(crate) const SEARCH_NOTES: &str = "SELECT n.id, n.text, n.tags, n.run, n.at
       FROM note_fts CROSS JOIN note n ON n.number = note_fts.rowid
      WHERE note_fts MATCH ?1 AND n.resource = ?2
      ORDER BY bm25(note_fts, 0.0, 1.0, 1.0), n.number DESC LIMIT ?3";

/// Selects the notes about a resource (a person or thing) with a number below the given one, newest
/// first.
pub(crate) const SELECT_NOTES: &str = "SELECT id, text, tags, run, at FROM note
      WHERE resource = ?1 AND number < ?2 ORDER BY number DESC LIMIT ?3";

const COUNT: &str = "SELECT count(*) FROM note WHERE resource = ?1";

/// Adds a note about a resource (a person or thing), unless a note with the same key exists or the
/// resource already has `NOTES_MAX` notes.
pub(crate) fn add_note(
    tx: &Tx<'_>,
    resource: &ResourceKey,
    note: &NewMemoryNote,
) -> Result<AddNoteOutcome> {
    let select_id = "SELECT id FROM note WHERE resource = ?1 AND key = ?2";
    let select_id =
        tx.query_one(select_id, params![resource.as_str(), note.note_key()], read_note_id)?;
    if let Some(id) = select_id {
        return Ok(AddNoteOutcome::Existing(id));
    }
    let count = tx.query_one(COUNT, params![resource.as_str()], |row| get_u64(row, 0))?;
    if count.unwrap_or_default() >= NOTES_MAX {
        return Ok(AddNoteOutcome::Full);
    }
    let stored = note.to_stored_note(resource, tx.now);
    tx.run(
        "INSERT INTO note (id, resource, key, text, tags, run, at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        params![
            stored.id.bytes(),
            resource.as_str(),
            note.note_key(),
            stored.text,
            to_json(&stored.tags)?,
            stored.run.map(RunId::bytes),
            stored.at.as_micros(),
        ],
    )?;
    tx.run(
        "INSERT INTO note_fts (rowid, resource, words, tags) VALUES (?1, ?2, ?3, ?4)",
        params![
            tx.conn.last_insert_rowid(),
            note_resource_search_token(resource),
            insert_spaces_in_unspaced_scripts(&stored.text),
            insert_spaces_in_unspaced_scripts(&stored.tags.join(" ")),
        ],
    )?;
    Ok(AddNoteOutcome::Stored(stored.id))
}

/// Returns the notes about a resource (a person or thing) that match a query, best match first. For
/// a query without words, returns the newest notes.
pub(crate) fn search_notes(
    tx: &Tx<'_>,
    resource: &ResourceKey,
    query: &str,
    count: usize,
) -> Result<Vec<MemoryNote>> {
    let words = query_words(query);
    if words.is_empty() {
        return list_notes(tx, resource, None, count);
    }
    // Every word is quoted, and words never contain quotes.
    let words: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
    let token = note_resource_search_token(resource);
    let any_word = words.join(" OR ");
    let fts_query = format!("(resource : \"{token}\") AND ({{words tags}} : ({any_word}))");
    tx.query_all(
        SEARCH_NOTES,
        params![fts_query, resource.as_str(), limit_to_column(count)],
        read_note_row,
    )
}

/// Lists the notes about a resource (a person or thing), newest first.
pub(crate) fn list_notes(
    tx: &Tx<'_>,
    resource: &ResourceKey,
    after: Option<NoteId>,
    count: usize,
) -> Result<Vec<MemoryNote>> {
    let before = match after {
        None => Some(i64::MAX),
        Some(after) => {
            tx.query_one("SELECT number FROM note WHERE id = ?1", params![after.bytes()], |row| {
                row.get(0)
            })?
        }
    };
    // The position of a deleted note is unknown, so nothing can follow it.
    let Some(before) = before else {
        return Ok(Vec::new());
    };
    tx.query_all(
        SELECT_NOTES,
        params![resource.as_str(), before, limit_to_column(count)],
        read_note_row,
    )
}

/// Deletes a note. Returns false if the note does not exist.
pub(crate) fn delete_note(tx: &Tx<'_>, note: NoteId) -> Result<bool> {
    let sql = "DELETE FROM note WHERE id = ?1 RETURNING number";
    let number = tx.query_one(sql, params![note.bytes()], |row| get_u64(row, 0))?;
    if let Some(number) = number {
        tx.run("DELETE FROM note_fts WHERE rowid = ?1", params![count_to_column(number)])?;
    }
    Ok(number.is_some())
}

/// Deletes all notes about a resource (a person or thing) and returns their number.
pub(crate) fn clear_notes(tx: &Tx<'_>, resource: &ResourceKey) -> Result<u64> {
    let params = params![resource.as_str()];
    tx.run(
        "DELETE FROM note_fts WHERE rowid IN (SELECT number FROM note WHERE resource = ?1)",
        params,
    )?;
    let deleted = tx.run("DELETE FROM note WHERE resource = ?1", params)?;
    Ok(deleted as u64)
}

/// Returns the token that marks the notes about this resource (a person or thing) in the full-text
/// index. No text contains it by chance.
fn note_resource_search_token(resource: &ResourceKey) -> String {
    format!("r{}", Hash::digest(resource.as_str().as_bytes()))
}

fn read_note_id(row: &Row<'_>) -> Result<NoteId> {
    row.get(0).map(NoteId::from_bytes)
}

fn read_note_row(row: &Row<'_>) -> Result<MemoryNote> {
    let run: Option<[u8; 16]> = row.get(3)?;
    Ok(MemoryNote {
        id: read_note_id(row)?,
        text: row.get(1)?,
        tags: get_json(row, 2)?,
        run: run.map(RunId::from_bytes),
        at: get_time(row, 4)?,
    })
}
