//! Tests of secrets, and of the requests that the proxy decrypts for them.

use std::time::Duration;

use longhaul_core::port::sandbox::SandboxError;
use longhaul_sandbox::egress::{CA_BUNDLE_PATH, EgressOptions, EgressProxy, HostList};

use tokio::task::JoinSet;

use super::harness::{Harness, LARGE_BYTES, certificates, secret, serve, start, start_with};

const VALUE: &str = "s3cr3t/\"value\" &more";

/// Starts a proxy with a secret `TOKEN` for `a.example` and a secret `TOKEN_2` for `b.example`.
async fn start_with_secrets() -> Harness {
    start_with(&["a.example", "b.example", "c.example"], |options, _| {
        options.secrets = vec![
            secret("TOKEN", VALUE, &["a.example"]),
            secret("TOKEN_2", "other-value", &["b.example"]),
        ];
    })
    .await
}

#[tokio::test]
async fn placeholders_become_secrets_at_the_hosts_of_the_secrets() {
    let harness = start_with_secrets().await;
    let bearer = "Authorization: Bearer lh-placeholder-TOKEN";
    let output = harness.curl(&["-H", bearer, "https://a.example/"]).await;
    assert!(output.stdout.contains(&format!("authorization: Bearer {VALUE}\n")), "{output:?}");
    let output = harness.curl(&["-u", "x:lh-placeholder-TOKEN", "https://a.example/"]).await;
    // The base64 text of `x:` and the value.
    let basic = "authorization: Basic eDpzM2NyM3QvInZhbHVlIiAmbW9yZQ==\n";
    assert!(output.stdout.contains(basic), "{output:?}");
    let url = "https://a.example/bot-lh-placeholder-TOKEN/x?key=lh-placeholder-TOKEN&y=1";
    let output = harness.curl(&[url]).await;
    let encoded = "s3cr3t%2F%22value%22%20%26more";
    let expected = format!("GET /bot-{encoded}/x?key={encoded}&y=1\n");
    assert!(output.stdout.starts_with(&expected), "{output:?}");
    let output = harness.curl(&["-H", bearer, "https://b.example/"]).await;
    assert!(output.stdout.contains("authorization: Bearer lh-placeholder-TOKEN\n"), "{output:?}");
    let key = "x-key: lh-placeholder-TOKEN_2";
    let output = harness.curl(&["-H", key, "https://b.example/"]).await;
    assert!(output.stdout.contains("x-key: other-value\n"), "{output:?}");
}

