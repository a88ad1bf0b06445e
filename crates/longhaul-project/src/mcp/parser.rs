//! Parses the text of `.mcp.json` and reports all problems. A problem of one server does not affect
//! the other servers.

use std::collections::{BTreeMap, BTreeSet};

use longhaul_core::oauth::OAuthConfig;
use longhaul_core::suggest;
use longhaul_core::time::Millis;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::mcp::oauth;
use crate::mcp::server::{DEFAULT_TIMEOUT, McpFileRemark, McpServerConfig, Transport};
use crate::mcp::server_parser::{McpServerParser, Object, OrderedFields, json_type_name, remark};
use crate::spanned::{Position, PositionIndex, escape_to_one_line};
use longhaul_core::duration::{self, DURATION_EXAMPLES};

/// Maximum number of MCP servers in the file.
const SERVERS_MAX: usize = 64;

/// Maximum number of arguments, of environment variables and of headers of a server.
const LIST_ITEMS_MAX: usize = 256;

/// Maximum length of a server's name in characters.
const NAME_MAX: usize = 64;

/// Keys that are allowed in the definition of a server.
const SERVER_KEYS: &[&str] = &[
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

/// Servers, problems and notes of a parsed `.mcp.json`.
#[derive(Debug, Default)]
pub(crate) struct ParsedMcpFile {
    pub(crate) servers: Vec<McpServerConfig>,
    pub(crate) problems: Vec<McpFileRemark>,
    pub(crate) notes: Vec<McpFileRemark>,
}

/// Parses the text of `.mcp.json`.
pub(crate) fn parse_mcp_file(text: &str) -> ParsedMcpFile {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut parsed = ParsedMcpFile::default();
    let fields: OrderedFields<'_> = match serde_json::from_str(text) {
        Ok(fields) => fields,
        Err(error) => {
            let position = Position { line: error.line().max(1), column: error.column().max(1) };
            let message = error.to_string();
            // The parser's message ends with the position, which is reported separately.
            let message = message.split(" at line ").next().unwrap_or_default();
            parsed.problems.push(remark(Some(position), message));
            return parsed;
        }
    };
    let index = PositionIndex::for_text(text);
    let mut servers = None;
    for (key, value) in fields.0 {
        let position = Some(index.position_of_slice(value.get()));
        match key.as_str() {
            "mcpServers" if servers.is_some() => {
                parsed.problems.push(remark(position, "duplicate key `mcpServers`"));
            }
            "mcpServers" => servers = Some(value),
            _ => {
                let message = suggest::unknown_name_message("key", &key, &["mcpServers"]);
                parsed.notes.push(remark(position, &message));
            }
        }
    }
    let Some(servers) = servers else {
        let message = "`mcpServers` is missing: write { \"mcpServers\": { \"NAME\": { \"command\": \"...\" } } }";
        parsed.problems.push(remark(None, message));
        return parsed;
    };
    let Ok(servers) = serde_json::from_str::<OrderedFields<'_>>(servers.get()) else {
        let message = format!("`mcpServers` must be an object, but is {}", json_type_name(servers));
        parsed.problems.push(remark(Some(index.position_of_slice(servers.get())), &message));
        return parsed;
    };
    if servers.0.len() > SERVERS_MAX {
        let message =
            format!("the file lists {} servers, but the maximum is {SERVERS_MAX}", servers.0.len());
        parsed.problems.push(remark(None, &message));
        return parsed;
    }
    for (name, value) in servers.0 {
        parse_and_add_server(&index, &name, value, &mut parsed);
    }
    parsed
}

/// Parses the definition of one server and adds it to the parsed file.
fn parse_and_add_server(
    index: &PositionIndex<'_>,
    name: &str,
    value: &RawValue,
    parsed: &mut ParsedMcpFile,
) {
    let position = index.position_of_slice(value.get());
    let name_error = server_name_error(name);
    let shown_name: String = escape_to_one_line(name).chars().take(NAME_MAX).collect();
    let name = shown_name.as_str();
    if let Some(first) = parsed.servers.iter_mut().find(|existing| existing.name == name) {
        // Duplicate names are an error: the user could approve one server, and the other could be
        // started.
        let message = format!("the server `{name}` is defined twice, first at {}", first.position);
        first.problems.push(remark(Some(position), &message));
        return;
    }
    let mut parser = McpServerParser { index, name, problems: Vec::new(), notes: Vec::new() };
    let server = parser.parse_server(position, value);
    let (mut problems, notes) = (parser.problems, parser.notes);
    if let Some(message) = name_error {
        problems.insert(0, remark(Some(position), &message));
    }
    parsed.notes.extend(notes);
    parsed.servers.push(McpServerConfig { problems, ..server });
}

