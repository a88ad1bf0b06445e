//! The log of a server: one line per log event, for people on a terminal and as JSON elsewhere.
//!
//! Invariant: known secrets are redacted in every line.

use std::fmt::{self, Write as _};
use std::io::{self, IsTerminal as _};
use std::sync::atomic::{AtomicBool, Ordering};

use clap::ValueEnum;
use longhaul_core::port::redact::Redact as _;
use longhaul_core::redact::Redactor;
use longhaul_core::time::{Clock as _, Timestamp};
use longhaul_engine::clock::SystemClock;
use longhaul_engine::secret::KEY_PREFIX;
use longhaul_model::providers::built_in::BUILT_IN_PROVIDERS;
use longhaul_project::assemble::redactor::ProjectRedactor;
use longhaul_project::config::settings::Config;
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::event_printer::format_time_of_day;
use crate::format::json_text;
use crate::{error, output, sanitize};

/// Minimum number of characters that must follow the prefix of API keys for a text to count as an
/// API key.
const KEY_CHARS_MIN: usize = 8;

/// Format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogStyle {
    /// Lines for people
    Human,
    /// Lines for programs: one JSON object per line
    Json,
}

impl LogStyle {
    /// Returns the log format for stderr: for people if stderr is a terminal, else JSON.
    pub(crate) fn for_stderr() -> Self {
        match std::io::stderr().is_terminal() {
            true => Self::Human,
            false => Self::Json,
        }
    }
}

/// Sets up the log for commands that log only warnings and errors.
pub(crate) fn init_warning_log() {
    let lines = LogLineFormatter::new(LogStyle::Human, &[]);
    tracing_subscriber::fmt()
        .with_writer(|| LineWriter)
        .with_max_level(Level::WARN)
        .event_format(lines)
        .finish()
        .with(longhaul_log_targets(LevelFilter::WARN))
        .init();
}

/// Writes a log line to stderr, above the live lines of a terminal.
struct LineWriter;

impl io::Write for LineWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        output::eprint_line(String::from_utf8_lossy(line).trim_end());
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns a filter that enables log lines of Longhaul's own crates at this level and above. Errors
/// of libraries are reported by the code that calls them, in words for people.
fn longhaul_log_targets(level: LevelFilter) -> Targets {
    // The names of all our crates start with this prefix.
    Targets::new().with_target("longhaul", level)
}

/// True if stderr is a JSON log, in which a line of plain text would be invalid.
static IS_JSON_LOG: AtomicBool = AtomicBool::new(false);

/// Reports an error on stderr, as a log line or as plain text.
pub(crate) fn report_error(error: &anyhow::Error) {
    match IS_JSON_LOG.load(Ordering::Relaxed) {
        true => tracing::error!("{}", error::message_with_causes(error)),
        false => output::print_error(error),
    }
}

/// Sets up the full log of a server, with these secrets redacted.
pub(crate) fn init_server_log(style: LogStyle, secret_names_and_values: Vec<(String, String)>) {
    IS_JSON_LOG.store(style == LogStyle::Json, Ordering::Relaxed);
    let lines = LogLineFormatter::new(style, &secret_names_and_values);
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_max_level(Level::INFO)
        .event_format(lines)
        .finish()
        .with(server_log_targets(style))
        .init();
}

/// Returns the secrets to redact in the log, each with the name of its variable.
pub(crate) fn secrets_to_redact(config: &Config) -> Vec<(String, String)> {
    let mut names = config.secret_names();
    let key_names = BUILT_IN_PROVIDERS.iter().flat_map(|provider| provider.key_env);
    names.extend(key_names.map(|name| (*name).to_owned()));
    for (path, setting) in config.settings_below("providers") {
        if path.ends_with("key_env") {
            names.extend(setting.value.to_text_list());
        }
    }
    let variables = names.iter().flat_map(|name| {
        let values = config.env.values_to_redact(name).into_iter();
        values.map(move |value| (name.clone(), value.to_owned()))
    });
    // A header may hold a key too.
    let headers = config.settings_below("providers").filter_map(|(path, setting)| {
        Some((path.to_owned(), setting.value.as_secret()?.reveal().to_owned()))
    });
    variables.chain(headers).collect()
}

/// Returns the enabled log targets and levels. A JSON log also has the warnings of libraries; at
/// lower levels libraries would log session ids and addresses of peers.
fn server_log_targets(style: LogStyle) -> Targets {
    let longhaul_targets = longhaul_log_targets(LevelFilter::INFO);
    match style {
        LogStyle::Human => longhaul_targets,
        // The code that uses a connection logs why it was closed, in our own words.
        LogStyle::Json => longhaul_targets
            .with_default(LevelFilter::WARN)
            .with_target("rmcp::transport::worker", LevelFilter::OFF),
    }
}

