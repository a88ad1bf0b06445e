//! Reads the text of `.mcp.json`, and finds everything that is wrong with it.
//!
//! Never: stops at the first fault, or lets one server's fault touch another.

use std::collections::{BTreeMap, BTreeSet};

use longhaul_core::oauth::OAuthConfig;
use longhaul_core::suggest;
use longhaul_core::time::Millis;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::duration::{self, DURATION_EXAMPLES};
use crate::mcp::oauth;
use crate::mcp::server::{DEFAULT_TIMEOUT, Remark, ServerConfig, Transport};
use crate::mcp::server_parser::{
    Object, OrderedFields, ServerParser, json_type_name, single_line_remark,
};
use crate::spanned::{Position, PositionIndex};

/// More servers than this are no list that a person wrote.
const SERVERS_MAX: usize = 64;

/// So many arguments, variables or headers a server may have.
const LIST_ITEMS_MAX: usize = 256;

/// So long a name may be.
const NAME_MAX: usize = 64;

/// What may be said of a server.
const KEYS: &[&str] = &[
    "type",
    "command",
    "args",
    "env",
    "cwd",
    "url",
    "headers",
    "oauth",
    "perRun",
    "timeout",
    "disabled",
    "elicitation",
];

/// What was read.
#[derive(Debug, Default)]
pub(crate) struct ParsedFile {
    pub(crate) servers: Vec<ServerConfig>,
    pub(crate) problems: Vec<Remark>,
    pub(crate) notes: Vec<Remark>,
}

/// Reads a text.
pub(crate) fn parse(text: &str) -> ParsedFile {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut read = ParsedFile::default();
    let whole: OrderedFields<'_> = match serde_json::from_str(text) {
        Ok(whole) => whole,
        Err(error) => {
            let place = Position { line: error.line().max(1), column: error.column().max(1) };
            let said = error.to_string();
            // The reader ends its message with the place.
            let said = said.split(" at line ").next().unwrap_or_default();
            read.problems.push(single_line_remark(Some(place), said));
            return read;
        }
    };
    let index = PositionIndex::new(text);
    let mut servers = None;
    for (key, value) in whole.0 {
        let at = Some(index.position_of(value.get()));
        match key.as_str() {
            "mcpServers" if servers.is_some() => {
                read.problems
                    .push(single_line_remark(at, "`mcpServers` stands here a second time"));
            }
            "mcpServers" => servers = Some(value),
            _ => {
                let said = suggest::unknown_message("key", &key, &["mcpServers"]);
                read.notes.push(single_line_remark(at, &said));
            }
        }
    }
    let Some(servers) = servers else {
        let said = "`mcpServers` is missing: write { \"mcpServers\": { \"NAME\": { \"command\": \"...\" } } }";
        read.problems.push(single_line_remark(None, said));
        return read;
    };
    let Ok(servers) = serde_json::from_str::<OrderedFields<'_>>(servers.get()) else {
        let said = format!("`mcpServers` is {}, write an object", json_type_name(servers));
        read.problems.push(single_line_remark(Some(index.position_of(servers.get())), &said));
        return read;
    };
    if servers.0.len() > SERVERS_MAX {
        let said = format!("names {} servers, {SERVERS_MAX} at most", servers.0.len());
        read.problems.push(single_line_remark(None, &said));
        return read;
    }
    for (name, value) in servers.0 {
        add_server(&index, &name, value, &mut read);
    }
    read
}

/// Takes one server in.
fn add_server(index: &PositionIndex<'_>, name: &str, value: &RawValue, read: &mut ParsedFile) {
    let at = index.position_of(value.get());
    if let Some(said) = name_error(name) {
        read.problems.push(single_line_remark(Some(at), &said));
        return;
    }
    if let Some(first) = read.servers.iter_mut().find(|known| known.name == name) {
        // Two of one name: whichever was shown, the other might be started.
        let said = format!("the server `{name}` is named twice, first at {}", first.position);
        first.problems.push(single_line_remark(Some(at), &said));
        return;
    }
    let mut sheet = ServerParser { index, name, problems: Vec::new(), notes: Vec::new() };
    let server = sheet.parse_server(at, value);
    let (problems, notes) = (sheet.problems, sheet.notes);
    read.notes.extend(notes);
    read.servers.push(ServerConfig { problems, ..server });
}

