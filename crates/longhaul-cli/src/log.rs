//! The log: one line for each thing that happens, for people on a terminal and
//! as JSON elsewhere.
//!
//! Never: a secret. What is known to be one is taken out of every line.

use std::fmt::{self, Write as _};
use std::io::IsTerminal as _;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::ValueEnum;
use longhaul::assemble::redactor::ProjectRedactor;
use longhaul_core::port::redact::Redact as _;
use longhaul_core::redact::Redactor;
use longhaul_core::time::{Clock as _, Timestamp};
use longhaul_engine::clock::SystemClock;
use longhaul_engine::secret::KEY_PREFIX;
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::teller::clock;
use crate::{error, plain, say};

/// Fewer letters after the prefix of our keys are no key.
const KEY_LETTERS_MIN: usize = 8;

/// How lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Style {
    /// For people
    Human,
    /// For programs: one object a line
    Json,
}

impl Style {
    /// What fits where stderr leads.
    pub(crate) fn by_terminal() -> Self {
        match std::io::stderr().is_terminal() {
            true => Self::Human,
            false => Self::Json,
        }
    }
}

/// Words of the commands that only say when something is wrong.
pub(crate) fn warnings() {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_max_level(Level::WARN)
        .with_target(false)
        .finish()
        .with(ours(LevelFilter::WARN))
        .init();
}

/// Our own lines from this level on, and nobody else's: what goes wrong in a library
/// is told by whoever called it, in words for people.
fn ours(level: LevelFilter) -> Targets {
    // The names of all our crates begin so.
    Targets::new().with_target("longhaul", level)
}

/// Whether stderr is a log for programs, where a line for people is out of place.
static IS_FOR_PROGRAMS: AtomicBool = AtomicBool::new(false);

/// What went wrong, as whoever reads stderr expects it.
pub(crate) fn failed(error: &anyhow::Error) {
    match IS_FOR_PROGRAMS.load(Ordering::Relaxed) {
        true => tracing::error!("{}", error::text(error)),
        false => say::error(error),
    }
}

/// Lines about everything that happens, without these secrets.
pub(crate) fn everything(style: Style, secrets: Vec<(String, String)>) {
    IS_FOR_PROGRAMS.store(style == Style::Json, Ordering::Relaxed);
    let lines = Lines {
        style,
        filter: Filter::new(&secrets),
    };
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_max_level(Level::INFO)
        .event_format(lines)
        .finish()
        .with(heard(style))
        .init();
}

/// Who is heard from which level on. A log that is kept has what libraries warn of
/// as well, below that they tell the ids of sessions and who the other side is.
fn heard(style: Style) -> Targets {
    let ours = ours(LevelFilter::INFO);
    match style {
        Style::Human => ours,
        // Why a way to a server ended is told by whoever needed it, in our words.
        Style::Json => ours
            .with_default(LevelFilter::WARN)
            .with_target("rmcp::transport::worker", LevelFilter::OFF),
    }
}

/// Takes the same secrets out of lines as out of what is kept, and the tokens of
/// logins, however they are spelled.
#[derive(Debug)]
struct Filter(ProjectRedactor);

impl Filter {
    fn new(secrets: &[(String, String)]) -> Self {
        let secrets = secrets.iter();
        let secrets = secrets.map(|(name, value)| (&**name, &**value));
        Self(ProjectRedactor(Redactor::new(secrets)))
    }

    fn clean_all(&self, fields: &mut Fields) {
        fields.message = self.clean(&fields.message);
        for (_, value) in fields.others.iter_mut() {
            match value {
                Value::String(text) => *text = self.clean(text),
                // It may be one of digits alone.
                Value::Number(number) => {
                    let digits = number.to_string();
                    let clean = self.clean(&digits);
                    if clean != digits {
                        *value = Value::String(clean);
                    }
                }
                Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => {}
            }
        }
    }

    fn clean(&self, line: &str) -> String {
        without_keys(&self.0.redact(line))
    }
}

/// A line without the letters of our own keys, whoever wrote them into it.
fn without_keys(line: &str) -> String {
    let mut rest = line;
    let mut clean = String::with_capacity(line.len());
    while let Some(at) = rest.find(KEY_PREFIX) {
        let after = &rest[at + KEY_PREFIX.len()..];
        let letters = after
            .find(|letter: char| !letter.is_ascii_alphanumeric())
            .unwrap_or(after.len());
        clean.push_str(&rest[..at + KEY_PREFIX.len()]);
        match letters >= KEY_LETTERS_MIN {
            true => clean.push('…'),
            false => clean.push_str(&after[..letters]),
        }
        rest = &after[letters..];
    }
    clean.push_str(rest);
    clean
}

/// Makes lines of events.
#[derive(Debug)]
struct Lines {
    style: Style,
    filter: Filter,
}

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut fields = Fields::default();
        event.record(&mut fields);
        // Before it is written: in JSON a secret may look different.
        self.filter.clean_all(&mut fields);
        let line = match self.style {
            Style::Human => human(SystemClock.now(), event.metadata().level(), &fields),
            Style::Json => json(SystemClock.now(), event.metadata().level(), fields),
        };
        writeln!(writer, "{line}")
    }
}

/// What an event says.
#[derive(Debug, Default)]
struct Fields {
    message: String,
    others: Map<String, Value>,
}

