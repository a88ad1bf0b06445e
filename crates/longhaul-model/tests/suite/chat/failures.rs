//! Error responses of different servers.

use std::sync::Arc;

use longhaul_model::chat::{self, ServerQuirks};
use longhaul_model::http::HttpClient;
use longhaul_model::key::ApiKey;
use longhaul_model::settings::ModelSettings;

use super::harness::{KEY, RECORDED, answer};
use crate::suite::fixtures::{hello_messages, limits};
use crate::suite::harness::{FixedClock, Server, full_response, stream_response};

/// Error responses of providers and their expected mapping, one per line.
const TABLE: &str = include_str!("failures.txt");

/// A line of the table.
struct Row {
    provider: &'static str,
    status: u16,
    headers: Vec<(&'static str, &'static str)>,
    class: &'static str,
    wait: Option<u64>,
    body: &'static str,
}

fn row(line: &'static str) -> Row {
    let mut columns = line.splitn(6, " | ");
    let mut next_column = || columns.next().unwrap();
    Row {
        provider: next_column(),
        status: next_column().parse().unwrap(),
        headers: next_column().split("; ").filter_map(|header| header.split_once(": ")).collect(),
        class: next_column(),
        wait: next_column().parse().ok(),
        body: next_column(),
    }
}

#[tokio::test]
async fn errors_of_each_server_are_classified() {
    let rows: Vec<Row> = TABLE.lines().skip(1).map(row).collect();
    let plans = rows.iter().map(|row| full_response(row.status, &row.headers, row.body));
    let server = Server::new(plans.collect()).await;
    let mut all = String::new();
    for row in &rows {
        let http = HttpClient::new(&format!("{}/v1", server.base_url()), limits()).unwrap();
        let settings = ModelSettings::new(row.provider, "m", Some(ApiKey::new(KEY)));
        let quirks = ServerQuirks::for_provider(row.provider);
        let model = chat::new_model(http, settings, quirks, Arc::new(FixedClock)).unwrap();
        let failure = answer(&server, &model, &hello_messages()).await.0.unwrap_err();
        assert_eq!(failure.class.as_str(), row.class, "{}", row.body);
        let wait = failure.retry_after.map(|wait| wait.0);
        assert_eq!(wait, row.wait, "{}", row.body);
        assert_eq!(failure.status, Some(row.status));
        assert!(!failure.message.contains(KEY), "{}", failure.message);
        all.push_str(&format!("{}: {}\n", row.class, failure.message));
    }
    insta::assert_snapshot!("failures", all);
}

/// An error in the middle of a stream, and its expected class.
const STREAM_ERRORS: &[(&str, &str)] = &[
    (r#"{"error":{"code":429,"message":"Rate limited"}}"#, "rate_limit"),
    (r#"{"error":{"code":502,"message":"Provider returned error"}}"#, "server"),
    (r#"{"error":{"code":"503","message":"Loading model"}}"#, "overloaded"),
    (r#"{"error":{"code":402,"message":"Insufficient credits"}}"#, "quota"),
    (r#"{"error":{"code":200,"message":"odd"}}"#, "server"),
    (r#"{"error":{"code":99999999999,"message":"odd"}}"#, "server"),
    (r#"{"error":{"message":"Overloaded","type":"engine_overloaded_error"}}"#, "overloaded"),
    (
        r#"{"error":{"code":400,"message":"exceeds the available context size","type":"exceed_context_size_error"}}"#,
        "context_overflow",
    ),
    (r#"{"object":"error","message":"boom","type":"InternalServerError","code":500}"#, "server"),
    (r#"{"error":"an error was encountered while running the model"}"#, "server"),
];

#[tokio::test]
async fn errors_in_a_stream_are_classified() {
    let stream_start = &RECORDED[..RECORDED.find(r#"data: {"choices":[],"#).unwrap()];
    let plans = STREAM_ERRORS
        .iter()
        .map(|(error, _)| stream_response(format!("{stream_start}data: {error}\n\n").as_bytes()));
    let server = Server::new(plans.collect()).await;
    let model = super::harness::model(&server);
    for (error, class) in STREAM_ERRORS {
        let failure = answer(&server, &model, &hello_messages()).await.0.unwrap_err();
        assert_eq!(failure.class.as_str(), *class, "{error}");
        assert_eq!(failure.status, Some(200));
        assert_eq!(failure.request_id.as_deref(), Some("req_7"));
        assert!(failure.usage.unwrap().estimated);
    }
}