fn name_error(name: &str) -> Option<String> {
    let fits = |letter: char| letter.is_ascii_alphanumeric() || "_-".contains(letter);
    let is_good = (1..=NAME_MAX).contains(&name.len()) && name.chars().all(fits);
    (!is_good).then(|| {
        let name: String = name.chars().take(NAME_MAX).collect();
        format!(
            "{name:?} is no name of a server: write letters, digits, `_` and `-`, {NAME_MAX} at most"
        )
    })
}

impl<'a> ServerParser<'a> {
    fn parse_server(&mut self, at: Position, value: &'a RawValue) -> ServerConfig {
        let object = self.parse_object(None, value, KEYS);
        let is_object = object.is_some();
        let fields = object.unwrap_or_default();
        self.check_elicitation(&fields);
        ServerConfig {
            name: self.name.to_owned(),
            position: at,
            transport: match is_object {
                true => self.parse_transport(at, &fields),
                false => None,
            },
            per_run: self.parse_boolean(&fields, "perRun"),
            timeout: self.parse_timeout(&fields).unwrap_or(DEFAULT_TIMEOUT),
            disabled: self.parse_boolean(&fields, "disabled"),
            problems: Vec::new(),
        }
    }

    fn parse_transport(&mut self, at: Position, fields: &Object<'a>) -> Option<Transport> {
        let has = |key: &str| fields.contains_key(key);
        let kind = match fields.get("type") {
            Some(value) => {
                Some(self.parse_value::<String>("type", value, "\"stdio\" or \"http\"")?)
            }
            None => None,
        };
        let is_http = match kind.as_deref() {
            None if has("command") && has("url") => {
                self.problem(at, "has a `command` and a `url`, write one of them");
                return None;
            }
            None => has("url"),
            Some("stdio") => false,
            Some("http" | "streamable-http" | "streamableHttp") => true,
            Some("sse") => {
                self.problem(
                    at,
                    "speaks the old SSE transport, which was retired: most such servers answer \
                     at another address too, write `\"type\": \"http\"` and that `url`",
                );
                return None;
            }
            Some(other) => {
                let said =
                    suggest::unknown_message("type", other, &["stdio", "http", "streamable-http"]);
                self.problem(at, &said);
                return None;
            }
        };
        let (needs, idle): (&str, &[&str]) = match is_http {
            true => ("url", &["command", "args", "env", "cwd"]),
            false => ("command", &["url", "headers", "oauth"]),
        };
        let Some(value) = fields.get(needs) else {
            self.problem(at, &format!("has no `{needs}`"));
            return None;
        };
        for key in idle {
            if let Some(value) = fields.get(*key) {
                let at = self.position_of(value);
                self.note(at, &format!("`{key}` means nothing beside `{needs}`"));
            }
        }
        match is_http {
            true => self.parse_http(value, fields),
            false => self.parse_stdio(value, fields),
        }
    }

    fn parse_stdio(&mut self, command: &RawValue, fields: &Object<'a>) -> Option<Transport> {
        let command_at = self.position_of(command);
        let command: String = self.parse_value("command", command, "the name of a program")?;
        if command.trim().is_empty() || command.contains('\0') {
            self.problem(command_at, "`command` is empty, write the name of a program");
            return None;
        }
        let args: Vec<String> = match fields.get("args") {
            Some(value) => self.parse_value("args", value, "a list of texts")?,
            None => Vec::new(),
        };
        if args.len() > LIST_ITEMS_MAX {
            self.problem(command_at, &format!("has more than {LIST_ITEMS_MAX} `args`"));
            return None;
        }
        let cwd = match fields.get("cwd") {
            Some(value) => Some(self.parse_value("cwd", value, "the path of a folder")?),
            None => None,
        };
        // A line break in one would look like more than a name where it is shown.
        let strange = |letter: char| letter == '=' || letter.is_control();
        let is_name = |name: &str| !name.is_empty() && !name.contains(strange);
        let env = self.parse_text_map(fields, "env", is_name)?;
        Some(Transport::Stdio { command, args, env, cwd })
    }

