//! Recorded journals as JSON Lines, in the format of exports and streams.

use std::path::Path;

use longhaul_core::event::entry::{JournalEntry, JournalEntryEnvelope};

use crate::sim::SimError;

/// Writes a journal as text, one event per line.
pub fn to_lines(entries: &[JournalEntry]) -> Result<String, SimError> {
    let mut text = String::new();
    for entry in entries {
        text.push_str(&serde_json::to_string(&entry.to_envelope()?)?);
        text.push('\n');
    }
    Ok(text)
}

/// Parses a journal from text.
pub fn from_lines(text: &str) -> Result<Vec<JournalEntry>, SimError> {
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    lines
        .map(|line| {
            let envelope: JournalEntryEnvelope = serde_json::from_str(line)?;
            Ok(JournalEntry::try_from(&envelope)?)
        })
        .collect()
}

/// Loads all recorded journals of a directory, by name.
pub fn load(folder: &Path) -> Result<Vec<(String, Vec<JournalEntry>)>, SimError> {
    let mut journals = Vec::new();
    for file in std::fs::read_dir(folder)? {
        let path = file?.path();
        if path.extension().is_some_and(|end| end == "jsonl") {
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            journals.push((name, from_lines(&std::fs::read_to_string(&path)?)?));
        }
    }
    journals.sort_by(|one, other| one.0.cmp(&other.0));
    Ok(journals)
}
