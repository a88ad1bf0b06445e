//! What `.mcp.json` says of logging in at a server, under `oauth`.

use longhaul_core::oauth::OAuthConfig;
use serde_json::value::RawValue;

use crate::mcp::server_parser::{Object, ServerParser};

/// What may be said.
const KEYS: &[&str] = &["clientId", "clientSecret", "clientMetadataUrl", "scopes", "callbackPort"];

/// Maximum number of scopes that are asked for.
const SCOPES_MAX: usize = 64;

/// Reads what stands under `oauth`; none: the sheet says what is wrong with it.
pub(crate) fn parse<'a>(sheet: &mut ServerParser<'a>, value: &'a RawValue) -> Option<OAuthConfig> {
    let problems = sheet.problems.len();
    let fields = sheet.parse_object(Some("oauth"), value, KEYS)?;
    let oauth = OAuthConfig {
        client_id: parse_text(sheet, &fields, "clientId"),
        client_secret: parse_text(sheet, &fields, "clientSecret"),
        client_metadata_url: parse_text(sheet, &fields, "clientMetadataUrl"),
        scopes: parse_scopes(sheet, &fields).unwrap_or_default(),
        callback_port: parse_port(sheet, &fields),
    };
    if oauth.client_secret.is_some() && oauth.client_id.is_none() {
        let said = "`oauth` has a `clientSecret` and no `clientId`, write both";
        sheet.problem(sheet.position_of(value), said);
    }
    (sheet.problems.len() == problems).then_some(oauth)
}

fn parse_text(sheet: &mut ServerParser<'_>, fields: &Object<'_>, key: &str) -> Option<String> {
    let value = fields.get(key)?;
    let word: String = sheet.parse_value(&format!("oauth.{key}"), value, "a text")?;
    if word.is_empty() {
        sheet.problem(sheet.position_of(value), &format!("`oauth.{key}` is empty"));
        return None;
    }
    Some(word)
}

fn parse_scopes(sheet: &mut ServerParser<'_>, fields: &Object<'_>) -> Option<Vec<String>> {
    let value = fields.get("scopes")?;
    let scopes: Vec<String> = sheet.parse_value("oauth.scopes", value, "a list of texts")?;
    let is_one = |scope: &String| !scope.is_empty() && !scope.contains(char::is_whitespace);
    if scopes.len() > SCOPES_MAX || !scopes.iter().all(is_one) {
        let said = format!("`oauth.scopes` are words, {SCOPES_MAX} at most, one in each text");
        sheet.problem(sheet.position_of(value), &said);
        return None;
    }
    Some(scopes)
}

fn parse_port(sheet: &mut ServerParser<'_>, fields: &Object<'_>) -> Option<u16> {
    let value = fields.get("callbackPort")?;
    let port = serde_json::from_str(value.get()).ok();
    let port = port.filter(|port| *port > 0);
    if port.is_none() {
        sheet.type_mismatch("oauth.callbackPort", value, "a port from 1 to 65535");
    }
    port
}