    fn parse_http(&mut self, url: &RawValue, fields: &Object<'a>) -> Option<Transport> {
        let url_at = self.position_of(url);
        let url: String = self.parse_value("url", url, "an address such as https://HOST/mcp")?;
        // One that begins with a variable is looked at when that is filled in.
        let is_address = ["http://", "https://", "${"].iter().any(|start| url.starts_with(start));
        if !is_address {
            self.problem(url_at, "`url` is no address, write one such as https://HOST/mcp");
            return None;
        }
        if url.contains(char::is_control) {
            self.problem(url_at, "`url` holds a line break or its like");
            return None;
        }
        let token =
            |letter: char| letter.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(letter);
        let is_name = |name: &str| !name.is_empty() && name.chars().all(token);
        let headers = self.parse_text_map(fields, "headers", is_name)?;
        let oauth = match fields.get("oauth") {
            Some(value) => oauth::parse(self, value)?,
            None => OAuthConfig::default(),
        };
        Some(Transport::Http { url, headers, oauth })
    }

    /// A table of texts whose names fit.
    fn parse_text_map(
        &mut self,
        fields: &Object<'a>,
        key: &str,
        fits: impl Fn(&str) -> bool,
    ) -> Option<BTreeMap<String, String>> {
        let Some(value) = fields.get(key) else {
            return Some(BTreeMap::new());
        };
        let at = self.position_of(value);
        let named: TextMap = self.parse_value(key, value, "an object of texts")?;
        let (mut texts, mut seen) = (BTreeMap::new(), BTreeSet::new());
        if named.0.len() > LIST_ITEMS_MAX {
            self.problem(at, &format!("has more than {LIST_ITEMS_MAX} `{key}`"));
            return None;
        }
        for (name, text) in named.0 {
            if !fits(&name) {
                self.problem(at, &format!("`{key}` has {name:?}, which is no name"));
                return None;
            }
            if !seen.insert(name.clone()) {
                self.note(
                    at,
                    &format!("`{key}.{name}` stands here again, and the last one counts"),
                );
            }
            texts.insert(name, text.0);
        }
        Some(texts)
    }

    fn parse_boolean(&mut self, fields: &Object<'a>, key: &str) -> bool {
        let value = fields.get(key);
        let read = value.and_then(|value| self.parse_value(key, value, "true or false"));
        // What is half said is taken as the careful one would.
        read.unwrap_or(value.is_some())
    }

    fn parse_timeout(&mut self, fields: &Object<'a>) -> Option<Millis> {
        let value = fields.get("timeout")?;
        let millis = serde_json::from_str::<u64>(value.get()).ok().map(Millis);
        let text = serde_json::from_str::<String>(value.get()).ok();
        let read = millis.or_else(|| duration::parse(&text?));
        let read = read.filter(|span| span.0 > 0);
        if read.is_none() {
            let right = format!("milliseconds, or a span of time such as {DURATION_EXAMPLES}");
            self.type_mismatch("timeout", value, &right);
        }
        read
    }

    /// Other programs can answer what a server asks in a call. This build can't, and a
    /// file that counts on it is told so.
    fn check_elicitation(&mut self, fields: &Object<'a>) {
        if let Some(value) = fields.get("elicitation")
            && value.get() != "\"decline\""
        {
            let said = "`elicitation` can only be \"decline\": what a server asks in the \
                        middle of a call is always declined";
            self.problem(self.position_of(value), said);
        }
    }
}

/// Texts by name, twice where they stand twice.
struct TextMap(Vec<(String, ScalarText)>);

/// A text, or a number or a flag that stands for one.
struct ScalarText(String);

impl<'de> Deserialize<'de> for TextMap {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let fields = OrderedFields::deserialize(from)?;
        let named = fields.0.into_iter().map(|(name, value)| {
            let word =
                ScalarText::from_raw(value).ok_or_else(|| serde::de::Error::custom("no text"))?;
            Ok((name, word))
        });
        named.collect::<Result<_, _>>().map(Self)
    }
}

impl ScalarText {
    fn from_raw(value: &RawValue) -> Option<Self> {
        let written = value.get();
        match written.as_bytes().first()? {
            b'"' => serde_json::from_str(written).ok().map(Self),
            b'{' | b'[' | b'n' => None,
            _ => Some(Self(written.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One that is read again from its start for each key takes hours.
    #[test]
    fn long_files_are_read_in_linear_time() {
        let keys: String = (0..100_000).map(|n| format!("\"k{n}\":1,")).collect();
        let read = parse(&format!("{{{keys}\"mcpServers\":{{}}}}"));
        assert_eq!(read.notes.len(), 100_000);
        assert!(read.problems.is_empty(), "{:?}", read.problems);
    }
}
