//! `longhaul memory`: shows, extends and deletes what agents remember: threads (conversations) and
//! notes. Notes are read in the local store only, not through a server.

use clap::{Args, Subcommand};
use longhaul::project::ProjectRuntime;
use longhaul_api::operations::{ADD_THREAD_MESSAGE, CLEAR_THREAD, LIST_THREAD_MESSAGES};
use longhaul_api::query::ThreadQuery;
use longhaul_api::thread::{NewThreadMessageBody, ThreadMessageRole, ThreadMessagesView};
use longhaul_core::id::{NoteId, ResourceKey, ThreadKey};
use longhaul_core::note::MemoryNote;
use longhaul_engine::Longhaul;
use serde_json::{Value, json};

use crate::client::connect::{
    connect_or_create_store, find_configured_or_local_server, try_connect_run_client,
};
use crate::environment::current_process_env;
use crate::error::CliError;
use crate::event_printer::{first_line, format_date_time};
use crate::table::{self, TableCell};
use crate::transcript::render_messages;
use crate::{output, runtime, store_access};

/// Maximum number of characters of a note in the list.
const NOTE_CHARS: usize = 80;

/// Maximum number of messages or notes that are listed.
const LIMIT_MAX: usize = 10_000;

/// Maximum number of messages that a server returns.
const REMOTE_MESSAGES_MAX: usize = 1_000;

const EXAMPLES: &str = "Examples:
  longhaul run writer 'Go on.' --thread support --resource ada
  longhaul memory show support             the messages of this thread, oldest first
  longhaul memory add support 'I am Ada.'  adds a message of the user; --role assistant: the model
  longhaul memory notes ada                what agents wrote down about ada, newest first
  longhaul memory notes ada tea sugar      only notes with any of these words, best match first
  longhaul memory notes ada --json | jq -r .data[].text
  longhaul memory forget note_01k3rzc...   deletes one note
  longhaul memory forget --all ada         deletes all notes about ada
  longhaul memory clear support            deletes a thread; journals keep the messages";

/// Arguments of `longhaul memory`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct MemoryCommand {
    #[command(subcommand)]
    command: MemorySubcommand,
}

#[derive(Debug, Subcommand)]
enum MemorySubcommand {
    /// Shows the messages of a thread, oldest first
    #[command(after_help = EXAMPLES)]
    Show(ShowThreadCommand),
    /// Adds a message to a thread
    #[command(after_help = EXAMPLES)]
    Add(AddThreadMessageCommand),
    /// Deletes the messages of a thread
    #[command(after_help = EXAMPLES)]
    Clear(ClearThreadCommand),
    /// Lists or searches notes about a person or thing
    #[command(after_help = EXAMPLES)]
    Notes(ListNotesCommand),
    /// Deletes a note, or all notes about a person or thing
    #[command(after_help = EXAMPLES)]
    Forget(ForgetNotesCommand),
}

#[derive(Debug, Args)]
struct ShowThreadCommand {
    /// Key of the thread, as in `--thread`
    thread: ThreadKey,
    /// Maximum number of messages to show; the newest are shown
    #[arg(long, default_value_t = 50)]
    limit: usize,
    /// Print the messages as one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct AddThreadMessageCommand {
    /// Key of the thread, as in `--thread`
    thread: ThreadKey,
    /// Text of the message
    text: String,
    /// Author of the message: user or assistant
    #[arg(long, default_value = "user", value_parser = parse_role)]
    role: ThreadMessageRole,
    /// Print the result as one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct ClearThreadCommand {
    /// Key of the thread, as in `--thread`
    thread: ThreadKey,
    /// Print the result as one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct ListNotesCommand {
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
}

#[derive(Debug, Args)]
struct ForgetNotesCommand {
    /// Id of the note to delete
    #[arg(required_unless_present = "all", conflicts_with = "all")]
    note: Option<NoteId>,
    /// Delete all notes about this person or thing
    #[arg(long, value_name = "RESOURCE")]
    all: Option<ResourceKey>,
    /// Print the result as one JSON object
    #[arg(long)]
    json: bool,
}

impl MemoryCommand {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        match &self.command {
            MemorySubcommand::Show(show) => show.print_thread(),
            MemorySubcommand::Add(add) => add.add_message(),
            MemorySubcommand::Clear(clear) => clear.clear_thread(),
            MemorySubcommand::Notes(notes) => notes.print_notes(),
            MemorySubcommand::Forget(forget) => forget.forget_notes(),
        }
    }
}

/// Opens the store of this folder. `None` means that there is no store.
fn open_local_store() -> anyhow::Result<Option<ProjectRuntime>> {
    if current_process_env()?.var("LONGHAUL_URL").is_some() {
        let message =
            "LONGHAUL_URL names a server, and notes can only be read where their store is";
        return Err(CliError::usage_error(message)
            .with_hint("use the store here", "LONGHAUL_URL= longhaul memory ...")
            .into());
    }
    store_access::open_existing_store_as_observer()
}

fn clamp_list_limit(limit: usize) -> usize {
    limit.clamp(1, LIMIT_MAX)
}

fn parse_role(text: &str) -> Result<ThreadMessageRole, &'static str> {
    match text {
        "user" => Ok(ThreadMessageRole::User),
        "assistant" => Ok(ThreadMessageRole::Assistant),
        _ => Err("write user or assistant"),
    }
}

