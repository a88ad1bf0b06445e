//! Reads the text of `.mcp.json`, and finds everything that is wrong with it.
//!
//! Never: stops at the first fault, or lets one server's fault touch another.

use std::collections::{BTreeMap, BTreeSet};

use longhaul_core::oauth::OAuth;
use longhaul_core::suggest;
use longhaul_core::time::Millis;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::mcp::oauth;
use crate::mcp::server::{Remark, Server, TIMEOUT, Way};
use crate::mcp::sheet::{Fields, Object, Sheet, remark, what};
use crate::span::{self, SPAN_EXAMPLES};
use crate::written::{Place, PlaceIndex};

/// More servers than this are no list that a person wrote.
const SERVERS_MAX: usize = 64;

/// So many arguments, variables or headers a server may have.
const LIST_MAX: usize = 256;

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
pub(crate) struct Read {
    pub(crate) servers: Vec<Server>,
    pub(crate) problems: Vec<Remark>,
    pub(crate) notes: Vec<Remark>,
}

/// Reads a text.
pub(crate) fn read(text: &str) -> Read {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut read = Read::default();
    let whole: Fields<'_> = match serde_json::from_str(text) {
        Ok(whole) => whole,
        Err(error) => {
            let place = Place {
                line: error.line().max(1),
                column: error.column().max(1),
            };
            let said = error.to_string();
            // The reader ends its message with the place.
            let said = said.split(" at line ").next().unwrap_or_default();
            read.problems.push(remark(Some(place), said));
            return read;
        }
    };
    let index = PlaceIndex::new(text);
    let mut servers = None;
    for (key, value) in whole.0 {
        let at = Some(index.place_of(value.get()));
        match key.as_str() {
            "mcpServers" if servers.is_some() => {
                read.problems
                    .push(remark(at, "`mcpServers` stands here a second time"));
            }
            "mcpServers" => servers = Some(value),
            _ => {
                let said = suggest::unknown("key", &key, &["mcpServers"]);
                read.notes.push(remark(at, &said));
            }
        }
    }
    let Some(servers) = servers else {
        let said = "`mcpServers` is missing: write { \"mcpServers\": { \"NAME\": { \"command\": \"...\" } } }";
        read.problems.push(remark(None, said));
        return read;
    };
    let Ok(servers) = serde_json::from_str::<Fields<'_>>(servers.get()) else {
        let said = format!("`mcpServers` is {}, write an object", what(servers));
        read.problems
            .push(remark(Some(index.place_of(servers.get())), &said));
        return read;
    };
    if servers.0.len() > SERVERS_MAX {
        let said = format!("names {} servers, {SERVERS_MAX} at most", servers.0.len());
        read.problems.push(remark(None, &said));
        return read;
    }
    for (name, value) in servers.0 {
        one(&index, &name, value, &mut read);
    }
    read
}

/// Takes one server in.
fn one(index: &PlaceIndex<'_>, name: &str, value: &RawValue, read: &mut Read) {
    let at = index.place_of(value.get());
    if let Some(said) = bad_name(name) {
        read.problems.push(remark(Some(at), &said));
        return;
    }
    if let Some(first) = read.servers.iter_mut().find(|known| known.name == name) {
        // Two of one name: whichever was shown, the other might be started.
        let said = format!(
            "the server `{name}` is named twice, first at {}",
            first.place
        );
        first.problems.push(remark(Some(at), &said));
        return;
    }
    let mut sheet = Sheet {
        index,
        name,
        problems: Vec::new(),
        notes: Vec::new(),
    };
    let server = sheet.server(at, value);
    let (problems, notes) = (sheet.problems, sheet.notes);
    read.notes.extend(notes);
    read.servers.push(Server { problems, ..server });
}

fn bad_name(name: &str) -> Option<String> {
    let fits = |letter: char| letter.is_ascii_alphanumeric() || "_-".contains(letter);
    let is_good = (1..=NAME_MAX).contains(&name.len()) && name.chars().all(fits);
    (!is_good).then(|| {
        let name: String = name.chars().take(NAME_MAX).collect();
        format!(
            "{name:?} is no name of a server: write letters, digits, `_` and `-`, {NAME_MAX} at most"
        )
    })
}

impl<'a> Sheet<'a> {
    fn server(&mut self, at: Place, value: &'a RawValue) -> Server {
        let object = self.object(None, value, KEYS);
        let is_object = object.is_some();
        let fields = object.unwrap_or_default();
        self.elicitation(&fields);
        Server {
            name: self.name.to_owned(),
            place: at,
            way: match is_object {
                true => self.way(at, &fields),
                false => None,
            },
            per_run: self.flag(&fields, "perRun"),
            timeout: self.timeout(&fields).unwrap_or(TIMEOUT),
            disabled: self.flag(&fields, "disabled"),
            problems: Vec::new(),
        }
    }

