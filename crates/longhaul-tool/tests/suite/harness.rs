//! Helpers shared by the tests of this crate.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use async_trait::async_trait;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use longhaul_core::time::Clock;
use longhaul_testkit::clock::SimClock;
use longhaul_tool::outbound::{Allowlist, DnsResolver, GuardedHttpClient};
use rustix::process::{Pid, test_kill_process};

/// Waits until a process is gone or only its zombie is left.
pub(crate) async fn wait_until_gone(pid: i32) {
    let pid = Pid::from_raw(pid).unwrap();
    while test_kill_process(pid).is_ok() {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
        let state = stat.ok().and_then(|stat| Some(stat.rsplit_once(") ")?.1.chars().next()));
        if state.flatten() == Some('Z') {
            return;
        }
        tokio::task::yield_now().await;
    }
}

/// A request that a server received.
#[derive(Debug, Clone, Default)]
pub(crate) struct ReceivedRequest {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl ReceivedRequest {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        let found = headers.find(|(header_name, _)| header_name.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }
}

/// A server on a real socket that records its requests.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) port: u16,
    requests: Arc<Mutex<Vec<ReceivedRequest>>>,
    _tasks: JoinSet<()>,
}

impl Server {
    pub(crate) async fn new(
        answer: impl Fn(&ReceivedRequest) -> Vec<u8> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let received = Arc::new(Mutex::new(Vec::new()));
        let recorded = Arc::clone(&received);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                if let Some(received) = read_request(&mut stream).await {
                    recorded.lock().unwrap().push(received.clone());
                    _ = stream.write_all(&answer(&received)).await;
                }
            }
        });
        Self { port, requests: received, _tasks: tasks }
    }

    /// Creates a server that gives the same response to every request.
    pub(crate) async fn with_response(answer: Vec<u8>) -> Self {
        Self::new(move |_| answer.clone()).await
    }

    pub(crate) fn requests(&self) -> Vec<ReceivedRequest> {
        self.requests.lock().unwrap().clone()
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://site.example:{}{path}", self.port)
    }
}

pub(crate) async fn read_request(stream: &mut TcpStream) -> Option<ReceivedRequest> {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break end + 4;
        }
        match stream.read(&mut buffer).await {
            Ok(count @ 1..) => bytes.extend_from_slice(&buffer[..count]),
            Ok(0) | Err(_) => return None,
        }
    };
    let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
    let mut lines = head.lines();
    let mut first = lines.next()?.split(' ');
    let mut request = ReceivedRequest {
        method: first.next()?.to_owned(),
        path: first.next()?.to_owned(),
        headers: lines
            .filter_map(|line| line.split_once(": "))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect(),
        body: bytes[end..].to_vec(),
    };
    let length = request.header("content-length").map_or(0, |length| length.parse().unwrap());
    while request.body.len() < length {
        match stream.read(&mut buffer).await {
            Ok(count @ 1..) => request.body.extend_from_slice(&buffer[..count]),
            Ok(0) | Err(_) => return None,
        }
    }
    Some(request)
}

/// Returns a response with its content length.
pub(crate) fn http_response(
    status: &str,
    headers: &[(&str, &str)],
    body: impl AsRef<[u8]>,
) -> Vec<u8> {
    let body = body.as_ref();
    let mut head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n", body.len());
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    [head.as_bytes(), b"connection: close\r\n\r\n", body].concat()
}

/// A DNS resolver with fixed entries that counts its lookups.
#[derive(Debug, Default)]
pub(crate) struct FakeResolver {
    pages: BTreeMap<String, Vec<IpAddr>>,
    lookups: AtomicUsize,
}

impl FakeResolver {
    pub(crate) fn new(pages: &[(&str, &[&str])]) -> Arc<Self> {
        let ips = |ips: &[&str]| ips.iter().map(|ip| ip.parse().unwrap()).collect();
        let pages = pages.iter().map(|(name, all)| ((*name).to_owned(), ips(all)));
        Arc::new(Self { pages: pages.collect(), lookups: AtomicUsize::new(0) })
    }

    pub(crate) fn lookups(&self) -> usize {
        self.lookups.load(Ordering::SeqCst)
    }
}

#[async_trait]
impl DnsResolver for FakeResolver {
    async fn lookup(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        self.lookups.fetch_add(1, Ordering::SeqCst);
        let found = self.pages.get(name).cloned();
        found.ok_or_else(|| io::Error::other("no such name"))
    }
}

/// Returns a client for which `site.example` is this machine, at any port.
pub(crate) fn guarded_client(clock: &SimClock) -> Arc<GuardedHttpClient> {
    let allowlist = Allowlist::new(["site.example:*"], false).unwrap();
    let clock: Arc<dyn Clock> = Arc::new(clock.clone());
    let resolver =
        FakeResolver::new(&[("site.example", &["127.0.0.1"]), ("inside.example", &["127.0.0.1"])]);
    Arc::new(GuardedHttpClient::with_resolver(allowlist, clock, resolver))
}

/// Like [`guarded_client`], with a fixed clock. Created once, because loading certificates is slow.
pub(crate) fn shared_client() -> Arc<GuardedHttpClient> {
    static OUT: OnceLock<Arc<GuardedHttpClient>> = OnceLock::new();
    Arc::clone(OUT.get_or_init(|| guarded_client(&SimClock::new())))
}