#[tokio::test]
async fn placeholders_in_bodies_are_replaced_in_the_encoding_of_the_body() {
    let harness = start_with_secrets().await;
    for (content_type, expected) in [
        ("application/json", r#"{"key": "s3cr3t/\"value\" &more", "n": 1}"#.to_owned()),
        (
            "application/x-www-form-urlencoded",
            r#"{"key": "s3cr3t%2F%22value%22%20%26more", "n": 1}"#.to_owned(),
        ),
        ("text/plain", format!(r#"{{"key": "{VALUE}", "n": 1}}"#)),
    ] {
        let header = format!("content-type: {content_type}");
        let body = r#"{"key": "lh-placeholder-TOKEN", "n": 1}"#;
        let output = harness.curl(&["-H", &header, "--data", body, "https://a.example/"]).await;
        let (head, body) = output.stdout.split_once("\n\n").unwrap();
        assert_eq!(body, expected, "{content_type}");
        assert!(head.contains(&format!("content-length: {}", expected.len())), "{head}");
    }
    assert_eq!(harness.refusals(), "");
}

#[tokio::test]
async fn the_number_of_replacements_is_bounded() {
    let harness = start_with_secrets().await;
    let body = "lh-placeholder-TOKEN ".repeat(150);
    let args = ["-H", "content-type: text/plain", "--data", &body, "https://a.example/"];
    let output = harness.curl(&args).await;
    assert_eq!(output.stdout.matches(VALUE).count(), 100, "{output:?}");
    assert_eq!(output.stdout.matches("lh-placeholder-TOKEN ").count(), 50, "{output:?}");
    assert!(harness.refusals().contains("100 secrets at most"));
}

#[tokio::test]
async fn long_and_binary_bodies_pass_unchanged() {
    let harness = start_with_secrets().await;
    let file = harness.dir.path().join("body");
    let data = format!("@{}", file.display());
    let long = format!("lh-placeholder-TOKEN{}", " ".repeat(1024 * 1024));
    for body in [long.as_bytes(), b"lh-placeholder-TOKEN\xff"] {
        std::fs::write(&file, body).unwrap();
        let output = harness.curl(&["--data-binary", &data, "https://a.example/"]).await;
        assert!(output.stdout.contains("\n\nlh-placeholder-TOKEN"), "{output:?}");
    }
    let chunked = ["-H", "Transfer-Encoding: chunked", "--data-binary", &data];
    let output = harness.curl(&[&chunked[..], &["https://a.example/"]].concat()).await;
    assert!(output.stdout.contains("\n\nlh-placeholder-TOKEN"), "{output:?}");
    let output = harness.curl(&["https://a.example/large"]).await;
    assert_eq!(output.stdout.len(), LARGE_BYTES, "{}", output.stderr);
}

#[tokio::test]
async fn a_placeholder_for_another_host_stays_and_is_reported() {
    let harness = start_with_secrets().await;
    let header = "x-key: lh-placeholder-TOKEN_2 lh-placeholder-TOKEN lh-placeholder-UNKNOWN";
    let output = harness.curl(&["-H", header, "https://a.example/"]).await;
    let expected = format!("x-key: lh-placeholder-TOKEN_2 {VALUE} lh-placeholder-UNKNOWN\n");
    assert!(output.stdout.contains(&expected), "{output:?}");
    assert_eq!(
        harness.refusals(),
        "The sandbox sent the placeholder of the secret `TOKEN_2` to `a.example:443` instead of \
         the secret: the secret is only for b.example."
    );
    let body = "a=lh-placeholder-TOKEN";
    let output = harness.curl(&["--data", body, "http://c.example/"]).await;
    assert!(output.stdout.ends_with(body), "{output:?}");
    assert!(harness.refusals().contains("`TOKEN` to `c.example:80`"));
}

#[tokio::test]
async fn a_secret_is_not_sent_without_tls() {
    let harness = start_with_secrets().await;
    for proxytunnel in [&[][..], &["--proxytunnel"]] {
        let request = ["-u", "x:lh-placeholder-TOKEN", "http://a.example/lh-placeholder-TOKEN"];
        let output = harness.curl(&[proxytunnel, &request].concat()).await;
        assert!(output.stdout.starts_with("GET /lh-placeholder-TOKEN\n"), "{output:?}");
        assert!(!output.stdout.contains("s3cr3t"), "{output:?}");
        assert!(output.stdout.contains("Basic eDpsaC1wbGFjZWhvbGRlci1UT0tFTg=="), "{output:?}");
        assert!(harness.refusals().contains("only into requests with https://"));
    }
}

#[tokio::test]
async fn a_secret_is_not_sent_to_a_host_without_a_trusted_certificate() {
    let mut tasks = JoinSet::new();
    let (_, acceptor) = certificates(&["a.example"]);
    let untrusted = serve(&mut tasks, Some(acceptor)).await;
    let harness = start_with(&["a.example"], |options, upstream| {
        upstream.ports.insert(443, untrusted);
        options.secrets = vec![secret("TOKEN", VALUE, &["a.example"])];
    })
    .await;
    let output = harness.curl(&["-w", "%{http_code}", "https://a.example/"]).await;
    assert!(output.stdout.contains("TLS handshake with `a.example:443` failed"), "{output:?}");
    assert!(output.stdout.ends_with("502"), "{output:?}");
    // A trusted certificate for other names.
    let harness = start_with(&["d.example"], |options, _| {
        options.secrets = vec![secret("TOKEN", VALUE, &["d.example"])];
    })
    .await;
    let output = harness.curl(&["-H", "x: lh-placeholder-TOKEN", "https://d.example/"]).await;
    assert!(output.stdout.contains("TLS handshake with `d.example:443` failed"), "{output:?}");
}

#[tokio::test]
async fn a_secret_in_the_header_of_a_response_is_hidden() {
    let harness = start_with_secrets().await;
    let request = ["-H", "Authorization: Bearer lh-placeholder-TOKEN", "https://a.example/"];
    let output =
        harness.curl(&[&["--include", "--suppress-connect-headers"], &request[..]].concat()).await;
    let (head, body) = output.stdout.split_once("\r\n\r\n").unwrap();
    let mut lines = head.lines();
    assert!(lines.any(|line| line == "x-authorization: Bearer lh-placeholder-TOKEN"), "{head}");
    // As the documentation of the module explains.
    assert!(body.contains(VALUE), "{body}");
}

#[tokio::test]
async fn a_secret_that_no_header_can_contain_is_refused() {
    let harness = start_with(&["a.example"], |options, _| {
        options.secrets = vec![secret("TOKEN", "line\nbreak", &["a.example"])];
    })
    .await;
    let output = harness.curl(&["-H", "x-key: lh-placeholder-TOKEN", "https://a.example/"]).await;
    assert!(output.stdout.contains("The header `x-key` can't contain the secret"), "{output:?}");
    assert!(!output.stdout.contains("break\n"), "{output:?}");
}

#[tokio::test]
async fn the_host_of_a_decrypted_request_must_be_that_of_the_connection() {
    let harness = start_with_secrets().await;
    let output = harness.curl(&["-H", "Host: b.example", "https://a.example/"]).await;
    assert!(output.stdout.contains("contains another host"), "{output:?}");
    assert!(harness.refusals().contains("a request to `a.example:443`"));
    assert_eq!(harness.log(), Vec::<String>::new());
}

#[tokio::test]
async fn a_program_that_does_not_trust_the_proxy_is_reported() {
    let harness = start_with_secrets().await;
    let other_certificates = harness.dir.path().join("other.pem");
    std::fs::write(&other_certificates, harness.root_pem()).unwrap();
    let path = other_certificates.to_str().unwrap();
    let output = harness.curl(&["--cacert", path, "https://a.example/"]).await;
    assert_eq!(output.exit, Some(60), "{output:?}");
    // `curl` can end before the proxy reads that the certificate was rejected.
    let refusal = async {
        loop {
            match harness.refusals() {
                refusals if refusals.is_empty() => tokio::task::yield_now().await,
                refusals => return refusals,
            }
        }
    };
    let refusal = tokio::time::timeout(Duration::from_secs(20), refusal).await.unwrap();
    assert!(refusal.contains("trust the certificates in the file"), "{refusal}");
}

#[tokio::test]
async fn the_environment_names_the_proxy_and_the_certificates() {
    let harness = start(&["a.example"]).await;
    let env = harness.proxy.env(3128);
    assert_eq!(env["HTTPS_PROXY"], "http://127.0.0.1:3128");
    assert_eq!(env["http_proxy"], "http://127.0.0.1:3128");
    assert_eq!(env["ALL_PROXY"], "socks5h://127.0.0.1:3128");
    assert_eq!(env["NO_PROXY"], "localhost,127.0.0.1,::1");
    assert_eq!(env.get("SSL_CERT_FILE"), None);
    assert_eq!(harness.proxy.ca_bundle_pem(), None);
    let harness = start_with_secrets().await;
    assert_eq!(harness.proxy.env(3128)["CARGO_HTTP_CAINFO"], CA_BUNDLE_PATH);
    let bundle = harness.proxy.ca_bundle_pem().unwrap();
    assert_eq!(bundle.matches("BEGIN CERTIFICATE").count(), 2, "{bundle}");
}

#[tokio::test]
async fn invalid_secrets_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    for (secret, reason) in [
        (secret("TOKEN", "", &["a.example"]), "the secret `TOKEN` is empty"),
        (secret("TO-KEN", VALUE, &["a.example"]), "not a valid name"),
        (secret("TOKEN", VALUE, &["a.example", "*"]), "the hosts of the secret `TOKEN`: `*`"),
    ] {
        let mut options = EgressOptions::new(dir.path().join("socket"), HostList::default());
        options.secrets = vec![secret];
        let Err(SandboxError::Refused(message)) = EgressProxy::start(options) else {
            panic!("the secret is accepted: {reason}");
        };
        assert!(message.contains(reason) && !message.contains(VALUE), "{message}");
    }
}