    fn way(&mut self, at: Place, fields: &Object<'a>) -> Option<Way> {
        let has = |key: &str| fields.contains_key(key);
        let kind = match fields.get("type") {
            Some(value) => Some(self.read::<String>("type", value, "\"stdio\" or \"http\"")?),
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
                let said = suggest::unknown("type", other, &["stdio", "http", "streamable-http"]);
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
                let at = self.place_of(value);
                self.note(at, &format!("`{key}` means nothing beside `{needs}`"));
            }
        }
        match is_http {
            true => self.http(value, fields),
            false => self.stdio(value, fields),
        }
    }

    fn stdio(&mut self, command: &RawValue, fields: &Object<'a>) -> Option<Way> {
        let command_at = self.place_of(command);
        let command: String = self.read("command", command, "the name of a program")?;
        if command.trim().is_empty() || command.contains('\0') {
            self.problem(
                command_at,
                "`command` is empty, write the name of a program",
            );
            return None;
        }
        let args: Vec<String> = match fields.get("args") {
            Some(value) => self.read("args", value, "a list of texts")?,
            None => Vec::new(),
        };
        if args.len() > LIST_MAX {
            self.problem(command_at, &format!("has more than {LIST_MAX} `args`"));
            return None;
        }
        let cwd = match fields.get("cwd") {
            Some(value) => Some(self.read("cwd", value, "the path of a folder")?),
            None => None,
        };
        // A line break in one would look like more than a name where it is shown.
        let strange = |letter: char| letter == '=' || letter.is_control();
        let is_name = |name: &str| !name.is_empty() && !name.contains(strange);
        let env = self.named(fields, "env", is_name)?;
        Some(Way::Stdio {
            command,
            args,
            env,
            cwd,
        })
    }

    fn http(&mut self, url: &RawValue, fields: &Object<'a>) -> Option<Way> {
        let url_at = self.place_of(url);
        let url: String = self.read("url", url, "an address such as https://HOST/mcp")?;
        // One that begins with a variable is looked at when that is filled in.
        let is_address = ["http://", "https://", "${"]
            .iter()
            .any(|start| url.starts_with(start));
        if !is_address {
            self.problem(
                url_at,
                "`url` is no address, write one such as https://HOST/mcp",
            );
            return None;
        }
        if url.contains(char::is_control) {
            self.problem(url_at, "`url` holds a line break or its like");
            return None;
        }
        let token =
            |letter: char| letter.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(letter);
        let is_name = |name: &str| !name.is_empty() && name.chars().all(token);
        let headers = self.named(fields, "headers", is_name)?;
        let oauth = match fields.get("oauth") {
            Some(value) => oauth::read(self, value)?,
            None => OAuth::default(),
        };
        Some(Way::Http {
            url,
            headers,
            oauth,
        })
    }

    /// A table of texts whose names fit.
    fn named(
        &mut self,
        fields: &Object<'a>,
        key: &str,
        fits: impl Fn(&str) -> bool,
    ) -> Option<BTreeMap<String, String>> {
        let Some(value) = fields.get(key) else {
            return Some(BTreeMap::new());
        };
        let at = self.place_of(value);
        let named: Named = self.read(key, value, "an object of texts")?;
        let (mut texts, mut seen) = (BTreeMap::new(), BTreeSet::new());
        if named.0.len() > LIST_MAX {
            self.problem(at, &format!("has more than {LIST_MAX} `{key}`"));
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

    fn flag(&mut self, fields: &Object<'a>, key: &str) -> bool {
        let value = fields.get(key);
        let read = value.and_then(|value| self.read(key, value, "true or false"));
        // What is half said is taken as the careful one would.
        read.unwrap_or(value.is_some())
    }

    fn timeout(&mut self, fields: &Object<'a>) -> Option<Millis> {
        let value = fields.get("timeout")?;
        let millis = serde_json::from_str::<u64>(value.get()).ok().map(Millis);
        let text = serde_json::from_str::<String>(value.get()).ok();
        let read = millis.or_else(|| span::read(&text?));
        let read = read.filter(|span| span.0 > 0);
        if read.is_none() {
            let right = format!("milliseconds, or a span of time such as {SPAN_EXAMPLES}");
            self.misfit("timeout", value, &right);
        }
        read
    }

    /// Other programs can answer what a server asks in a call. This build can't, and a
    /// file that counts on it is told so.
    fn elicitation(&mut self, fields: &Object<'a>) {
        if let Some(value) = fields.get("elicitation")
            && value.get() != "\"decline\""
        {
            let said = "`elicitation` can only be \"decline\": what a server asks in the \
                        middle of a call is always declined";
            self.problem(self.place_of(value), said);
        }
    }
}

/// Texts by name, twice where they stand twice.
struct Named(Vec<(String, Word)>);

/// A text, or a number or a flag that stands for one.
struct Word(String);

impl<'de> Deserialize<'de> for Named {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let fields = Fields::deserialize(from)?;
        let named = fields.0.into_iter().map(|(name, value)| {
            let word = Word::of(value).ok_or_else(|| serde::de::Error::custom("no text"))?;
            Ok((name, word))
        });
        named.collect::<Result<_, _>>().map(Self)
    }
}

impl Word {
    fn of(value: &RawValue) -> Option<Self> {
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
        let read = read(&format!("{{{keys}\"mcpServers\":{{}}}}"));
        assert_eq!(read.notes.len(), 100_000);
        assert!(read.problems.is_empty(), "{:?}", read.problems);
    }
}
