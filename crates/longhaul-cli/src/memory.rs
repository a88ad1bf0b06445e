//! `longhaul memory`: shows, extends and deletes what agents remember: threads (conversations) and
//! notes. Notes are read in the local store only, not through a server.

use clap::Subcommand;
use longhaul::project::ProjectRuntime;
use longhaul_api::operations::{ADD_THREAD_MESSAGE, CLEAR_THREAD, LIST_THREAD_MESSAGES};
use longhaul_api::query::ThreadQuery;
use longhaul_api::transcript::{NewThreadMessageBody, ThreadMessageRole, ThreadMessagesView};
use longhaul_core::id::{NoteId, ResourceKey, ThreadKey};
use longhaul_core::note::MemoryNote;
use serde_json::{Value, json};

use crate::client::Client;
use crate::client::connect::{with_client_if_any, with_client_or_new_store};
use crate::environment::current_process_env;
use crate::error::fail;
use crate::event_printer::{first_line, format_date_time};
use crate::format::{count_with_noun, name_parser};
use crate::table::{self, TableCell};
use crate::transcript::render_messages;
use crate::{output, runtime, store_access};

/// Maximum number of characters of a note in the list.
const NOTE_CHARS: usize = 80;

/// Maximum number of messages or notes that are listed.
const LIMIT_MAX: usize = 10_000;

/// Maximum number of messages that a server returns.
const REMOTE_MESSAGES_MAX: usize = 1_000;

pub(crate) const EXAMPLES: &str = "Examples:
  longhaul run writer 'Go on.' --thread support --resource ada
  longhaul memory show support             the messages of this thread, oldest first
  longhaul memory add support 'I am Ada.'  adds a message of the user; --role assistant: the model
  longhaul memory notes ada                what agents wrote down about ada, newest first
  longhaul memory notes ada tea sugar      only notes with any of these words, best match first
  longhaul memory notes ada --json | jq -r .data[].text
  longhaul memory forget note_01k3rzc...   deletes one note
  longhaul memory forget --all ada         deletes all notes about ada
  longhaul memory clear support            deletes a thread; journals keep the messages";