/// Redacts Longhaul's own API keys in a line.
fn redact_api_keys(line: &str) -> String {
    let mut rest = line;
    let mut redacted = String::with_capacity(line.len());
    while let Some(key_start) = rest.find(KEY_PREFIX) {
        let tail = &rest[key_start + KEY_PREFIX.len()..];
        let key_len = tail.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(tail.len());
        redacted.push_str(&rest[..key_start + KEY_PREFIX.len()]);
        match key_len >= KEY_CHARS_MIN {
            true => redacted.push('…'),
            false => redacted.push_str(&tail[..key_len]),
        }
        rest = &tail[key_len..];
    }
    redacted.push_str(rest);
    redacted
}

/// Formats log events as lines. Redacts secrets: those that are redacted in stored data too, and login
/// tokens, in all their encodings.
#[derive(Debug)]
struct LogLineFormatter {
    style: LogStyle,
    redactor: ProjectRedactor,
}

impl LogLineFormatter {
    fn new(style: LogStyle, secret_names_and_values: &[(String, String)]) -> Self {
        let secrets = secret_names_and_values.iter();
        let secrets = secrets.map(|(name, value)| (&**name, &**value));
        Self { style, redactor: ProjectRedactor(Redactor::new(secrets)) }
    }

    fn redact_line(&self, line: &str) -> String {
        redact_api_keys(&self.redactor.redact(line))
    }

    fn redact_field(&self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.redact_line(text),
            // A secret may consist of digits only.
            Value::Number(number) => {
                let digits = number.to_string();
                let redacted = self.redact_line(&digits);
                if redacted != digits {
                    *value = Value::String(redacted);
                }
            }
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => {}
        }
    }
}

impl<S, N> FormatEvent<S, N> for LogLineFormatter
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
        let mut fields = LogEventFields::default();
        event.record(&mut fields);
        // Redacted before formatting, because JSON may escape parts of a secret.
        fields.0.values_mut().for_each(|value| self.redact_field(value));
        let (now, level) = (SystemClock.now(), event.metadata().level());
        let line = match self.style {
            LogStyle::Human => format_human_line(now, level, fields),
            LogStyle::Json => format_json_line(now, level, fields),
        };
        writeln!(writer, "{line}")
    }
}

/// Fields of a log event, among them its message.
#[derive(Debug, Default)]
struct LogEventFields(Map<String, Value>);

impl LogEventFields {
    fn insert(&mut self, field: &Field, value: impl Into<Value>) {
        self.0.insert(field.name().to_owned(), value.into());
    }
}

