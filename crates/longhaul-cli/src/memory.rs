//! `longhaul memory`: what threads and notes hold, and how people remove it.
//!
//! Never: a server's. Memory is looked at where the store is, beside whoever
//! drives it.

use clap::{Args, Subcommand};
use longhaul::assemble::ProjectRuntime;
use longhaul_core::id::{NoteId, ResourceKey, ThreadKey};
use longhaul_core::message::Message;
use longhaul_core::note::Note;
use longhaul_engine::Longhaul;
use serde_json::{Value, json};

use crate::environment::process_env;
use crate::error::CliError;
use crate::event_printer::{date_time, first_line};
use crate::table::{self, Cell};
use crate::transcript::render_messages;
use crate::{output, runtime, store_access};

/// So many letters of a note stand in a row.
const NOTE_CHARS: usize = 80;

/// The longest list.
const LIMIT_MAX: usize = 10_000;

const EXAMPLES: &str = "Examples:
  longhaul run writer 'Go on.' --thread letters --resource ada
  longhaul memory show letters             what runs of this thread remember, oldest first
  longhaul memory notes ada                what agents wrote down about ada, newest first
  longhaul memory notes ada tea sugar      only notes with any of these words, best match first
  longhaul memory notes ada --json | jq -r .data[].text
  longhaul memory forget note_01k3rzc...   removes one note
  longhaul memory forget --all ada         removes all notes about ada
  longhaul memory clear letters            forgets a thread; journals keep what was said";

/// What agents remember.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Memory {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Shows the messages of a thread, oldest first
    #[command(after_help = EXAMPLES)]
    Show(Show),
    /// Forgets a thread
    #[command(after_help = EXAMPLES)]
    Clear(Clear),
    /// Lists notes about a person or thing, or looks for some
    #[command(after_help = EXAMPLES)]
    Notes(Notes),
    /// Removes a note, or all about a person or thing
    #[command(after_help = EXAMPLES)]
    Forget(Forget),
}

