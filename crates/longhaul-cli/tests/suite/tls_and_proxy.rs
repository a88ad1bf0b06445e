//! TLS and proxies for providers: certificates are checked, and a proxy is used for remote hosts
//! only.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use super::cli::longhaul_in;
use super::fake_server::{FakeServer, json_response};

const KEY: &str = "sk-very-secret-0123456789";

const MODEL_LIST: &str = r#"{"data":[{"id":"one"}]}"#;

fn folder(base_url: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let toml = format!(
        "[providers.far]\napi = \"chat\"\nbase_url = \"{base_url}\"\nkey_env = \"FAR_KEY\"\n"
    );
    std::fs::write(folder.path().join("longhaul.toml"), toml).unwrap();
    folder
}

/// Runs `models check` and returns the exit code and the output.
fn check_models(folder: &TempDir, env: &[(&str, &str)]) -> (Option<i32>, String) {
    let env = [&[("FAR_KEY", KEY), ("LONGHAUL_TRUST", "1")], env].concat();
    let output = longhaul_in(folder.path(), &["models", "check", "far"], &env);
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8(text).unwrap();
    assert!(!text.contains(KEY), "{text}");
    (output.status.code(), text)
}

/// A TLS server with its certificate file.
struct TlsServer {
    child: Child,
    port: String,
    folder: TempDir,
}

impl TlsServer {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let output = Command::new("openssl")
            .args(["req", "-x509", "-newkey", "ec", "-pkeyopt"])
            .args(["ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"])
            .args(["-subj", "/CN=localhost", "-addext"])
            .args(["subjectAltName=IP:127.0.0.1,DNS:localhost", "-addext"])
            .args(["basicConstraints=critical,CA:FALSE"])
            .args(["-keyout", "key.pem", "-out", "cert.pem"])
            .current_dir(folder.path())
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        let program =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/interop/tls_server.py");
        let mut child = Command::new("python3")
            .arg(program)
            .args(["cert.pem", "key.pem"])
            .current_dir(folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut port = String::new();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        out.read_line(&mut port).unwrap();
        Self { child, port: port.trim().to_owned(), folder }
    }

    fn url(&self, host: &str) -> String {
        format!("https://{host}:{}/v1", self.port)
    }

    fn certificate(&self) -> String {
        let file = self.folder.path().join("cert.pem");
        file.to_str().unwrap().to_owned()
    }
}

impl Drop for TlsServer {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

#[test]
fn a_certificate_is_checked() {
    let tls_server = TlsServer::new();
    let certificate = tls_server.certificate();
    let env = [("SSL_CERT_FILE", certificate.as_str())];
    let project_folder = folder(&tls_server.url("127.0.0.1"));
    let (code, text) = check_models(&project_folder, &env);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("1 model"), "{text}");
    // A server with an untrusted certificate gets no request and no key.
    let untrusted_server = TlsServer::new();
    let (code, text) = check_models(&folder(&untrusted_server.url("127.0.0.1")), &env);
    assert_eq!(code, Some(5), "{text}");
    assert!(text.contains("certificate"), "{text}");
    // A valid certificate of another host is rejected too.
    let (code, text) = check_models(&folder(&tls_server.url("127.0.0.2")), &env);
    assert_eq!(code, Some(5), "{text}");
}

#[test]
fn a_proxy_is_used_for_remote_hosts_only() {
    let proxy = FakeServer::new(|_| json_response("200 OK", MODEL_LIST));
    let proxy_env = [
        ("HTTP_PROXY", proxy.url.as_str()),
        ("http_proxy", &proxy.url),
        // The project's settings decide where keys are sent, which needs trust.
        ("LONGHAUL_TRUST", "1"),
    ];
    let (code, text) = check_models(&folder("http://models.invalid/v1"), &proxy_env);
    assert_eq!(code, Some(0), "{text}");
    assert_eq!(
        proxy.requests().last().unwrap().request_line,
        "GET http://models.invalid/v1/models"
    );
    let local = FakeServer::new(|_| json_response("200 OK", MODEL_LIST));
    let (code, text) = check_models(&folder(&format!("{}/v1", local.url)), &proxy_env);
    assert_eq!(code, Some(0), "{text}");
    assert_eq!(local.requests().last().unwrap().request_line, "GET /v1/models");
    assert_eq!(proxy.requests().len(), 1);
    // A proxy that can't reach the server responds with its own error page.
    let broken_proxy = FakeServer::new(|_| {
        let page = "<html><head><title>502 Bad Gateway</title></head></html>";
        let length = page.len();
        format!(
            "HTTP/1.1 502 Bad Gateway\r\ncontent-type: text/html\r\ncontent-length: {length}\r\n\r\n{page}"
        )
    });
    let proxy_env = [
        ("HTTP_PROXY", broken_proxy.url.as_str()),
        ("http_proxy", &broken_proxy.url),
        ("LONGHAUL_TRUST", "1"),
    ];
    let (code, text) = check_models(&folder("http://models.invalid/v1"), &proxy_env);
    assert_eq!(code, Some(5), "{text}");
    assert!(text.contains("502"), "{text}");
}
