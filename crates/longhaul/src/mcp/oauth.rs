//! What `.mcp.json` says of logging in at a server, under `oauth`.
//!
//! Never: quotes what stands there. It may be a secret.

use longhaul_core::suggest;
use longhaul_mcp::OAuth;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::config::env::Env;
use crate::mcp::expand::{Unfilled, expand};
use crate::mcp::fields::{Fields, what};
use crate::written::{Place, PlaceIndex};

/// What may be said.
const KEYS: &[&str] = &[
    "clientId",
    "clientSecret",
    "clientMetadataUrl",
    "scopes",
    "callbackPort",
];

/// So many scopes may be asked for.
const SCOPES_MAX: usize = 64;

/// What was read, with what is wrong and what should be known.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) oauth: OAuth,
    pub(crate) problems: Vec<(Place, String)>,
    pub(crate) notes: Vec<(Place, String)>,
}

/// Reads what stands under `oauth`, which is a part of the text of this index.
pub(crate) fn read(index: &PlaceIndex<'_>, value: &RawValue) -> Found {
    let mut found = Found::default();
    let Ok(fields) = serde_json::from_str::<Fields<'_>>(value.get()) else {
        let said = format!("`oauth` is {}, write an object", what(value));
        found.problems.push((index.place_of(value.get()), said));
        return found;
    };
    for (key, value) in fields.0 {
        let at = index.place_of(value.get());
        let mut taken = Taken {
            found: &mut found,
            at,
            value,
        };
        match key.as_str() {
            "clientId" => taken.word("clientId", |oauth| &mut oauth.client_id),
            "clientSecret" => taken.word("clientSecret", |oauth| &mut oauth.client_secret),
            "clientMetadataUrl" => {
                taken.word("clientMetadataUrl", |oauth| &mut oauth.client_metadata_url);
            }
            "scopes" => taken.scopes(),
            "callbackPort" => taken.port(),
            _ => {
                let said = suggest::unknown("key", &key, KEYS);
                found
                    .notes
                    .push((at, format!("`oauth`: {said}; it is passed over")));
            }
        }
    }
    if found.oauth.client_secret.is_some() && found.oauth.client_id.is_none() {
        let said = "`oauth` has a `clientSecret` and no `clientId`, write both".to_owned();
        found.problems.push((index.place_of(value.get()), said));
    }
    found
}

/// One field while it is read.
struct Taken<'a> {
    found: &'a mut Found,
    at: Place,
    value: &'a RawValue,
}

impl Taken<'_> {
    fn as_a<T: for<'de> Deserialize<'de>>(&mut self, key: &str, right: &str) -> Option<T> {
        let read = serde_json::from_str(self.value.get()).ok();
        if read.is_none() {
            self.misfit(key, right);
        }
        read
    }

    fn misfit(&mut self, key: &str, right: &str) {
        let said = format!("`oauth.{key}` is {}, write {right}", what(self.value));
        self.found.problems.push((self.at, said));
    }

    fn word(&mut self, key: &str, field: impl Fn(&mut OAuth) -> &mut Option<String>) {
        let Some(word) = self.as_a::<String>(key, "a text") else {
            return;
        };
        if word.is_empty() {
            let said = format!("`oauth.{key}` is empty");
            self.found.problems.push((self.at, said));
            return;
        }
        *field(&mut self.found.oauth) = Some(word);
    }

    fn scopes(&mut self) {
        let right = "a list of texts";
        let Some(scopes) = self.as_a::<Vec<String>>("scopes", right) else {
            return;
        };
        let is_one = |scope: &String| !scope.is_empty() && !scope.contains(char::is_whitespace);
        if scopes.len() > SCOPES_MAX || !scopes.iter().all(is_one) {
            let said = format!("`oauth.scopes` are words, {SCOPES_MAX} at most, one in each text");
            self.found.problems.push((self.at, said));
            return;
        }
        self.found.oauth.scopes = scopes;
    }

    fn port(&mut self) {
        let port = serde_json::from_str::<u16>(self.value.get()).ok();
        match port.filter(|port| *port > 0) {
            Some(port) => self.found.oauth.callback_port = Some(port),
            None => self.misfit("callbackPort", "a port from 1 to 65535"),
        }
    }
}

/// The texts in which variables may stand.
pub(crate) fn texts(oauth: &OAuth) -> impl Iterator<Item = &String> {
    let words = [
        &oauth.client_id,
        &oauth.client_secret,
        &oauth.client_metadata_url,
    ];
    words.into_iter().flatten().chain(&oauth.scopes)
}

/// The same with its variables filled in.
pub(crate) fn filled(oauth: &OAuth, env: &Env) -> Result<OAuth, Unfilled> {
    let word = |word: &Option<String>| word.as_ref().map(|word| expand(word, env)).transpose();
    let scopes = oauth.scopes.iter().map(|scope| expand(scope, env));
    Ok(OAuth {
        client_id: word(&oauth.client_id)?,
        client_secret: word(&oauth.client_secret)?,
        client_metadata_url: word(&oauth.client_metadata_url)?,
        scopes: scopes.collect::<Result<_, _>>()?,
        callback_port: oauth.callback_port,
    })
}

/// What can't be so once its variables are filled in.
pub(crate) fn fault(oauth: &OAuth) -> Option<&'static str> {
    let document = oauth.client_metadata_url.as_deref();
    if texts(oauth).any(|text| text.contains(char::is_control)) {
        Some("a text of its `oauth` holds a line break once its variables are filled in")
    } else if document.is_some_and(|document| !document.starts_with("https://")) {
        Some("its `oauth.clientMetadataUrl` is no https:// address")
    } else {
        None
    }
}
