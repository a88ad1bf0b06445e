//! `longhaul mcp login` and `logout`, against a server that requires OAuth.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::cli::{command_in, longhaul_in};

/// The server, until it is dropped.
struct LoginServer(Child, u16);

impl LoginServer {
    fn start() -> Self {
        let interop_dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/interop");
        let mut child = Command::new("python3")
            .args(["-B".as_ref(), interop_dir.join("oauth_mcp.py").as_os_str()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        stdout.read_line(&mut line).unwrap();
        Self(child, line.trim().parse().unwrap())
    }

    /// A project with this server and others.
    fn project(&self) -> TempDir {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("http://127.0.0.1:{}/mcp", self.1);
        let mcp = json!({ "mcpServers": {
            "guarded": { "url": url },
            "keyed": { "url": url, "headers": { "Authorization": "Bearer k3y" } },
            "piped": { "command": "true" },
        }});
        fs::write(folder.path().join("longhaul.toml"), "").unwrap();
        fs::write(folder.path().join(".mcp.json"), mcp.to_string()).unwrap();
        folder
    }
}

impl Drop for LoginServer {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

/// Runs the binary, asserts the exit code and that no secret is printed.
fn run(folder: &Path, args: &[&str], code: i32) -> (String, String) {
    let output = longhaul_in(folder, args, &[]);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{args:?}: {out}{err}");
    assert!(!format!("{out}{err}").contains("s3cret"), "{args:?}: {out}{err}");
    (out, err)
}

/// Requests a URL as a browser would, and returns where it redirects.
fn fetch_redirect(address: &str) -> Option<String> {
    let rest = address.strip_prefix("http://").unwrap();
    let (host, path) = rest.split_once('/').unwrap();
    let mut line = TcpStream::connect(host).unwrap();
    write!(line, "GET /{path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n").unwrap();
    let mut response = String::new();
    line.read_to_string(&mut response).unwrap();
    let location = response.lines().find_map(|line| line.strip_prefix("location: "));
    location.map(str::to_owned)
}

/// Starts a login. Returns the process, the redirect URL after agreeing, and the further output.
fn start_login(folder: &Path, args: &[&str]) -> (Child, String, Receiver<String>) {
    let args = [&["mcp", "login", "guarded", "--no-browser"], args].concat();
    let mut child = command_in(folder, &args, &[])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let stderr = BufReader::new(child.stderr.take().unwrap());
    let mut lines = stderr.lines().map(Result::unwrap);
    let address = lines.find(|line| line.trim().starts_with("http://127.0.0.1:"));
    let redirect = fetch_redirect(address.expect("a URL").trim()).expect("a redirect");
    // The further output is read to its end, so that the process never blocks on it.
    let (sender, stderr) = mpsc::channel();
    std::thread::spawn(move || {
        lines.for_each(|line| _ = sender.send(line));
    });
    (child, redirect, stderr)
}

/// Logs in as a person would.
fn log_in(folder: &Path) {
    let (login, redirect, _) = start_login(folder, &[]);
    fetch_redirect(&redirect);
    assert!(wait_output(login).contains("logged in"));
}

/// Logs out and returns the JSON output.
fn log_out(folder: &Path) -> Value {
    let (out, _) = run(folder, &["mcp", "logout", "guarded", "--json"], 0);
    serde_json::from_str(&out).unwrap()
}

/// Returns the file of the stored login.
fn credential_file(folder: &Path) -> PathBuf {
    let logins = fs::read_dir(folder.join(".local/state/longhaul/logins")).unwrap();
    let mut logins = logins.map(|entry| entry.unwrap().path());
    let file = logins.find(|path| path.extension().is_some_and(|kind| kind == "json"));
    file.expect("a stored login")
}

fn wait_output(child: Child) -> String {
    let output = child.wait_with_output().unwrap();
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(0), "{out}");
    out
}

#[test]
fn a_person_logs_in_once_and_out_again() {
    let server = LoginServer::start();
    let folder = server.project();
    let folder = folder.path();
    // An untrusted server is not contacted.
    run(folder, &["mcp", "login", "guarded", "--no-browser"], 6);
    run(folder, &["trust", "--yes"], 0);
    let (out, _) = run(folder, &["mcp", "check", "guarded"], 5);
    assert!(out.contains("run `longhaul mcp login guarded`"), "{out}");
    let (out, _) = run(folder, &["mcp", "check", "guarded", "--json"], 5);
    let json: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(json["checks"][0]["needs_login"], true, "{out}");
    let (login, redirect, _) = start_login(folder, &[]);
    // A redirect with another state is rejected.
    assert_eq!(fetch_redirect(&redirect.replace("state=", "state=x")), None);
    assert_eq!(fetch_redirect(&redirect), None);
    let out = wait_output(login);
    assert_eq!(out, "guarded: logged in, refreshed automatically; scopes: use\n");
    run(folder, &["mcp", "check", "guarded"], 0);
    let (out, _) = run(folder, &["mcp", "ls"], 0);
    assert!(out.contains("trusted, logged in, refreshed automatically"), "{out}");
    let (out, _) = run(folder, &["mcp", "ls", "--json"], 0);
    let json: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(json["servers"][0]["login"]["refreshes"], true, "{out}");
    assert_eq!(json["servers"][1]["login"], Value::Null, "{out}");
    let logins = folder.join(".local/state/longhaul/logins");
    assert_eq!(fs::metadata(&logins).unwrap().mode() & 0o777, 0o700);
    for entry in fs::read_dir(&logins).unwrap() {
        assert_eq!(entry.unwrap().metadata().unwrap().mode() & 0o777, 0o600);
    }
    let (out, _) = run(folder, &["mcp", "logout", "guarded"], 0);
    assert!(out.starts_with("guarded: the login is deleted on this machine; "), "{out}");
    assert!(fs::read_dir(&logins).unwrap().all(|file| {
        let text = fs::read_to_string(file.unwrap().path()).unwrap();
        text.is_empty()
    }));
    assert_eq!(log_out(folder), json!({ "server": "guarded", "removed": false }));
    run(folder, &["mcp", "check", "guarded"], 5);
}

#[test]
fn a_redirect_url_can_be_pasted() {
    let server = LoginServer::start();
    let folder = server.project();
    let folder = folder.path();
    run(folder, &["trust", "--yes"], 0);
    let (mut login, redirect, _) = start_login(folder, &["--json", "--scope", "admin more"]);
    let mut stdin = login.stdin.take().unwrap();
    write!(stdin, "what?\nhttp://127.0.0.1/callback?state=x\n{redirect}\n").unwrap();
    let json: Value = serde_json::from_str(&wait_output(login)).unwrap();
    assert_eq!(json["logged_in"], true, "{json}");
    assert_eq!(json["login"]["scopes"], json!(["use", "admin", "more"]), "{json}");
}

#[test]
fn a_server_without_a_login_is_reported() {
    let server = LoginServer::start();
    let folder = server.project();
    let folder = folder.path();
    run(folder, &["trust", "--yes"], 0);
    for (args, expected) in [
        (["mcp", "login", "piped"], "a local stdio server"),
        (["mcp", "login", "keyed"], "Authorization header"),
        (["mcp", "login", "nobody"], "has no server `nobody`"),
        (["mcp", "logout", "piped"], "a local stdio server"),
        (["mcp", "logout", "nobody"], "has no server `nobody`"),
    ] {
        let (_, err) = run(folder, &args, 2);
        assert!(err.contains(expected), "{args:?}: {err}");
    }
}

#[test]
fn a_redirect_in_progress_completes_whatever_is_pasted() {
    let server = LoginServer::start();
    let folder = server.project();
    let folder = folder.path();
    run(folder, &["trust", "--yes"], 0);
    let (mut login, redirect, stderr_lines) = start_login(folder, &[]);
    let rest = redirect.strip_prefix("http://").unwrap();
    let (host, path) = rest.split_once('/').unwrap();
    let mut slow_connection = TcpStream::connect(host).unwrap();
    write!(slow_connection, "GET /{path} HTTP/1.1\r\n").unwrap();
    // This connection comes after the slow one, so the slow one is accepted by now.
    assert_eq!(fetch_redirect(&format!("http://{host}/")), None);
    let mut stdin = login.stdin.take().unwrap();
    writeln!(stdin, "what?").unwrap();
    assert!(stderr_lines.iter().any(|line| line.contains("not the redirect URL")));
    write!(slow_connection, "\r\n").unwrap();
    assert!(wait_output(login).contains("logged in"));
}

#[test]
fn a_login_that_can_not_be_refreshed_is_replaced() {
    let server = LoginServer::start();
    let folder = server.project();
    let folder = folder.path();
    let change = |settings: &str| {
        fetch_redirect(&format!("http://127.0.0.1:{}/control?{settings}", server.1))
    };
    run(folder, &["trust", "--yes"], 0);
    // The server lists its tools without a login and publishes no login metadata.
    change("login_for_calls_only=true&metadata_error_status=404");
    let (out, _) = run(folder, &["mcp", "login", "guarded", "--no-browser"], 0);
    assert_eq!(out, "guarded: needs no login\n");
    change("metadata_error_status=0");
    let (login, redirect, _) = start_login(folder, &[]);
    fetch_redirect(&redirect);
    assert!(wait_output(login).contains("logged in"));
    // An outage is transient and needs no new login.
    change("login_for_calls_only=false&revoke_access_tokens=1&metadata_error_status=503");
    let (out, _) = run(folder, &["mcp", "check", "guarded", "--json"], 5);
    let json: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(json["checks"][0]["needs_login"], false, "{out}");
    change("metadata_error_status=0&refresh_error=%22invalid_client%22");
    let (out, _) = run(folder, &["mcp", "check", "guarded", "--json"], 5);
    let json: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(json["checks"][0]["needs_login"], true, "{out}");
    let message = json["checks"][0]["message"].as_str().unwrap();
    assert!(message.ends_with("run `longhaul mcp login guarded`."), "{message}");
    let (login, redirect, _) = start_login(folder, &[]);
    fetch_redirect(&redirect);
    assert!(wait_output(login).contains("logged in"));
    run(folder, &["mcp", "check", "guarded"], 0);
}

#[test]
fn a_logout_needs_neither_the_server_nor_a_readable_or_trusted_file() {
    let server = LoginServer::start();
    let folder = server.project();
    let folder = folder.path();
    run(folder, &["trust", "--yes"], 0);
    // An unreadable login is reported with the command that helps.
    log_in(folder);
    fs::write(credential_file(folder), "{").unwrap();
    let (_, err) = run(folder, &["mcp", "login", "guarded", "--no-browser"], 2);
    assert!(err.contains("`longhaul mcp logout guarded`"), "{err}");
    assert_eq!(log_out(folder), json!({ "server": "guarded", "removed": true }));
    log_in(folder);
    run(folder, &["trust", "revoke"], 0);
    drop(server);
    assert_eq!(log_out(folder), json!({ "server": "guarded", "removed": true }));
}
