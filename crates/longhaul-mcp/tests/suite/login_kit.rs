//! A server that lets in only who has logged in, and a person with a browser.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use async_trait::async_trait;
use longhaul_core::time::{Clock, Millis, Timestamp};
use longhaul_mcp::{Door, Login, LoginError, OAuth, ServerSpec, Servers, Standing, Visit, Way};
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::kit::{at, soon};

/// The time of this machine: what ends is told by it.
#[derive(Debug)]
struct Wall;

#[async_trait]
impl Clock for Wall {
    fn now(&self) -> Timestamp {
        let since = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
        Timestamp::from_micros(since.as_micros() as i64)
    }

    async fn sleep(&self, _: Millis) {}
}

/// The server, until it is dropped, and a home to keep logins in.
pub(super) struct Guarded {
    child: Child,
    port: u16,
    home: TempDir,
}

impl Drop for Guarded {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

impl Guarded {
    pub(super) fn start() -> Self {
        let judges = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/judges");
        let mut child = Command::new("python3")
            .args(["-B".as_ref(), judges.join("oauth_mcp.py").as_os_str()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut said = BufReader::new(child.stdout.take().unwrap());
        said.read_line(&mut line).unwrap();
        Self {
            child,
            port: line.trim().parse().unwrap(),
            home: tempfile::tempdir().unwrap(),
        }
    }

    /// Somebody who knows the server; each is as good as a process of its own.
    pub(super) fn worker(&self) -> Servers {
        self.known_as(OAuth::default())
    }

    pub(super) fn known_as(&self, oauth: OAuth) -> Servers {
        self.within(oauth, ServerSpec::TIMEOUT)
    }

    /// Whose calls may take so long.
    pub(super) fn within(&self, oauth: OAuth, timeout: Millis) -> Servers {
        let clock = Arc::new(Wall);
        let mut spec: ServerSpec = at("guarded", &format!("{}/mcp", self.base()), &[]);
        spec.timeout = timeout;
        if let Way::Http { login, .. } = &mut spec.way {
            *login = Some(Login::new(self.folder(), oauth, clock.clone()));
        }
        Servers::new(vec![spec], clock)
    }

    pub(super) fn folder(&self) -> PathBuf {
        self.home.path().join("state/logins")
    }

    /// Where the one login lies.
    pub(super) fn file(&self) -> PathBuf {
        let mut files = self.files();
        assert_eq!(files.len(), 1);
        files.remove(0)
    }

    fn files(&self) -> Vec<PathBuf> {
        let Ok(all) = fs::read_dir(self.folder()) else {
            return Vec::new();
        };
        let all = all.map(|entry| entry.unwrap().path());
        let logins = all.filter(|path| path.extension().is_some_and(|kind| kind == "json"));
        logins.collect()
    }

    /// Where it is asked.
    pub(super) fn base(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// What is kept, and who may look at it.
    pub(super) fn kept(&self) -> Vec<(String, u32)> {
        let kept = self.files().into_iter().map(|path| {
            let mode = fs::metadata(&path).unwrap().mode() & 0o777;
            (fs::read_to_string(&path).unwrap(), mode)
        });
        kept.collect()
    }

    /// Asks the server for something as a browser would; its whole answer.
    pub(super) async fn get(&self, path: &str) -> String {
        get(self.port, path).await
    }

    /// What it has seen.
    pub(super) async fn seen(&self) -> Value {
        let answer = self.get("/seen").await;
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        serde_json::from_str(body).unwrap()
    }

    /// Logs in as a person would.
    pub(super) async fn log_in(
        &self,
        servers: &Servers,
        scope: &str,
    ) -> Result<Standing, LoginError> {
        let door = Door::open(None).await.unwrap();
        let visit = Visit {
            redirect: door.address(),
            scopes: scope.split_whitespace().map(str::to_owned).collect(),
        };
        let began = soon(servers.login("guarded", &visit)).await?;
        let browser = async {
            let led_to = self.agree(began.address()).await;
            let path = led_to.split_once("/callback").unwrap().1;
            let port = door.address();
            let port = port.rsplit(':').next().unwrap().split('/').next().unwrap();
            get(port.parse().unwrap(), &format!("/callback{path}")).await
        };
        let (led_to, page) = soon(async { tokio::join!(door.wait(began.state()), browser) }).await;
        assert!(page.starts_with("HTTP/1.1 200"), "{page}");
        soon(began.finish(&led_to)).await
    }

    /// Opens an address of the server, and says where it leads.
    pub(super) async fn agree(&self, address: &str) -> String {
        let path = address.split_once(&format!(":{}", self.port)).unwrap().1;
        let answer = self.get(path).await;
        let location = answer
            .lines()
            .find_map(|line| line.strip_prefix("location: "));
        location.unwrap_or_else(|| panic!("{answer}")).to_owned()
    }
}

async fn get(port: u16, path: &str) -> String {
    let mut line = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let asked =
        format!("GET {path} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nconnection: close\r\n\r\n");
    line.write_all(asked.as_bytes()).await.unwrap();
    let mut said = String::new();
    line.read_to_string(&mut said).await.unwrap();
    said
}
