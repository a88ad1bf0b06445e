//! `longhaul mcp login` and `logout`, against a server that wants it.

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
        let judges = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/interop");
        let mut child = Command::new("python3")
            .args(["-B".as_ref(), judges.join("oauth_mcp.py").as_os_str()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut said = BufReader::new(child.stdout.take().unwrap());
        said.read_line(&mut line).unwrap();
        Self(child, line.trim().parse().unwrap())
    }

    /// A trusted project that names the server, and others.
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

/// Runs it, wants this exit code, and never a secret in what it says.
fn run(folder: &Path, args: &[&str], code: i32) -> (String, String) {
    let output = longhaul_in(folder, args, &[]);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{args:?}: {out}{err}");
    assert!(!format!("{out}{err}").contains("s3cret"), "{args:?}: {out}{err}");
    (out, err)
}

/// Asks for an address as a browser would, and says where that leads.
fn fetch_redirect(address: &str) -> Option<String> {
    let rest = address.strip_prefix("http://").unwrap();
    let (host, path) = rest.split_once('/').unwrap();
    let mut line = TcpStream::connect(host).unwrap();
    write!(line, "GET /{path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n").unwrap();
    let mut said = String::new();
    line.read_to_string(&mut said).unwrap();
    let location = said.lines().find_map(|line| line.strip_prefix("location: "));
    location.map(str::to_owned)
}

/// A login until its address is shown: the process, where agreeing leads, and what is
/// said after that.
fn start_login(folder: &Path, args: &[&str]) -> (Child, String, Receiver<String>) {
    let args = [&["mcp", "login", "guarded", "--no-browser"], args].concat();
    let mut child = command_in(folder, &args, &[])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let told = BufReader::new(child.stderr.take().unwrap());
    let mut lines = told.lines().map(Result::unwrap);
    let address = lines.find(|line| line.trim().starts_with("http://127.0.0.1:"));
    let led_to = fetch_redirect(address.expect("an address").trim()).expect("a redirect");
    // What is said from here on is read to its end, so that nobody waits for us.
    let (tells, told) = mpsc::channel();
    std::thread::spawn(move || {
        lines.for_each(|line| _ = tells.send(line));
    });
    (child, led_to, told)
}

/// Logs in as a person would.
fn log_in(folder: &Path) {
    let (login, led_to, _) = start_login(folder, &[]);
    fetch_redirect(&led_to);
    assert!(wait_output(login).contains("logged in"));
}

/// Logs out, and says what a program is told of it.
fn log_out(folder: &Path) -> Value {
    let (out, _) = run(folder, &["mcp", "logout", "guarded", "--json"], 0);
    serde_json::from_str(&out).unwrap()
}

/// The one login that is kept.
fn credential_file(folder: &Path) -> PathBuf {
    let logins = fs::read_dir(folder.join(".local/state/longhaul/logins")).unwrap();
    let mut logins = logins.map(|entry| entry.unwrap().path());
    let kept = logins.find(|path| path.extension().is_some_and(|kind| kind == "json"));
    kept.expect("a login")
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
    // Nothing is asked of a server that nobody trusts.
    run(folder, &["mcp", "login", "guarded", "--no-browser"], 6);
    run(folder, &["trust", "--yes"], 0);
    let (out, _) = run(folder, &["mcp", "check", "guarded"], 5);
    assert!(out.contains("run `longhaul mcp login guarded`"), "{out}");
    let (out, _) = run(folder, &["mcp", "check", "guarded", "--json"], 5);
    let told: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(told["checks"][0]["needs_login"], true, "{out}");
    let (login, led_to, _) = start_login(folder, &[]);
    // Somebody else's answer is not taken.
    assert_eq!(fetch_redirect(&led_to.replace("state=", "state=x")), None);
    assert_eq!(fetch_redirect(&led_to), None);
    let out = wait_output(login);
    assert_eq!(out, "guarded: logged in, renewed by itself; scopes: use\n");
    run(folder, &["mcp", "check", "guarded"], 0);
    let (out, _) = run(folder, &["mcp", "ls"], 0);
    assert!(out.contains("trusted, logged in, renewed by itself"), "{out}");
    let (out, _) = run(folder, &["mcp", "ls", "--json"], 0);
    let told: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(told["servers"][0]["login"]["refreshes"], true, "{out}");
    assert_eq!(told["servers"][1]["login"], Value::Null, "{out}");
    let logins = folder.join(".local/state/longhaul/logins");
    assert_eq!(fs::metadata(&logins).unwrap().mode() & 0o777, 0o700);
    for entry in fs::read_dir(&logins).unwrap() {
        assert_eq!(entry.unwrap().metadata().unwrap().mode() & 0o777, 0o600);
    }
    let (out, _) = run(folder, &["mcp", "logout", "guarded"], 0);
    assert_eq!(out, "guarded: its login is forgotten, and taken back there\n");
    let told = log_out(folder);
    assert_eq!(
        told,
        json!({ "server": "guarded", "removed": false, "revoked": false, "reason": null })
    );
    run(folder, &["mcp", "check", "guarded"], 5);
}

#[test]
fn a_redirect_url_can_be_pasted() {
    let server = LoginServer::start();
    let folder = server.project();
    let folder = folder.path();
    run(folder, &["trust", "--yes"], 0);
    let (mut login, led_to, _) = start_login(folder, &["--json", "--scope", "admin more"]);
    let mut stdin = login.stdin.take().unwrap();
    write!(stdin, "what?\nhttp://127.0.0.1/callback?state=x\n{led_to}\n").unwrap();
    let told: Value = serde_json::from_str(&wait_output(login)).unwrap();
    assert_eq!(told["logged_in"], true, "{told}");
    assert_eq!(told["login"]["scopes"], json!(["use", "admin", "more"]), "{told}");
}

#[test]
fn a_server_without_a_login_is_reported() {
    let server = LoginServer::start();
    let folder = server.project();
    let folder = folder.path();
    run(folder, &["trust", "--yes"], 0);
    for (args, why) in [
        (["mcp", "login", "piped"], "it is started here"),
        (["mcp", "login", "keyed"], "Authorization header"),
        (["mcp", "login", "nobody"], "names no server `nobody`"),
        (["mcp", "logout", "piped"], "it is started here"),
        (["mcp", "logout", "nobody"], "names no server `nobody`"),
    ] {
        let (_, err) = run(folder, &args, 2);
        assert!(err.contains(why), "{args:?}: {err}");
    }
}

#[test]
fn a_redirect_in_progress_completes_whatever_is_pasted() {
    let server = LoginServer::start();
    let folder = server.project();
    let folder = folder.path();
    run(folder, &["trust", "--yes"], 0);
    let (mut login, led_to, told) = start_login(folder, &[]);
    let rest = led_to.strip_prefix("http://").unwrap();
    let (host, path) = rest.split_once('/').unwrap();
    let mut slow = TcpStream::connect(host).unwrap();
    write!(slow, "GET /{path} HTTP/1.1\r\n").unwrap();
    // Who comes later was let in later.
    assert_eq!(fetch_redirect(&format!("http://{host}/")), None);
    let mut stdin = login.stdin.take().unwrap();
    writeln!(stdin, "what?").unwrap();
    assert!(told.iter().any(|line| line.contains("not the address")));
    write!(slow, "\r\n").unwrap();
    assert!(wait_output(login).contains("logged in"));
}

#[test]
fn a_login_that_can_not_be_refreshed_is_replaced() {
    let server = LoginServer::start();
    let folder = server.project();
    let folder = folder.path();
    let change = |what: &str| fetch_redirect(&format!("http://127.0.0.1:{}/do?{what}", server.1));
    run(folder, &["trust", "--yes"], 0);
    // Only calls want a login, or nothing does.
    change("open=true&well_known=404");
    let (out, _) = run(folder, &["mcp", "login", "guarded", "--no-browser"], 0);
    assert_eq!(out, "guarded: needs no login\n");
    change("well_known=0");
    let (login, led_to, _) = start_login(folder, &[]);
    fetch_redirect(&led_to);
    assert!(wait_output(login).contains("logged in"));
    // An outage passes, and nobody has to do anything.
    change("open=false&revoke=1&well_known=503");
    let (out, _) = run(folder, &["mcp", "check", "guarded", "--json"], 5);
    let told: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(told["checks"][0]["needs_login"], false, "{out}");
    change("well_known=0&refresh_error=%22invalid_client%22");
    let (out, _) = run(folder, &["mcp", "check", "guarded", "--json"], 5);
    let told: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(told["checks"][0]["needs_login"], true, "{out}");
    let message = told["checks"][0]["message"].as_str().unwrap();
    assert!(message.ends_with("run `longhaul mcp login guarded`."), "{message}");
    let (login, led_to, _) = start_login(folder, &[]);
    fetch_redirect(&led_to);
    assert!(wait_output(login).contains("logged in"));
    run(folder, &["mcp", "check", "guarded"], 0);
}

#[test]
fn a_logout_removes_the_login_even_if_revocation_fails() {
    let server = LoginServer::start();
    let folder = server.project();
    let folder = folder.path();
    let change = |what: &str| fetch_redirect(&format!("http://127.0.0.1:{}/do?{what}", server.1));
    run(folder, &["trust", "--yes"], 0);
    log_in(folder);
    change("revoke_status=503");
    let (out, _) = run(folder, &["mcp", "logout", "guarded"], 0);
    let why = "it answered with HTTP 503 for its refresh token";
    assert_eq!(
        out,
        format!("guarded: its login is forgotten here; it could not be taken back there: {why}\n")
    );
    log_in(folder);
    let told = log_out(folder);
    assert_eq!(
        told,
        json!({ "server": "guarded", "removed": true, "revoked": false, "reason": why })
    );
    change("revoke_status=200&revokes=false");
    log_in(folder);
    let (out, _) = run(folder, &["mcp", "logout", "guarded"], 0);
    assert_eq!(out, "guarded: its login is forgotten here; it offers no way to take it back\n");
    change("revokes=true");
    // What nobody can read is named with what helps, and that does help.
    log_in(folder);
    fs::write(credential_file(folder), "{").unwrap();
    let (_, err) = run(folder, &["mcp", "login", "guarded", "--no-browser"], 2);
    assert!(err.contains("`longhaul mcp logout guarded`"), "{err}");
    let told = log_out(folder);
    assert_eq!(told["reason"], "what was kept can't be read", "{told}");
    // A server that nobody trusts any more is not asked.
    log_in(folder);
    run(folder, &["trust", "revoke"], 0);
    let told = log_out(folder);
    assert_eq!(told["removed"], true, "{told}");
    assert_eq!(told["revoked"], false, "{told}");
    let why = told["reason"].as_str().unwrap();
    assert!(why.contains("not trusted"), "{why}");
}

#[test]
fn a_slow_logout_can_be_interrupted() {
    let server = LoginServer::start();
    let folder = server.project();
    let folder = folder.path();
    let ask = |what: &str| fetch_redirect(&format!("http://127.0.0.1:{}/{what}", server.1));
    run(folder, &["trust", "--yes"], 0);
    log_in(folder);
    ask("do?gate=false");
    let logout = command_in(folder, &["mcp", "logout", "guarded"], &[])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    ask("arrived");
    let id = logout.id().to_string();
    let kill = Command::new("kill").args(["-INT", &id]).status();
    assert!(kill.unwrap().success());
    let output = logout.wait_with_output().unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{err}");
    assert!(err.contains("still kept here"), "{err}");
    credential_file(folder);
    ask("do?gate=true");
}
