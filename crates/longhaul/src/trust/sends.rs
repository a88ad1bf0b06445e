//! Where a project would send what is yours: the key of a provider whose address
//! or key its own file names.
//!
//! Never: looks at a key. What a decision is bound to is the same whether one is
//! set or not, and whoever asks.

use std::net::IpAddr;

use longhaul_core::raw::Hash;
use reqwest::Url;

use crate::config::known;
use crate::config::settings::Config;
use crate::config::value::Origin;
use crate::trust::named::add;
use crate::trust::thing::{Kind, Thing};

/// The one provider whose address a variable may say.
const OLLAMA: &str = "ollama";

/// What is said where a variable says it.
const BY_VARIABLE: &str = "wherever OLLAMA_HOST says";

/// What has to be trusted before this provider is asked; none: nothing of yours
/// goes to where the project's file says.
pub fn provider(config: &Config, name: &str) -> Option<Thing> {
    let path = |key: &str| format!("providers.{name}.{key}");
    let is_theirs = |key: &str| is_the_project_s(config, &path(key));
    if !is_theirs("base_url") && !is_theirs("key_env") {
        return None;
    }
    let known = known::find(name);
    let set = config.text(&path("base_url"));
    let address = match set {
        None if name == OLLAMA => None,
        None => Some(known?.base_url),
        Some(set) => Some(set),
    };
    if address.is_some_and(is_near) {
        return None;
    }
    let keys = match config.settings.contains_key(&path("key_env")) {
        true => config.texts(&path("key_env")),
        false => {
            let names = known.map_or(&[][..], |known| known.key_env);
            names.iter().map(|name| (*name).to_owned()).collect()
        }
    };
    let headers = path("headers");
    let yours: Vec<&str> = config
        .below(&headers)
        .filter(|(_, header)| !matches!(header.origin, Origin::ProjectFile(..)))
        .map(|(name, _)| name)
        .collect();
    if keys.is_empty() && yours.is_empty() {
        return None;
    }
    let address = address.unwrap_or(BY_VARIABLE);
    let mut shown = Vec::new();
    if !keys.is_empty() {
        shown.push(format!("sends {} to {address}", keys.join(" or ")));
    }
    if !yours.is_empty() {
        let names = yours.join(", ");
        shown.push(format!("sends your headers {names} to {address}"));
    }
    let mut bytes = Vec::new();
    add(&mut bytes, name.as_bytes());
    add(&mut bytes, address.as_bytes());
    for sent in [keys.join(","), yours.join(",")] {
        add(&mut bytes, sent.as_bytes());
    }
    Some(Thing {
        kind: Kind::Provider,
        name: format!("providers.{name}"),
        hash: Ok(Hash::of(&bytes)),
        shown,
        used_by: Vec::new(),
    })
}

/// Whether the project's own file says this.
pub(crate) fn is_the_project_s(config: &Config, path: &str) -> bool {
    let setting = config.settings.get(path);
    setting.is_some_and(|setting| matches!(setting.origin, Origin::ProjectFile(..)))
}

/// Whether an address is this machine's. What can't be read is elsewhere.
fn is_near(address: &str) -> bool {
    let Ok(url) = Url::parse(address) else {
        return false;
    };
    let host = url.host_str().unwrap_or_default();
    let bare = host.trim_matches(['[', ']']);
    host == "localhost" || bare.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_is_near() {
        for (address, near) in [
            ("http://127.0.0.1:8000/v1", true),
            ("http://127.9.9.9", true),
            ("http://127.1/", true),
            ("http://[::1]:1/v1", true),
            ("http://LOCALHOST:1/", true),
            ("https://api.example/v1", false),
            ("http://localhost.evil.example", false),
            ("http://127.0.0.1.evil.example", false),
            ("http://127.0.0.1@evil.example", false),
            ("http://evil.example\\@127.0.0.1/", false),
            ("http://evil.example#@127.0.0.1/", false),
            ("http://10.0.0.1", false),
            ("http://0.0.0.0", false),
            ("127.0.0.1", false),
        ] {
            assert_eq!(is_near(address), near, "{address}");
        }
    }
}
