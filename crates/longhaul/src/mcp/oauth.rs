//! What `.mcp.json` says of logging in at a server, under `oauth`.

use longhaul_core::oauth::OAuth;
use serde_json::value::RawValue;

use crate::mcp::sheet::{Object, Sheet};

/// What may be said.
const KEYS: &[&str] = &[
    "clientId",
    "clientSecret",
    "clientMetadataUrl",
    "scopes",
    "callbackPort",
];

/// Maximum number of scopes that are asked for.
const SCOPES_MAX: usize = 64;

/// Reads what stands under `oauth`; none: the sheet says what is wrong with it.
pub(crate) fn read<'a>(sheet: &mut Sheet<'a>, value: &'a RawValue) -> Option<OAuth> {
    let problems = sheet.problems.len();
    let fields = sheet.object(Some("oauth"), value, KEYS)?;
    let oauth = OAuth {
        client_id: word(sheet, &fields, "clientId"),
        client_secret: word(sheet, &fields, "clientSecret"),
        client_metadata_url: word(sheet, &fields, "clientMetadataUrl"),
        scopes: scopes(sheet, &fields).unwrap_or_default(),
        callback_port: port(sheet, &fields),
    };
    if oauth.client_secret.is_some() && oauth.client_id.is_none() {
        let said = "`oauth` has a `clientSecret` and no `clientId`, write both";
        sheet.problem(sheet.place_of(value), said);
    }
    (sheet.problems.len() == problems).then_some(oauth)
}

fn word(sheet: &mut Sheet<'_>, fields: &Object<'_>, key: &str) -> Option<String> {
    let value = fields.get(key)?;
    let word: String = sheet.read(&format!("oauth.{key}"), value, "a text")?;
    if word.is_empty() {
        sheet.problem(sheet.place_of(value), &format!("`oauth.{key}` is empty"));
        return None;
    }
    Some(word)
}

fn scopes(sheet: &mut Sheet<'_>, fields: &Object<'_>) -> Option<Vec<String>> {
    let value = fields.get("scopes")?;
    let scopes: Vec<String> = sheet.read("oauth.scopes", value, "a list of texts")?;
    let is_one = |scope: &String| !scope.is_empty() && !scope.contains(char::is_whitespace);
    if scopes.len() > SCOPES_MAX || !scopes.iter().all(is_one) {
        let said = format!("`oauth.scopes` are words, {SCOPES_MAX} at most, one in each text");
        sheet.problem(sheet.place_of(value), &said);
        return None;
    }
    Some(scopes)
}

fn port(sheet: &mut Sheet<'_>, fields: &Object<'_>) -> Option<u16> {
    let value = fields.get("callbackPort")?;
    let port = serde_json::from_str(value.get()).ok();
    let port = port.filter(|port| *port > 0);
    if port.is_none() {
        sheet.misfit("oauth.callbackPort", value, "a port from 1 to 65535");
    }
    port
}
