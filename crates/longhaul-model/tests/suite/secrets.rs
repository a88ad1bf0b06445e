//! A server that says back what it must never be quoted with: keys, and the values
//! of headers.

use std::sync::Arc;

use longhaul_core::port::model::Model;
use longhaul_model::anthropic;
use longhaul_model::http::Http;
use longhaul_model::key::ApiKey;
use longhaul_model::settings::Settings;

use super::kit::{Act, Heard, Noon, Server, plain};
use super::words::{ask, hello, limits};

/// A key with letters that others spell otherwise.
const KEY: &str = "sk-very/secret+0123456789==";

/// It in an address, and in base64, alone and behind `user:`.
const SPELLED: &[&str] = &[
    KEY,
    r"sk-very\/secret+0123456789==",
    "sk-very%2Fsecret%2B0123456789%3D%3D",
    "sk-very%2fsecret%2b0123456789%3d%3d",
    "c2stdmVyeS9zZWNyZXQrMDEyMzQ1Njc4OT09",
    "dXNlcjpzay12ZXJ5L3NlY3JldCswMTIzNDU2Nzg5PT0=",
];

/// What somebody put into headers by hand.
const HEADERS: &[(&str, &str)] = &[
    ("x-api-key", "by-hand-98765"),
    ("authorization", "Bearer another-43210"),
    ("x-team", "blue"),
];

/// What nobody may read anywhere.
const NOWHERE: &[&str] = &[
    "sk-very",
    "very/secret",
    "0123456789",
    "c2stdmVy",
    "ZXJ5L3NlY3Jld",
    "by-hand-98765",
    "another-43210",
];

fn model(server: &Server) -> Arc<dyn Model> {
    let http = Http::new(&server.base(), limits()).unwrap();
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    let settings = Settings {
        headers: HEADERS.iter().map(owned).collect(),
        ..Settings::new("somebody", "their-model", Some(ApiKey::new(KEY)))
    };
    anthropic::model(http, settings, Arc::new(Noon)).unwrap()
}

/// That none of it is in this.
fn clean(text: &str) {
    for secret in NOWHERE {
        assert!(!text.contains(secret), "{secret} in {text}");
    }
}

#[tokio::test]
async fn a_secret_is_hidden_however_it_is_spelled() {
    let by_hand = ["by-hand-98765", "Bearer another-43210", "another-43210"];
    let texts: Vec<&str> = SPELLED.iter().copied().chain(by_hand).collect();
    let plans = texts
        .iter()
        .map(|text| plain(401, &[], &format!("bad <{text}>, blue")));
    let server = Server::new(plans.collect()).await;
    let model = model(&server);
    for text in texts {
        let failure = model.reply(&ask(&hello()), &Heard::default()).await;
        let failure = failure.unwrap_err();
        clean(&format!("{failure:?}"));
        let words = &failure.message;
        assert!(words.starts_with("somebody answered 401: bad <"), "{words}");
        assert!(words.ends_with(">, blue"), "{text}: {words}");
    }
}

#[tokio::test]
async fn half_a_secret_is_one_too() {
    let json = [("content-type", "application/json")];
    let mut plans = Vec::new();
    for text in SPELLED {
        let half = &text[..text.len() - 3];
        // As much as is quoted of what is no reply, and as much as is read of a no.
        for (status, read) in [(200, 4 * 1024), (500, 64 * 1024)] {
            let blanks = " ".repeat(read - "bad ".len() - half.len());
            let body = format!("{blanks}bad {text} and more");
            plans.push(plain(status, &json, &body));
        }
        // And as much as came.
        let head = "HTTP/1.1 500 No\r\ncontent-length: 999\r\n\r\nbad ";
        let torn = Act::Send(format!("{head}{half}").into_bytes());
        plans.push(vec![torn, Act::Close]);
    }
    let asked = plans.len();
    let server = Server::new(plans).await;
    let model = model(&server);
    for _ in 0..asked {
        let failure = model.reply(&ask(&hello()), &Heard::default()).await;
        let failure = failure.unwrap_err();
        clean(&format!("{failure:?}"));
        let words = &failure.message;
        // Behind `user:`, the first letters are of no secret.
        let words = words.trim_end_matches("dXNlcjp");
        assert!(
            words.ends_with(" bad") || words.ends_with(" bad "),
            "{words}"
        );
    }
}