fn server_name_error(name: &str) -> Option<String> {
    let is_name_char = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
    let is_valid = (1..=NAME_MAX).contains(&name.len()) && name.chars().all(is_name_char);
    (!is_valid).then(|| {
        let name: String = name.chars().take(NAME_MAX).collect();
        format!(
            "{name:?} is not a valid server name: use letters, digits, `_` and `-`, {NAME_MAX} at most"
        )
    })
}

impl<'a> McpServerParser<'a> {
    fn parse_server(&mut self, position: Position, value: &'a RawValue) -> McpServerConfig {
        let object = self.parse_object(None, value, SERVER_KEYS);
        let is_object = object.is_some();
        let fields = object.unwrap_or_default();
        self.check_elicitation_declined(&fields);
        McpServerConfig {
            name: self.name.to_owned(),
            position,
            transport: match is_object {
                true => self.parse_transport(position, &fields),
                false => None,
            },
            per_run: self.parse_boolean(&fields, "perRun"),
            timeout: self.parse_timeout(&fields).unwrap_or(DEFAULT_TIMEOUT),
            disabled: self.parse_boolean(&fields, "disabled"),
            problems: Vec::new(),
        }
    }

    fn parse_transport(&mut self, position: Position, fields: &Object<'a>) -> Option<Transport> {
        let has_key = |key: &str| fields.contains_key(key);
        let kind: Option<String> = self.parse_optional(fields, "type", "\"stdio\" or \"http\"")?;
        let is_http = match kind.as_deref() {
            None if has_key("command") && has_key("url") => {
                return self
                    .reject(position, "`command` and `url` are both set: write one of them");
            }
            None => has_key("url"),
            Some("stdio") => false,
            Some("http" | "streamable-http" | "streamableHttp") => true,
            Some("sse") => {
                return self.reject(
                    position,
                    "the old SSE transport is not supported: most servers that use it also \
                     have an HTTP URL, so write `\"type\": \"http\"` and that `url`",
                );
            }
            Some(other) => {
                let known = ["stdio", "http", "streamable-http"];
                let message = suggest::unknown_name_message("type", other, &known);
                return self.reject(position, &message);
            }
        };
        let (transport_key, unused): (&str, &[&str]) = match is_http {
            true => ("url", &["command", "args", "env", "cwd"]),
            false => ("command", &["url", "headers", "oauth"]),
        };
        let Some(value) = fields.get(transport_key) else {
            return self.reject(position, &format!("`{transport_key}` is missing"));
        };
        for key in unused {
            if let Some(value) = fields.get(*key) {
                let position = self.position_of(value);
                self.add_note(position, &format!("`{key}` has no effect beside `{transport_key}`"));
            }
        }
        match is_http {
            true => self.parse_http_transport(value, fields),
            false => self.parse_stdio_transport(value, fields),
        }
    }

    fn parse_stdio_transport(
        &mut self,
        command: &RawValue,
        fields: &Object<'a>,
    ) -> Option<Transport> {
        let command_at = self.position_of(command);
        let command: String =
            self.parse_field_value("command", command, "the name of a program")?;
        if command.trim().is_empty() || command.contains('\0') {
            return self.reject(command_at, "`command` is empty: write the name of a program");
        }
        let args = self.parse_optional(fields, "args", "a list of texts")?;
        let args: Vec<String> = args.unwrap_or_default();
        if args.len() > LIST_ITEMS_MAX {
            return self
                .reject(command_at, &format!("`args` has more than {LIST_ITEMS_MAX} elements"));
        }
        let cwd = self.parse_optional(fields, "cwd", "the path of a folder")?;
        // A line break in a name could be mistaken for another entry when it is shown.
        let is_forbidden_char = |c: char| c == '=' || c.is_control();
        let is_name = |name: &str| !name.is_empty() && !name.contains(is_forbidden_char);
        let env = self.parse_text_map(fields, "env", is_name)?;
        Some(Transport::Stdio { command, args, env, cwd })
    }

    fn parse_http_transport(&mut self, url: &RawValue, fields: &Object<'a>) -> Option<Transport> {
        let url_position = self.position_of(url);
        let url: String = self.parse_field_value("url", url, "a URL such as https://HOST/mcp")?;
        // A URL that starts with a variable is checked after expansion.
        let is_url = ["http://", "https://", "${"].iter().any(|start| url.starts_with(start));
        if !is_url {
            return self
                .reject(url_position, "`url` is not valid: write a URL such as https://HOST/mcp");
        }
        if url.contains(char::is_control) {
            return self
                .reject(url_position, "`url` contains a line break or another control character");
        }
        let is_token_char = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
        let is_name = |name: &str| !name.is_empty() && name.chars().all(is_token_char);
        let headers = self.parse_text_map(fields, "headers", is_name)?;
        let oauth = match fields.get("oauth") {
            Some(value) => oauth::parse_oauth_config(self, value)?,
            None => OAuthConfig::default(),
        };
        Some(Transport::Http { url, headers, oauth })
    }

