//! An OAuth-protected server, and a simulated user with a browser.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use async_trait::async_trait;
use longhaul_core::time::{Clock, Millis, Timestamp};
use longhaul_mcp::{
    CallbackServer, LoginContext, LoginError, LoginRequest, LoginStatus, McpServers, OAuthConfig,
    ServerSpec, ServerTransport,
};
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::harness::{http_spec, within_timeout};

/// The system clock, because tokens expire by real time.
#[derive(Debug)]
struct WallClock;

#[async_trait]
impl Clock for WallClock {
    fn now(&self) -> Timestamp {
        let elapsed = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
        Timestamp::from_micros(elapsed.as_micros() as i64)
    }

    async fn sleep(&self, _: Millis) {}
}

/// The server, killed on drop, and a home directory for logins.
pub(super) struct OAuthServer {
    child: Child,
    port: u16,
    home: TempDir,
}

impl Drop for OAuthServer {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

impl OAuthServer {
    pub(super) fn start() -> Self {
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
        Self { child, port: line.trim().parse().unwrap(), home: tempfile::tempdir().unwrap() }
    }

    /// Returns servers with shared logins. Each call acts as a process of its own.
    pub(super) fn servers(&self) -> McpServers {
        self.servers_with(OAuthConfig::default())
    }

    pub(super) fn servers_with(&self, oauth: OAuthConfig) -> McpServers {
        self.servers_with_timeout(oauth, ServerSpec::TIMEOUT)
    }

    /// Like [`OAuthServer::servers`], with these OAuth settings and this call timeout.
    pub(super) fn servers_with_timeout(&self, oauth: OAuthConfig, timeout: Millis) -> McpServers {
        let clock = Arc::new(WallClock);
        let mut spec: ServerSpec = http_spec("guarded", &format!("{}/mcp", self.base_url()), &[]);
        spec.timeout = timeout;
        if let ServerTransport::Http { login, .. } = &mut spec.transport {
            *login = Some(LoginContext::new(self.login_dir(), oauth, clock.clone()));
        }
        McpServers::new(vec![spec], clock)
    }

    pub(super) fn login_dir(&self) -> PathBuf {
        self.home.path().join("state/logins")
    }

    /// Returns the path of the only saved login.
    pub(super) fn login_file(&self) -> PathBuf {
        let mut files = self.login_files();
        assert_eq!(files.len(), 1);
        files.remove(0)
    }

    fn login_files(&self) -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(self.login_dir()) else {
            return Vec::new();
        };
        let entries = entries.map(|entry| entry.unwrap().path());
        let logins = entries.filter(|path| path.extension().is_some_and(|kind| kind == "json"));
        logins.collect()
    }

    pub(super) fn base_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Returns the contents and modes of the saved logins.
    pub(super) fn saved_logins(&self) -> Vec<(String, u32)> {
        let logins = self.login_files().into_iter().map(|path| {
            let mode = fs::metadata(&path).unwrap().mode() & 0o777;
            (fs::read_to_string(&path).unwrap(), mode)
        });
        logins.collect()
    }

    /// Sends a GET request to the server and returns the whole response.
    pub(super) async fn get(&self, path: &str) -> String {
        get(self.port, path).await
    }

    /// Returns what the server has counted.
    pub(super) async fn stats(&self) -> Value {
        let response = self.get("/stats").await;
        let (_, body) = response.split_once("\r\n\r\n").unwrap();
        serde_json::from_str(body).unwrap()
    }

    /// Logs in like a user.
    pub(super) async fn log_in(
        &self,
        servers: &McpServers,
        scope: &str,
    ) -> Result<LoginStatus, LoginError> {
        let callback_server = CallbackServer::bind(None).await.unwrap();
        let request = LoginRequest {
            redirect_uri: callback_server.redirect_uri(),
            scopes: scope.split_whitespace().map(str::to_owned).collect(),
        };
        let login = within_timeout(servers.login("guarded")?.start(&request)).await?;
        let browser = async {
            let callback_url = self.approve(login.authorization_url()).await;
            let path = callback_url.split_once("/callback").unwrap().1;
            let port = callback_server.redirect_uri();
            let port = port.rsplit(':').next().unwrap().split('/').next().unwrap();
            get(port.parse().unwrap(), &format!("/callback{path}")).await
        };
        let (callback_url, page) = within_timeout(async {
            tokio::join!(callback_server.wait_for_callback(login.oauth_state()), browser)
        })
        .await;
        assert!(page.starts_with("HTTP/1.1 200"), "{page}");
        within_timeout(login.finish_login(&callback_url)).await
    }

    /// Opens a URL of the server and returns its redirect target.
    pub(super) async fn approve(&self, address: &str) -> String {
        let path = address.split_once(&format!(":{}", self.port)).unwrap().1;
        let response = self.get(path).await;
        let location = response.lines().find_map(|line| line.strip_prefix("location: "));
        location.unwrap_or_else(|| panic!("{response}")).to_owned()
    }
}

async fn get(port: u16, path: &str) -> String {
    let mut line = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let request =
        format!("GET {path} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nconnection: close\r\n\r\n");
    line.write_all(request.as_bytes()).await.unwrap();
    let mut response = String::new();
    line.read_to_string(&mut response).await.unwrap();
    response
}
