//! Parses the text of `.mcp.json` and reports all problems. A problem of one server does not affect
//! the other servers. Messages show no values, since they may be secrets.

use std::collections::BTreeMap;
use std::path::Path;

use longhaul_core::duration::{self, DURATION_EXAMPLES};
use longhaul_core::oauth::OAuthConfig;
use longhaul_core::suggest;
use longhaul_core::time::Millis;

use crate::agents::diagnostics::{Diagnostics, Fields};
use crate::agents::load_context::AgentLoadContext;
use crate::agents::problem::AgentFileProblem;
use crate::config::cross_checks::is_header_name;
use crate::mcp::name::FILE_NAME;
use crate::mcp::server::{DEFAULT_TIMEOUT, McpFileRemark, McpServerConfig, Transport};
use crate::spanned::{NodeValue, Position, TableEntry, escape_to_one_line, json};

/// Maximum number of MCP servers in the file.
const SERVERS_MAX: usize = 64;

/// Maximum number of arguments, of environment variables and of headers of a server.
const LIST_ITEMS_MAX: usize = 256;

/// Maximum length of a server's name in characters.
const NAME_MAX: usize = 64;

/// Maximum number of OAuth scopes of a server.
const SCOPES_MAX: usize = 64;

/// Servers, problems and notes of a parsed `.mcp.json`.
#[derive(Debug, Default)]
pub(crate) struct ParsedMcpFile {
    pub(crate) servers: Vec<McpServerConfig>,
    pub(crate) problems: Vec<McpFileRemark>,
    pub(crate) notes: Vec<McpFileRemark>,
}

/// Parses the text of `.mcp.json`.
pub(crate) fn parse_mcp_file(text: &str) -> ParsedMcpFile {
    let mut file = ParsedMcpFile::default();
    let node = match json::parse(text.strip_prefix('\u{feff}').unwrap_or(text)) {
        Ok(node) => node,
        Err(error) => {
            file.problems.push(remark(Some(error.position), &error.message));
            return file;
        }
    };
    let root_entry = TableEntry { key: FILE_NAME.to_owned(), position: node.position, node };
    let mut diagnostics = new_diagnostics();
    if let Some(mut fields) = Fields::new(&mut diagnostics, &root_entry, "mcpServers") {
        match fields.get("mcpServers") {
            Some(entry) => fields.diagnostics.parse_servers(entry, &mut file),
            None => {
                let message = "`mcpServers` is missing: write { \"mcpServers\": { \"NAME\": { \"command\": \"...\" } } }";
                file.problems.push(remark(None, message));
            }
        }
    }
    let entries = root_entry.node.as_table().unwrap_or_default();
    for duplicate in entries.iter().filter(|entry| entry.key == "mcpServers").skip(1) {
        diagnostics.report_invalid(duplicate.position, "duplicate key `mcpServers`");
    }
    let [problems, notes] = take_remarks(diagnostics, "");
    file.problems.extend(problems);
    file.notes.extend(notes);
    file
}

fn new_diagnostics() -> Diagnostics<'static> {
    let ctx = AgentLoadContext::new(Path::new(""), &[]);
    Diagnostics { is_shared_json: true, ..Diagnostics::new(ctx, Path::new(FILE_NAME)) }
}

/// Creates a remark that stays on one line: a name with a line break could be mistaken for another
/// remark.
fn remark(position: Option<Position>, message: &str) -> McpFileRemark {
    let message = escape_to_one_line(message);
    McpFileRemark { position, message }
}

/// Moves the problems and notes about a part of the file out of its diagnostics.
fn take_remarks(diagnostics: Diagnostics<'_>, prefix: &str) -> [Vec<McpFileRemark>; 2] {
    let Diagnostics { problems, ignored_keys, .. } = diagnostics;
    let problems = problems.into_iter().map(|problem| {
        let AgentFileProblem { line, column, message, .. } = problem;
        (Position { line, column }, message)
    });
    [problems.collect(), ignored_keys].map(|remarks: Vec<(Position, String)>| {
        let remarks = remarks.into_iter();
        remarks.map(|(at, message)| remark(Some(at), &format!("{prefix}{message}"))).collect()
    })
}