impl ShowThreadCommand {
    fn print_thread(&self) -> anyhow::Result<()> {
        let thread = &self.thread;
        let view = match try_connect_run_client()? {
            None => ThreadMessagesView { thread: thread.to_string(), count: 0, data: Vec::new() },
            Some(client) => {
                let limit_max = if client.is_remote() { REMOTE_MESSAGES_MAX } else { LIMIT_MAX };
                let limit = Some(clamp_list_limit(self.limit).min(limit_max));
                let request = LIST_THREAD_MESSAGES.at(thread.clone()).query(&ThreadQuery { limit });
                runtime::build_single_thread_tokio()?.block_on(client.send(request))?
            }
        };
        if self.json {
            return output::print_json(&view);
        }
        let ThreadMessagesView { count, data: messages, .. } = view;
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
        if shown_count < count {
            let help = match shown_count < clamp_list_limit(self.limit) as u64 {
                true => format!("A server returns at most {shown_count}."),
                false => format!("All of them: --limit {count}"),
            };
            output::eprint_line(&format!("The newest {shown_count} of {count} messages.   {help}"));
        }
        Ok(())
    }
}

impl AddThreadMessageCommand {
    fn add_message(&self) -> anyhow::Result<()> {
        let (thread, role, text) = (&self.thread, self.role, self.text.clone());
        let client = connect_or_create_store(find_configured_or_local_server()?)?;
        let message = NewThreadMessageBody { role, text };
        let add = client.send(ADD_THREAD_MESSAGE.at(thread.clone()).body(&message));
        let count = runtime::build_single_thread_tokio()?.block_on(add)?.count;
        if self.json {
            return output::print_json(&json!({ "thread": thread, "count": count }));
        }
        output::print_text(&format!(
            "The thread `{thread}` has {} now.",
            count_with_noun(count, "message")
        ))
    }
}

impl ClearThreadCommand {
    fn clear_thread(&self) -> anyhow::Result<()> {
        let thread = &self.thread;
        let count = match try_connect_run_client()? {
            None => 0,
            Some(client) => {
                let clear = client.send(CLEAR_THREAD.at(thread.clone()));
                runtime::build_single_thread_tokio()?.block_on(clear)?.deleted
            }
        };
        if self.json {
            return output::print_json(&json!({ "thread": thread, "deleted": count }));
        }
        output::print_text(&format!(
            "Deleted {} of the thread `{thread}`.",
            count_with_noun(count, "message")
        ))
    }
}

impl ListNotesCommand {
    fn print_notes(&self) -> anyhow::Result<()> {
        let resource = &self.resource;
        let query = self.query.join(" ");
        let notes = match open_local_store()? {
            None => Vec::new(),
            Some(runtime) => {
                let search =
                    runtime.longhaul.search_notes(resource, &query, clamp_list_limit(self.limit));
                let notes: Result<Vec<MemoryNote>, _> =
                    runtime::build_single_thread_tokio()?.block_on(search);
                notes?
            }
        };
        if self.json {
            let rows: Vec<Value> = notes.iter().map(note_json).collect();
            return output::print_json_list(&rows);
        }
        if notes.is_empty() && query.trim().is_empty() {
            output::eprint_line(&format!("There are no notes about `{resource}`."));
        } else if notes.is_empty() {
            output::eprint_line(&format!(
                "No note about `{resource}` has any of these words.   All notes: longhaul memory notes {resource}"
            ));
        } else {
            let titles = ["NOTE", "WRITTEN", "TAGS", "TEXT"];
            let rows = notes.iter().map(note_row);
            table::print_table(&titles, rows)?;
        }
        Ok(())
    }
}

fn note_row(note: &MemoryNote) -> Vec<TableCell> {
    vec![
        TableCell::new(note.id.to_string()),
        TableCell::new(format_date_time(note.at)),
        TableCell::new(note.tags.join(", ")).with_max_chars(NOTE_CHARS / 2),
        TableCell::new(first_line(&note.text)).with_max_chars(NOTE_CHARS),
    ]
}

fn note_json(note: &MemoryNote) -> Value {
    json!({
        "id": note.id,
        "text": note.text,
        "tags": note.tags,
        "run": note.run,
        "at": note.at,
    })
}

impl ForgetNotesCommand {
    fn forget_notes(&self) -> anyhow::Result<()> {
        let count = match open_local_store()? {
            None => 0,
            Some(runtime) => runtime::build_single_thread_tokio()?
                .block_on(self.delete_notes(&runtime.longhaul))?,
        };
        if let (0, Some(note)) = (count, self.note) {
            return Err(CliError::usage_error(format!("there is no note {note}"))
                .with_hint("list the notes", "longhaul memory notes RESOURCE")
                .into());
        }
        if self.json {
            return output::print_json(&json!({ "deleted": count }));
        }
        output::print_text(&format!("Deleted {}.", count_with_noun(count, "note")))
    }

    async fn delete_notes(&self, longhaul: &Longhaul) -> anyhow::Result<u64> {
        Ok(match (&self.all, self.note) {
            (Some(resource), _) => longhaul.clear_notes(resource).await?,
            (None, Some(note)) => longhaul.delete_note(note).await?.into(),
            (None, None) => 0,
        })
    }
}

fn count_with_noun(count: u64, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{plural}")
}
