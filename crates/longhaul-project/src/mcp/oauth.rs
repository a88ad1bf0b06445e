//! Parses `oauth`, the login settings of an MCP server in `.mcp.json`.

use longhaul_core::oauth::OAuthConfig;
use serde_json::value::RawValue;

use crate::mcp::server_parser::{McpServerParser, Object};

/// Keys that are allowed in `oauth`, the login settings of an MCP server.
const OAUTH_KEYS: &[&str] =
    &["clientId", "clientSecret", "clientMetadataUrl", "scopes", "callbackPort"];

/// Maximum number of OAuth scopes of a server.
const SCOPES_MAX: usize = 64;

/// Parses the object `oauth` of a server. `None` means that it is invalid; the problems are
/// recorded in `parser`.
pub(crate) fn parse_oauth_config<'a>(
    parser: &mut McpServerParser<'a>,
    value: &'a RawValue,
) -> Option<OAuthConfig> {
    let problems = parser.problems.len();
    let fields = parser.parse_object(Some("oauth"), value, OAUTH_KEYS)?;
    let oauth = OAuthConfig {
        client_id: parse_oauth_text(parser, &fields, "clientId"),
        client_secret: parse_oauth_text(parser, &fields, "clientSecret"),
        client_metadata_url: parse_oauth_text(parser, &fields, "clientMetadataUrl"),
        scopes: parse_oauth_scopes(parser, &fields).unwrap_or_default(),
        callback_port: parse_oauth_callback_port(parser, &fields),
    };
    if oauth.client_secret.is_some() && oauth.client_id.is_none() {
        let message = "`oauth` has a `clientSecret` and no `clientId`: write both";
        parser.add_problem(parser.position_of(value), message);
    }
    (parser.problems.len() == problems).then_some(oauth)
}

fn parse_oauth_text(
    parser: &mut McpServerParser<'_>,
    fields: &Object<'_>,
    key: &str,
) -> Option<String> {
    let value = fields.get(key)?;
    let text: String = parser.parse_field_value(&format!("oauth.{key}"), value, "a text")?;
    if text.is_empty() {
        return parser.reject(parser.position_of(value), &format!("`oauth.{key}` is empty"));
    }
    Some(text)
}

fn parse_oauth_scopes(
    parser: &mut McpServerParser<'_>,
    fields: &Object<'_>,
) -> Option<Vec<String>> {
    let value = fields.get("scopes")?;
    let scopes: Vec<String> = parser.parse_field_value("oauth.scopes", value, "a list of texts")?;
    let is_valid_scope = |scope: &String| !scope.is_empty() && !scope.contains(char::is_whitespace);
    if scopes.len() > SCOPES_MAX || !scopes.iter().all(is_valid_scope) {
        let message =
            format!("`oauth.scopes` allows at most {SCOPES_MAX} scopes, each without spaces");
        return parser.reject(parser.position_of(value), &message);
    }
    Some(scopes)
}

fn parse_oauth_callback_port(parser: &mut McpServerParser<'_>, fields: &Object<'_>) -> Option<u16> {
    let value = fields.get("callbackPort")?;
    let port = serde_json::from_str(value.get()).ok();
    let port = port.filter(|port| *port > 0);
    if port.is_none() {
        parser.report_type_mismatch("oauth.callbackPort", value, "a port from 1 to 65535");
    }
    port
}