impl Diagnostics<'_> {
    /// Parses the servers of the file and adds them to `file`.
    fn parse_servers(&mut self, entry: &TableEntry, file: &mut ParsedMcpFile) {
        let Some(entries) = entry.node.as_table() else {
            _ = self.report_mismatch::<()>(entry, "an object");
            return;
        };
        if entries.len() > SERVERS_MAX {
            let message = format!(
                "the file lists {} servers, but the maximum is {SERVERS_MAX}",
                entries.len()
            );
            return file.problems.push(remark(None, &message));
        }
        for entry in entries {
            let shown_name: String =
                escape_to_one_line(&entry.key).chars().take(NAME_MAX).collect();
            let name = shown_name.as_str();
            if let Some(first) = file.servers.iter_mut().find(|existing| existing.name == name) {
                // Duplicate names are an error: the user could approve one server, and the other could
                // be started.
                let message =
                    format!("the server `{name}` is defined twice, first at {}", first.position);
                first.problems.push(remark(Some(entry.position), &message));
                continue;
            }
            let mut diagnostics = new_diagnostics();
            let server = diagnostics.parse_server(entry, name);
            let [mut problems, notes] = take_remarks(diagnostics, &format!("server `{name}`: "));
            if let Some(message) = server_name_error(&entry.key) {
                problems.insert(0, remark(Some(entry.position), &message));
            }
            file.notes.extend(notes);
            file.servers.push(McpServerConfig { problems, ..server });
        }
    }

    /// Parses the definition of one server. The caller adds the problems.
    fn parse_server(&mut self, entry: &TableEntry, name: &str) -> McpServerConfig {
        let mut server = McpServerConfig {
            name: name.to_owned(),
            position: entry.position,
            transport: None,
            per_run: false,
            timeout: DEFAULT_TIMEOUT,
            disabled: false,
            problems: Vec::new(),
        };
        let Some(mut fields) = Fields::new(self, entry, "command") else {
            return server;
        };
        // An invalid value counts as true, which is the safer choice.
        let true_if_invalid = |diagnostics: &mut Diagnostics<'_>, entry: &TableEntry| {
            Some(diagnostics.boolean(entry).unwrap_or(true))
        };
        fields.set("perRun", &mut server.per_run, true_if_invalid);
        fields.set("disabled", &mut server.disabled, true_if_invalid);
        fields.set("timeout", &mut server.timeout, Diagnostics::parse_timeout);
        if let Some(entry) = fields.get("elicitation")
            && entry.node.as_text() != Some("decline")
        {
            let message = "`elicitation` can only be \"decline\": questions that a server asks \
                            during a call are always declined";
            fields.diagnostics.report_invalid(entry.position, message);
        }
        let problems = fields.diagnostics.problems.len();
        let transport = parse_transport(&mut fields, entry.position);
        server.transport = transport.filter(|_| fields.diagnostics.problems.len() == problems);
        server
    }

    fn parse_timeout(&mut self, entry: &TableEntry) -> Option<Millis> {
        let millis = entry.node.as_integer().and_then(|millis| u64::try_from(millis).ok());
        let text = || entry.node.as_text().and_then(duration::parse_duration);
        let timeout = millis.map(Millis).or_else(text).filter(|timeout| timeout.0 > 0);
        timeout.or_else(|| {
            let expected = format!("milliseconds, or a duration such as {DURATION_EXAMPLES}");
            self.report_mismatch(entry, &expected)
        })
    }

    fn parse_texts(&mut self, entry: &TableEntry) -> Option<Vec<String>> {
        self.list_items(entry, Diagnostics::any_text)
    }

    /// Parses an object whose values are texts, such as `env` or `headers`, and checks the names.
    fn parse_text_map(
        &mut self,
        entry: &TableEntry,
        is_valid_name: impl Fn(&str) -> bool,
    ) -> Option<BTreeMap<String, String>> {
        let Some(pairs) = entry.node.as_table() else {
            return self.report_mismatch(entry, "an object of texts");
        };
        if pairs.len() > LIST_ITEMS_MAX {
            let message = format!("`{}` has more than {LIST_ITEMS_MAX} entries", entry.key);
            return self.reject(entry.position, message);
        }
        let mut texts = BTreeMap::new();
        for pair in pairs {
            if !is_valid_name(&pair.key) {
                let message = format!("`{}` contains the invalid name {:?}", entry.key, pair.key);
                self.report_invalid(pair.position, message);
            }
            let pair = TableEntry { key: format!("{}.{}", entry.key, pair.key), ..pair.clone() };
            let text = match &pair.node.value {
                NodeValue::Integer(integer) => integer.to_string(),
                NodeValue::Boolean(flag) => flag.to_string(),
                NodeValue::Text(_)
                | NodeValue::Float(_)
                | NodeValue::Null
                | NodeValue::List(_)
                | NodeValue::Table(_) => self.any_text(&pair).unwrap_or_default(),
            };
            let name = pair.key[entry.key.len() + 1..].to_owned();
            if texts.insert(name, text).is_some() {
                self.report_duplicate_key(&pair);
            }
        }
        Some(texts)
    }

    /// Parses `oauth`, the login settings of a server.
    fn parse_oauth_config(&mut self, entry: &TableEntry) -> Option<OAuthConfig> {
        let mut fields = Fields::new(self, entry, "clientId")?;
        let oauth = OAuthConfig {
            client_id: fields.parse("clientId", Diagnostics::parse_oauth_text),
            client_secret: fields.parse("clientSecret", Diagnostics::parse_oauth_text),
            client_metadata_url: fields.parse("clientMetadataUrl", Diagnostics::parse_oauth_text),
            scopes: fields.parse("scopes", Diagnostics::parse_oauth_scopes).unwrap_or_default(),
            callback_port: fields.parse("callbackPort", |diagnostics, entry| {
                let port = entry.node.as_integer().and_then(|port| u16::try_from(port).ok());
                let expected = "a port from 1 to 65535";
                let port = port.filter(|port| *port > 0);
                port.or_else(|| diagnostics.report_mismatch(entry, expected))
            }),
        };
        if oauth.client_secret.is_some() && fields.get("clientId").is_none() {
            let message = "`oauth` has a `clientSecret` and no `clientId`: write both";
            fields.diagnostics.report_invalid(entry.position, message);
        }
        Some(oauth)
    }

    fn parse_oauth_text(&mut self, entry: &TableEntry) -> Option<String> {
        let text = self.any_text(entry)?;
        if text.is_empty() {
            return self.reject(entry.position, format!("`{}` is empty", entry.key));
        }
        Some(text)
    }

    fn parse_oauth_scopes(&mut self, entry: &TableEntry) -> Option<Vec<String>> {
        let scopes = self.parse_texts(entry)?;
        let is_valid_scope =
            |scope: &String| !scope.is_empty() && !scope.contains(char::is_whitespace);
        if scopes.len() > SCOPES_MAX || !scopes.iter().all(is_valid_scope) {
            let message =
                format!("`scopes` allows at most {SCOPES_MAX} scopes, each without spaces");
            return self.reject(entry.position, message);
        }
        Some(scopes)
    }
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