    /// Parses an object whose values are texts, such as `env` or `headers`, and checks the names.
    fn parse_text_map(
        &mut self,
        fields: &Object<'a>,
        key: &str,
        is_valid_name: impl Fn(&str) -> bool,
    ) -> Option<BTreeMap<String, String>> {
        let Some(value) = fields.get(key) else {
            return Some(BTreeMap::new());
        };
        let position = self.position_of(value);
        let pairs: OrderedNameTextPairs =
            self.parse_field_value(key, value, "an object of texts")?;
        let (mut texts, mut names) = (BTreeMap::new(), BTreeSet::new());
        if pairs.0.len() > LIST_ITEMS_MAX {
            return self
                .reject(position, &format!("`{key}` has more than {LIST_ITEMS_MAX} entries"));
        }
        for (name, text) in pairs.0 {
            if !is_valid_name(&name) {
                return self.reject(position, &format!("`{key}` has the invalid name {name:?}"));
            }
            if !names.insert(name.clone()) {
                self.add_note(
                    position,
                    &format!("`{key}.{name}` is a duplicate; the last one is used"),
                );
            }
            texts.insert(name, text.0);
        }
        Some(texts)
    }

    /// Parses the boolean at this key. Returns `false` if the key is missing. An invalid value is
    /// reported and counts as `true`, which is the safer choice.
    fn parse_boolean(&mut self, fields: &Object<'a>, key: &str) -> bool {
        // An invalid value counts as true, which is the safer choice.
        self.parse_optional(fields, key, "true or false").is_none_or(Option::unwrap_or_default)
    }

    fn parse_timeout(&mut self, fields: &Object<'a>) -> Option<Millis> {
        let value = fields.get("timeout")?;
        let millis = serde_json::from_str::<u64>(value.get()).ok().map(Millis);
        let text = serde_json::from_str::<String>(value.get()).ok();
        let timeout = millis.or_else(|| duration::parse_duration(&text?));
        let timeout = timeout.filter(|timeout| timeout.0 > 0);
        if timeout.is_none() {
            let expected = format!("milliseconds, or a duration such as {DURATION_EXAMPLES}");
            self.report_type_mismatch("timeout", value, &expected);
        }
        timeout
    }

    /// Reports a value of `elicitation` other than "decline": this build can't answer questions
    /// that a server asks during a call.
    fn check_elicitation_declined(&mut self, fields: &Object<'a>) {
        if let Some(value) = fields.get("elicitation")
            && value.get() != "\"decline\""
        {
            let message = "`elicitation` can only be \"decline\": questions that a server asks \
                        during a call are always declined";
            self.add_problem(self.position_of(value), message);
        }
    }
}

/// Pairs of name and text in the order of the file, including duplicate names.
struct OrderedNameTextPairs(Vec<(String, ScalarText)>);

/// A text in the file, or a number or boolean that is used as text.
struct ScalarText(String);

impl<'de> Deserialize<'de> for OrderedNameTextPairs {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let fields = OrderedFields::deserialize(from)?;
        let pairs = fields.0.into_iter().map(|(name, value)| {
            let text = ScalarText::from_json_scalar(value)
                .ok_or_else(|| serde::de::Error::custom("not a text"))?;
            Ok((name, text))
        });
        pairs.collect::<Result<_, _>>().map(Self)
    }
}

impl ScalarText {
    fn from_json_scalar(json_value: &RawValue) -> Option<Self> {
        let json_text = json_value.get();
        match json_text.as_bytes().first()? {
            b'"' => serde_json::from_str(json_text).ok().map(Self),
            b'{' | b'[' | b'n' => None,
            _ => Some(Self(json_text.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ensures that `.mcp.json` is parsed in linear time: computing each position by a scan from
    /// the start of the text would take hours.
    #[test]
    fn long_mcp_files_are_parsed_in_linear_time() {
        let keys: String = (0..100_000).map(|n| format!("\"k{n}\":1,")).collect();
        let parsed = parse_mcp_file(&format!("{{{keys}\"mcpServers\":{{}}}}"));
        assert_eq!(parsed.notes.len(), 100_000);
        assert!(parsed.problems.is_empty(), "{:?}", parsed.problems);
    }
}