impl Visit for LogEventFields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.insert(field, format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.insert(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.insert(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.insert(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.insert(field, value);
    }
}

/// Formats a log line for people: time, run, message and fields.
fn format_human_line(time: Timestamp, level: &Level, mut fields: LogEventFields) -> String {
    let run = fields
        .0
        .shift_remove("run")
        .map(|run| format!("  {}", json_text(&run)))
        .unwrap_or_default();
    let label = match *level {
        Level::ERROR => "  error:",
        Level::WARN => "  warning:",
        _ => " ",
    };
    let message = fields.0.shift_remove("message").as_ref().map(json_text).unwrap_or_default();
    let mut line = format!("{}{run}{label} {message}", format_time_of_day(time));
    for (name, value) in fields.0 {
        _ = write!(line, "  {name}={}", json_text(&value));
    }
    sanitize::sanitize_line(&line)
}

/// Formats a log line for programs, as one JSON object.
fn format_json_line(time: Timestamp, level: &Level, mut fields: LogEventFields) -> String {
    let mut line = Map::new();
    line.insert("at".to_owned(), time.to_string().into());
    line.insert("level".to_owned(), level.as_str().to_ascii_lowercase().into());
    line.insert(
        "message".to_owned(),
        fields.0.shift_remove("message").unwrap_or_else(|| "".into()),
    );
    line.extend(fields.0);
    output::escape_json(&Value::Object(line).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_redacted_from_a_line() {
        let secrets = [
            ("TOKEN", "hunter2-and-more"),
            ("SLASHED", "se\"cret/and more"),
            ("DIGITS", "4815162342"),
            ("SHORT", "abc"),
            ("PART", "hunter2-and"),
        ];
        let secrets = secrets.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let filter = LogLineFormatter::new(LogStyle::Json, &secrets);
        for (line, expected) in [
            ("nothing here, abc", "nothing here, abc"),
            ("key hunter2-and-more!", "key {{secret:TOKEN}}!"),
            ("part hunter2-and!", "part {{secret:PART}}!"),
            ("Bearer lh_0123456789abcdef end", "Bearer lh_… end"),
            ("lh_ and lh_short", "lh_ and lh_short"),
            ("se%22cret%2Fand%20more", "{{secret:SLASHED}}"),
            (r#"{"a":"se\"cret/and more"}"#, r#"{"a":"{{secret:SLASHED}}"}"#),
            ("Basic aHVudGVyMi1hbmQtbW9yZQ==", "Basic {{secret:TOKEN}}=="),
            ("lh_0123456789abcdeflh_0123456789", "lh_…_0123456789"),
        ] {
            assert_eq!(filter.redact_line(line), expected);
        }
    }

    #[test]
    fn login_tokens_are_redacted_from_a_line() {
        let oauth = longhaul_mcp::OAuthConfig {
            client_secret: Some("l0gin-in-a-line".to_owned()),
            ..Default::default()
        };
        longhaul_mcp::LoginContext::new("/".into(), oauth, std::sync::Arc::new(SystemClock));
        let redacted = LogLineFormatter::new(LogStyle::Json, &[])
            .redact_line("l0gin-in-a-line bDBnaW4taW4tYS1saW5l");
        assert_eq!(redacted, "{{secret:mcp-login}} {{secret:mcp-login}}");
    }

    #[test]
    fn a_numeric_field_is_redacted_too() {
        let secrets = [("DIGITS".to_owned(), "4815162342".to_owned())];
        let (mut pin, mut turns) = (Value::from(4_815_162_342_u64), Value::from(3));
        let redactor = LogLineFormatter::new(LogStyle::Json, &secrets);
        for value in [&mut pin, &mut turns] {
            redactor.redact_field(value);
        }
        assert_eq!((pin, turns), ("{{secret:DIGITS}}".into(), 3.into()));
    }

    #[test]
    fn library_warnings_are_in_json_logs_only() {
        for (target, level, in_human_log, in_json_log) in [
            ("longhaul::cli", Level::INFO, true, true),
            ("longhaul_engine::drive", Level::INFO, true, true),
            ("longhaul::cli", Level::DEBUG, false, false),
            ("rmcp", Level::INFO, false, false),
            ("rmcp::transport::worker", Level::ERROR, false, false),
            ("rmcp::transport", Level::WARN, false, true),
            ("rmcp::service", Level::ERROR, false, true),
            ("hyper::proto", Level::INFO, false, false),
        ] {
            let is_logged = |style| server_log_targets(style).would_enable(target, &level);
            assert_eq!(is_logged(LogStyle::Human), in_human_log, "{target}");
            assert_eq!(is_logged(LogStyle::Json), in_json_log, "{target}");
            let is_enabled = longhaul_log_targets(LevelFilter::WARN).would_enable(target, &level);
            assert!(!is_enabled, "{target}");
        }
        assert!(
            longhaul_log_targets(LevelFilter::WARN).would_enable("longhaul_tool", &Level::WARN)
        );
    }

    #[test]
    fn a_line_is_formatted_for_people_or_as_json() {
        let fields = || {
            let Value::Object(fields) =
                serde_json::json!({ "message": "completed", "run": "run_1", "turns": 3 })
            else {
                panic!("not an object");
            };
            LogEventFields(fields)
        };
        let at = Timestamp::default();
        let line = format_human_line(at, &Level::INFO, fields());
        assert!(line.ends_with("  run_1  completed  turns=3"), "{line}");
        let line: Value =
            serde_json::from_str(&format_json_line(at, &Level::WARN, fields())).unwrap();
        assert_eq!((&line["level"], &line["run"]), (&"warn".into(), &"run_1".into()));
        let name = "a\u{202e}b\u{200b}";
        let named = || {
            let fields = ["message", "agent"].map(|field| (field.to_owned(), name.into()));
            LogEventFields(Map::from_iter(fields))
        };
        let line = format_human_line(at, &Level::INFO, named());
        assert!(line.ends_with("a·b·  agent=a·b·"), "{line}");
        let line = format_json_line(at, &Level::INFO, named());
        assert!(line.contains(r#""agent":"a\u202eb\u200b""#), "{line}");
    }
}