#[derive(Debug, Args)]
struct Show {
    /// The thread, as `--thread` names it
    thread: ThreadKey,
    /// So many of the newest messages
    #[arg(long, default_value_t = 50)]
    limit: usize,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct Clear {
    /// The thread, as `--thread` names it
    thread: ThreadKey,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct Notes {
    /// Whom or what they are about, as `--resource` names it
    resource: ResourceKey,
    /// Words to look for; any of them is enough
    query: Vec<String>,
    /// So many at most
    #[arg(long, default_value_t = 50)]
    limit: usize,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct Forget {
    /// The note
    #[arg(required_unless_present = "all", conflicts_with = "all")]
    note: Option<NoteId>,
    /// All notes about this person or thing
    #[arg(long, value_name = "RESOURCE")]
    all: Option<ResourceKey>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Memory {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        match &self.command {
            Command::Show(show) => show.run(),
            Command::Clear(clear) => clear.run(),
            Command::Notes(notes) => notes.run(),
            Command::Forget(forget) => forget.run(),
        }
    }
}

/// The store of this folder; none: nothing was ever kept.
fn open_store() -> anyhow::Result<Option<ProjectRuntime>> {
    if process_env()?.var("LONGHAUL_URL").is_some() {
        let words = "a server is named, and memory is looked at where its store is";
        return Err(CliError::usage(words)
            .hint("look at the store here", "LONGHAUL_URL= longhaul memory ...")
            .into());
    }
    store_access::observe_if_exists()
}

fn clamp_limit(limit: usize) -> usize {
    limit.clamp(1, LIMIT_MAX)
}

impl Show {
    fn run(&self) -> anyhow::Result<()> {
        let thread = &self.thread;
        let house = open_store()?;
        let (messages, count) = match &house {
            None => (Vec::new(), 0),
            Some(house) => {
                runtime::current_thread()?.block_on(self.load(&house.longhaul, thread))?
            }
        };
        if self.json {
            let messages = json!({ "thread": thread, "count": count, "data": messages });
            return output::stdout_json(&messages);
        }
        if messages.is_empty() {
            output::stderr_line(&format!(
                "Nothing is remembered of `{thread}`.   Say something: longhaul run AGENT TEXT --thread {thread}"
            ));
            return Ok(());
        }
        for part in render_messages(messages.iter()) {
            output::print_result(&part)?;
        }
        let shown = messages.len() as u64;
        if shown < count {
            output::stderr_line(&format!(
                "The newest {shown} of {count} messages.   All of them: --limit {count}"
            ));
        }
        Ok(())
    }

    async fn load(
        &self,
        longhaul: &Longhaul,
        thread: &ThreadKey,
    ) -> anyhow::Result<(Vec<Message>, u64)> {
        let messages = longhaul.thread_messages(thread, clamp_limit(self.limit)).await;
        let count = longhaul.thread_len(thread).await;
        Ok((messages?, count?))
    }
}

impl Clear {
    fn run(&self) -> anyhow::Result<()> {
        let thread = &self.thread;
        let count = match open_store()? {
            None => 0,
            Some(house) => runtime::current_thread()?.block_on(async {
                let longhaul = &house.longhaul;
                let count = longhaul.thread_len(thread).await?;
                longhaul.clear_thread(thread).await?;
                anyhow::Ok(count)
            })?,
        };
        if self.json {
            return output::stdout_json(&json!({ "thread": thread, "deleted": count }));
        }
        output::stdout_text(&format!("{} of `{thread}` forgotten.", count_text(count, "message")))
    }
}

impl Notes {
    fn run(&self) -> anyhow::Result<()> {
        let resource = &self.resource;
        let query = self.query.join(" ");
        let notes = match open_store()? {
            None => Vec::new(),
            Some(house) => {
                let looked = house.longhaul.search_notes(resource, &query, clamp_limit(self.limit));
                let notes: Result<Vec<Note>, _> = runtime::current_thread()?.block_on(looked);
                notes?
            }
        };
        if self.json {
            let rows: Vec<Value> = notes.iter().map(note_json).collect();
            return output::json_list(&rows);
        }
        if notes.is_empty() && query.trim().is_empty() {
            output::stderr_line(&format!("There are no notes about `{resource}`."));
        } else if notes.is_empty() {
            output::stderr_line(&format!(
                "No note about `{resource}` has any of these words.   All notes: longhaul memory notes {resource}"
            ));
        } else {
            let head = ["NOTE", "WRITTEN", "TAGS", "TEXT"];
            let rows = notes.iter().map(row);
            table::print(&head, rows)?;
        }
        Ok(())
    }
}

fn row(note: &Note) -> Vec<Cell> {
    vec![
        Cell::new(note.id.to_string()),
        Cell::new(date_time(note.at)),
        Cell::new(note.tags.join(", ")).truncated(NOTE_CHARS / 2),
        Cell::new(first_line(&note.text)).truncated(NOTE_CHARS),
    ]
}

/// A note as programs read it.
fn note_json(note: &Note) -> Value {
    json!({
        "id": note.id,
        "text": note.text,
        "tags": note.tags,
        "run": note.run,
        "at": note.at,
    })
}

impl Forget {
    fn run(&self) -> anyhow::Result<()> {
        let count = match open_store()? {
            None => 0,
            Some(house) => runtime::current_thread()?.block_on(self.forget(&house.longhaul))?,
        };
        if let (0, Some(note)) = (count, self.note) {
            return Err(CliError::usage(format!("there is no note {note}"))
                .hint("see which there are", "longhaul memory notes RESOURCE")
                .into());
        }
        if self.json {
            return output::stdout_json(&json!({ "deleted": count }));
        }
        output::stdout_text(&format!("{} forgotten.", count_text(count, "note")))
    }

    async fn forget(&self, longhaul: &Longhaul) -> anyhow::Result<u64> {
        Ok(match (&self.all, self.note) {
            (Some(resource), _) => longhaul.clear_notes(resource).await?,
            (None, Some(note)) => longhaul.delete_note(note).await?.into(),
            (None, None) => 0,
        })
    }
}

fn count_text(count: u64, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {what}{plural}")
}