impl Fields {
    fn take(&mut self, field: &Field, value: Value) {
        match (field.name(), value) {
            ("message", Value::String(text)) => self.message = text,
            (name, value) => {
                self.others.insert(name.to_owned(), value);
            }
        }
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.take(field, Value::String(format!("{value:?}")));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.take(field, Value::String(value.to_owned()));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.take(field, Value::from(value));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.take(field, Value::from(value));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.take(field, Value::from(value));
    }
}

/// A line for people: when, which run, what.
fn human(at: Timestamp, level: &Level, fields: &Fields) -> String {
    let mut line = clock(at);
    if let Some(Value::String(run)) = fields.others.get("run") {
        _ = write!(line, "  {run}");
    }
    match *level {
        Level::ERROR => line.push_str("  error:"),
        Level::WARN => line.push_str("  warning:"),
        _ => line.push(' '),
    }
    _ = write!(line, " {}", fields.message);
    for (name, value) in fields.others.iter().filter(|(name, _)| *name != "run") {
        match value {
            Value::String(text) => _ = write!(line, "  {name}={}", plain::line(text)),
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::Array(_)
            | Value::Object(_) => _ = write!(line, "  {name}={value}"),
        }
    }
    plain::line(&line)
}

/// A line for programs.
fn json(at: Timestamp, level: &Level, fields: Fields) -> String {
    let mut line = Map::new();
    line.insert("at".to_owned(), Value::String(at.to_string()));
    let level = level.as_str().to_ascii_lowercase();
    line.insert("level".to_owned(), Value::String(level));
    line.insert("message".to_owned(), Value::String(fields.message));
    line.extend(fields.others);
    Value::Object(line).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_taken_out_of_a_line() {
        let secrets = [
            ("TOKEN", "hunter2-and-more"),
            ("SLASHED", "se\"cret/and more"),
            ("DIGITS", "4815162342"),
            ("SHORT", "abc"),
            ("PART", "hunter2-and"),
        ];
        let filter = Filter::new(&secrets.map(|(n, v)| (n.to_owned(), v.to_owned())));
        for (line, clean) in [
            ("nothing here, abc", "nothing here, abc"),
            ("key hunter2-and-more!", "key {{secret:TOKEN}}!"),
            ("part hunter2-and!", "part {{secret:PART}}!"),
            ("Bearer lh_0123456789abcdef end", "Bearer lh_… end"),
            ("lh_ and lh_short", "lh_ and lh_short"),
            ("se%22cret%2Fand%20more", "{{secret:SLASHED}}"),
            (
                r#"{"a":"se\"cret/and more"}"#,
                r#"{"a":"{{secret:SLASHED}}"}"#,
            ),
            ("Basic aHVudGVyMi1hbmQtbW9yZQ==", "Basic {{secret:TOKEN}}=="),
            ("lh_0123456789abcdeflh_0123456789", "lh_…_0123456789"),
        ] {
            assert_eq!(filter.clean(line), clean);
        }
    }

    #[test]
    fn tokens_of_logins_are_taken_out_of_a_line() {
        let oauth = longhaul_mcp::OAuth {
            client_secret: Some("l0gin-in-a-line".to_owned()),
            ..Default::default()
        };
        longhaul_mcp::Login::new("/".into(), oauth, std::sync::Arc::new(SystemClock));
        let clean = Filter::new(&[]).clean("l0gin-in-a-line bDBnaW4taW4tYS1saW5l");
        assert_eq!(clean, "{{secret:mcp-login}} {{secret:mcp-login}}");
    }

    #[test]
    fn a_number_may_be_a_secret_too() {
        let secrets = [("DIGITS".to_owned(), "4815162342".to_owned())];
        let mut fields = Fields::default();
        fields.others.insert("pin".into(), 4_815_162_342_u64.into());
        fields.others.insert("turns".into(), 3.into());
        Filter::new(&secrets).clean_all(&mut fields);
        let others = Value::Object(fields.others);
        assert_eq!(others["pin"], "{{secret:DIGITS}}");
        assert_eq!(others["turns"], 3);
    }

    #[test]
    fn libraries_are_heard_in_a_log_for_programs_only() {
        for (target, level, people, programs) in [
            ("longhaul::cli", Level::INFO, true, true),
            ("longhaul_engine::drive", Level::INFO, true, true),
            ("longhaul::cli", Level::DEBUG, false, false),
            ("rmcp", Level::INFO, false, false),
            ("rmcp::transport::worker", Level::ERROR, false, false),
            ("rmcp::transport", Level::WARN, false, true),
            ("rmcp::service", Level::ERROR, false, true),
            ("hyper::proto", Level::INFO, false, false),
        ] {
            let heard = |style| heard(style).would_enable(target, &level);
            assert_eq!(heard(Style::Human), people, "{target}");
            assert_eq!(heard(Style::Json), programs, "{target}");
            let warned = ours(LevelFilter::WARN).would_enable(target, &level);
            assert!(!warned, "{target}");
        }
        assert!(ours(LevelFilter::WARN).would_enable("longhaul_tool", &Level::WARN));
    }

    #[test]
    fn a_line_is_for_people_or_for_programs() {
        let fields = || {
            let mut others = Map::new();
            others.insert("run".into(), "run_1".into());
            others.insert("turns".into(), 3.into());
            Fields {
                message: "completed".into(),
                others,
            }
        };
        let at = Timestamp::default();
        let line = human(at, &Level::INFO, &fields());
        assert!(line.ends_with("  run_1  completed  turns=3"), "{line}");
        let line: Value = serde_json::from_str(&json(at, &Level::WARN, fields())).unwrap();
        assert_eq!(
            (&line["level"], &line["run"]),
            (&"warn".into(), &"run_1".into())
        );
    }
}