/// The subcommands of `longhaul memory`.
#[derive(Debug, Subcommand)]
pub(crate) enum MemoryCommand {
    /// Shows the messages of a thread, oldest first
    Show {
        /// Key of the thread, as in `--thread`
        thread: ThreadKey,
        /// Maximum number of messages to show; the newest are shown
        #[arg(long, default_value_t = 50)]
        limit: usize,
        /// Print the messages as one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Adds a message to a thread
    Add {
        /// Key of the thread, as in `--thread`
        thread: ThreadKey,
        /// Text of the message
        text: String,
        /// Author of the message: user or assistant
        #[arg(long, default_value = "user", value_parser = name_parser::<ThreadMessageRole>(["user", "assistant"]))]
        role: ThreadMessageRole,
        /// Print the result as one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Deletes the messages of a thread
    Clear {
        /// Key of the thread, as in `--thread`
        thread: ThreadKey,
        /// Print the result as one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Lists or searches notes about a person or thing
    Notes {
        /// Person or thing that the notes are about, as in `--resource`
        resource: ResourceKey,
        /// Words to search for; a note with any of them is found
        query: Vec<String>,
        /// Maximum number of notes to list
        #[arg(long, default_value_t = 50)]
        limit: usize,
        /// Print the notes as one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Deletes a note, or all notes about a person or thing
    Forget {
        /// Id of the note to delete
        #[arg(required_unless_present = "all", conflicts_with = "all")]
        note: Option<NoteId>,
        /// Delete all notes about this person or thing
        #[arg(long, value_name = "RESOURCE")]
        all: Option<ResourceKey>,
        /// Print the result as one JSON object
        #[arg(long)]
        json: bool,
    },
}

impl MemoryCommand {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        match self {
            Self::Show { thread, limit, json } => show_thread(thread, *limit, *json),
            Self::Add { thread, text, role, json } => {
                let body = NewThreadMessageBody { role: *role, text: text.clone() };
                let request = ADD_THREAD_MESSAGE.at(thread.clone()).body(&body);
                let count = async |client: &Client| Ok(client.send(request).await?.count);
                let count = with_client_or_new_store(count)?;
                output::show_text(*json, &json!({ "thread": thread, "count": count }), |_| {
                    format!("The thread `{thread}` has {} now.", count_with_noun(count, "message"))
                })
            }
            Self::Clear { thread, json } => {
                let request = CLEAR_THREAD.at(thread.clone());
                let deleted = async |client: &Client| Ok(client.send(request).await?.deleted);
                let count = with_client_if_any(deleted)?.unwrap_or_default();
                output::show_text(*json, &json!({ "thread": thread, "deleted": count }), |_| {
                    format!(
                        "Deleted {} of the thread `{thread}`.",
                        count_with_noun(count, "message")
                    )
                })
            }
            Self::Notes { resource, query, limit, json } => {
                list_notes(resource, &query.join(" "), *limit, *json)
            }
            Self::Forget { note, all, json } => forget_notes(*note, all.as_ref(), *json),
        }
    }
}

/// Opens the store of this folder. `None` means that there is no store.
fn open_local_store() -> anyhow::Result<Option<ProjectRuntime>> {
    if current_process_env()?.var("LONGHAUL_URL").is_some() {
        let message =
            "LONGHAUL_URL names a server, and notes can only be read where their store is";
        return fail(message, "use the store here", "LONGHAUL_URL= longhaul memory ...");
    }
    store_access::open_existing_store_as_observer()
}

fn clamp_list_limit(limit: usize) -> usize {
    limit.clamp(1, LIMIT_MAX)
}

fn show_thread(thread: &ThreadKey, limit: usize, json: bool) -> anyhow::Result<()> {
    let limit = clamp_list_limit(limit);
    let view = with_client_if_any(async |client| {
        let limit_max = if client.is_remote() { REMOTE_MESSAGES_MAX } else { LIMIT_MAX };
        let query = ThreadQuery { limit: Some(limit.min(limit_max)) };
        client.send(LIST_THREAD_MESSAGES.at(thread.clone()).query(&query)).await
    })?;
    let empty = || ThreadMessagesView { thread: thread.to_string(), count: 0, data: Vec::new() };
    output::show(json, &view.unwrap_or_else(empty), |view| {
        let ThreadMessagesView { thread, count, data: messages } = view;
        if messages.is_empty() {
            output::eprint_line(&format!(
                "The thread `{thread}` has no messages.   Add one: longhaul memory add {thread} TEXT"
            ));
            return Ok(());
        }
        for part in render_messages(messages.iter()) {
            output::print_untrusted_text(&part)?;
        }
        let shown_count = messages.len() as u64;
        if shown_count < *count {
            let help = match shown_count < limit as u64 {
                true => format!("A server returns at most {shown_count}."),
                false => format!("All of them: --limit {count}"),
            };
            output::eprint_line(&format!("The newest {shown_count} of {count} messages.   {help}"));
        }
        Ok(())
    })
}

fn list_notes(resource: &ResourceKey, query: &str, limit: usize, json: bool) -> anyhow::Result<()> {
    let notes = match open_local_store()? {
        None => Vec::new(),
        Some(store) => {
            let records = &store.longhaul.services().records;
            let notes = records.search_notes(resource, query, clamp_list_limit(limit));
            runtime::block_on(async { Ok(notes.await?) })?
        }
    };
    if json {
        let note_json = |note: &MemoryNote| {
            let MemoryNote { id, text, tags, run, at, .. } = note;
            json!({ "id": id, "text": text, "tags": tags, "run": run, "at": at })
        };
        return output::print_json_list(&notes.iter().map(note_json).collect::<Value>());
    }
    if !notes.is_empty() {
        let rows = notes.iter().map(note_row);
        return table::print_table(&["NOTE", "WRITTEN", "TAGS", "TEXT"], rows);
    }
    output::eprint_line(&match query.trim() {
        "" => format!("There are no notes about `{resource}`."),
        _ => format!(
            "No note about `{resource}` has any of these words.   All notes: longhaul memory notes {resource}"
        ),
    });
    Ok(())
}

fn note_row(note: &MemoryNote) -> Vec<TableCell> {
    let tags = TableCell::new(note.tags.join(", ")).with_max_chars(NOTE_CHARS / 2);
    let text = TableCell::new(first_line(&note.text)).with_max_chars(NOTE_CHARS);
    table::row(&[&note.id, &format_date_time(note.at), &tags, &text])
}

fn forget_notes(note: Option<NoteId>, all: Option<&ResourceKey>, json: bool) -> anyhow::Result<()> {
    let count = match open_local_store()? {
        None => 0,
        Some(store) => runtime::block_on(async {
            let records = &store.longhaul.services().records;
            Ok(match (all, note) {
                (Some(resource), _) => records.clear_notes(resource).await?,
                (None, Some(note)) => records.delete_note(note).await?.into(),
                (None, None) => 0,
            })
        })?,
    };
    if let (0, Some(note)) = (count, note) {
        let message = format!("there is no note {note}");
        return fail(message, "list the notes", "longhaul memory notes RESOURCE");
    }
    output::show_text(json, &json!({ "deleted": count }), |_| {
        format!("Deleted {}.", count_with_noun(count, "note"))
    })
}