fn parse_transport(fields: &mut Fields<'_, '_, '_>, position: Position) -> Option<Transport> {
    let stdio = ["command", "args", "env", "cwd"].map(|key| fields.get(key));
    let http = ["url", "headers", "oauth"].map(|key| fields.get(key));
    let kind = match fields.get("type") {
        Some(entry) => Some(fields.diagnostics.any_text(entry)?),
        None => None,
    };
    let diagnostics = &mut *fields.diagnostics;
    let is_http = match kind.as_deref() {
        None if stdio[0].is_some() && http[0].is_some() => {
            let message = "`command` and `url` are both set: write one of them";
            return diagnostics.reject(position, message);
        }
        None => http[0].is_some(),
        Some("stdio") => false,
        Some("http" | "streamable-http" | "streamableHttp") => true,
        Some("sse") => {
            let message = "the old SSE transport is not supported: most servers that use it also \
                           have an HTTP URL, so write `\"type\": \"http\"` and that `url`";
            return diagnostics.reject(position, message);
        }
        Some(other) => {
            let known = ["stdio", "http", "streamable-http"];
            let message = suggest::unknown_name_message("type", other, &known);
            return diagnostics.reject(position, message);
        }
    };
    let (key, unused) = if is_http { ("url", &stdio[..]) } else { ("command", &http[..]) };
    let target = if is_http { http[0] } else { stdio[0] };
    let Some(target) = target else {
        return diagnostics.reject(position, format!("`{key}` is missing"));
    };
    for entry in unused.iter().copied().flatten() {
        let message = format!("`{}` has no effect beside `{key}`", entry.key);
        diagnostics.ignore_key(entry, message);
    }
    match is_http {
        true => parse_http_transport(fields, target),
        false => parse_stdio(fields, target),
    }
}

fn parse_stdio(fields: &mut Fields<'_, '_, '_>, command: &TableEntry) -> Option<Transport> {
    let program = fields.diagnostics.any_text(command)?;
    if program.trim().is_empty() || program.contains('\0') {
        let message = "`command` is empty: write the name of a program";
        return fields.diagnostics.reject(command.position, message);
    }
    let args = fields.parse("args", Diagnostics::parse_texts).unwrap_or_default();
    if args.len() > LIST_ITEMS_MAX {
        let message = format!("`args` has more than {LIST_ITEMS_MAX} elements");
        return fields.diagnostics.reject(command.position, message);
    }
    // A line break in a name could be mistaken for another entry when it is shown.
    let is_forbidden_char = |c: char| c == '=' || c.is_control();
    let is_name = |name: &str| !name.is_empty() && !name.contains(is_forbidden_char);
    let env = fields.parse("env", |diagnostics, env| diagnostics.parse_text_map(env, is_name));
    let cwd = fields.parse("cwd", Diagnostics::any_text);
    Some(Transport::Stdio { command: program, args, env: env.unwrap_or_default(), cwd })
}

fn parse_http_transport(fields: &mut Fields<'_, '_, '_>, entry: &TableEntry) -> Option<Transport> {
    let url = fields.diagnostics.any_text(entry)?;
    // A URL that starts with a variable is checked after expansion.
    if !["http://", "https://", "${"].iter().any(|start| url.starts_with(start)) {
        let message = "`url` is not valid: write a URL such as https://HOST/mcp";
        return fields.diagnostics.reject(entry.position, message);
    }
    if url.contains(char::is_control) {
        let message = "`url` contains a line break or another control character";
        return fields.diagnostics.reject(entry.position, message);
    }
    let headers = fields.parse("headers", |diagnostics, headers| {
        diagnostics.parse_text_map(headers, is_header_name)
    });
    let oauth = fields.parse("oauth", Diagnostics::parse_oauth_config).unwrap_or_default();
    Some(Transport::Http { url, headers: headers.unwrap_or_default(), oauth })
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
