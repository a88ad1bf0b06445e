//! A proxy whose hosts are servers of the test, and programs that use it.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::AUTHORIZATION;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use longhaul_core::port::sandbox::SandboxSecret;
use longhaul_sandbox::egress::{EgressOptions, EgressProxy, HostList, Upstream};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

/// Address of all hosts that have no other address.
pub(crate) const PUBLIC: Ipv4Addr = Ipv4Addr::new(93, 184, 216, 34);
/// Length of the body that the path `/large` returns.
pub(crate) const LARGE_BYTES: usize = 8 * 1024 * 1024;

/// The network of the test. All connections lead to servers of the test, chosen by their port.
#[derive(Debug)]
pub(crate) struct FakeUpstream {
    pub(crate) addresses: BTreeMap<&'static str, Vec<IpAddr>>,
    pub(crate) ports: BTreeMap<u16, SocketAddr>,
    /// Names that were looked up and addresses that were connected to.
    pub(crate) log: Mutex<Vec<String>>,
    root: CertificateDer<'static>,
}

#[async_trait]
impl Upstream for FakeUpstream {
    async fn lookup(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        self.log.lock().unwrap().push(name.to_owned());
        Ok(self.addresses.get(name).cloned().unwrap_or_else(|| vec![PUBLIC.into()]))
    }

    async fn connect(&self, address: SocketAddr) -> io::Result<TcpStream> {
        self.log.lock().unwrap().push(address.to_string());
        match self.ports.get(&address.port()) {
            Some(server) => TcpStream::connect(server).await,
            None => Err(io::ErrorKind::ConnectionRefused.into()),
        }
    }

    fn root_certificates(&self) -> Vec<CertificateDer<'static>> {
        vec![self.root.clone()]
    }
}

/// A proxy, its upstream servers and a relay, as there is one on the loopback of a sandbox.
pub(crate) struct Harness {
    pub(crate) proxy: EgressProxy,
    pub(crate) upstream: Arc<FakeUpstream>,
    /// Port of the relay.
    pub(crate) port: u16,
    pub(crate) dir: TempDir,
    _tasks: JoinSet<()>,
}

/// Starts a proxy with this list of hosts.
pub(crate) async fn start(hosts: &[&str]) -> Harness {
    start_with(hosts, |_, _| {}).await
}

/// Starts a proxy with this list of hosts and further options. The names `*.example` and
/// `*.a.example` have certificates, at port 443; port 80 is plain HTTP.
pub(crate) async fn start_with(
    hosts: &[&str],
    change: impl FnOnce(&mut EgressOptions, &mut FakeUpstream),
) -> Harness {
    let dir = tempfile::tempdir().unwrap();
    let mut tasks = JoinSet::new();
    let (root, acceptor) = certificates(&["a.example", "b.example", "c.example", "10.0.0.5"]);
    let http = serve(&mut tasks, None).await;
    let https = serve(&mut tasks, Some(acceptor)).await;
    let ports = BTreeMap::from([(80, http), (443, https), (8080, http), (8443, https)]);
    let mut upstream =
        FakeUpstream { addresses: BTreeMap::new(), ports, log: Mutex::default(), root };
    let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
    let socket = dir.path().join("egress.sock");
    let mut options = EgressOptions::new(socket.clone(), HostList::parse(&hosts).unwrap());
    change(&mut options, &mut upstream);
    let upstream = Arc::new(upstream);
    options.upstream = Arc::clone(&upstream) as Arc<dyn Upstream>;
    let proxy = EgressProxy::start(options).unwrap();
    let relay = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = relay.local_addr().unwrap().port();
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((mut client, _)) = relay.accept().await {
            let mut proxy = UnixStream::connect(&socket).await.unwrap();
            connections.spawn(async move {
                _ = tokio::io::copy_bidirectional(&mut client, &mut proxy).await;
            });
        }
    });
    Harness { proxy, upstream, port, dir, _tasks: tasks }
}

/// Returns a secret whose placeholder is `lh-placeholder-NAME`.
pub(crate) fn secret(name: &str, value: &str, hosts: &[&str]) -> SandboxSecret {
    let hosts = hosts.iter().map(|host| (*host).to_owned()).collect();
    SandboxSecret { name: name.to_owned(), value: value.to_owned(), hosts }
}

/// What a program printed.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) exit: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Harness {
    /// Runs `curl` with the environment variables of the proxy.
    pub(crate) async fn curl(&self, args: &[&str]) -> Output {
        let bundle = self.dir.path().join("ca-bundle.pem");
        std::fs::write(&bundle, self.proxy.ca_bundle_pem().unwrap_or_else(|| self.root_pem()))
            .unwrap();
        let mut command = tokio::process::Command::new("curl");
        command.env_clear().envs(self.proxy.env(self.port)).env("CURL_CA_BUNDLE", bundle);
        command.args(["-q", "--silent", "--show-error", "--max-time", "20"]).args(args);
        let output = command.output().await.expect("install the package `curl`");
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Output {
            exit: output.status.code(),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        }
    }

    /// Sends bytes in a new connection and returns all that the proxy answers until it closes it.
    pub(crate) async fn send(&self, bytes: &[u8]) -> String {
        let mut stream = self.connect().await;
        stream.write_all(bytes).await.unwrap();
        read_to_end(stream).await
    }

    /// Opens a connection to the proxy.
    pub(crate) async fn connect(&self) -> UnixStream {
        UnixStream::connect(self.dir.path().join("egress.sock")).await.unwrap()
    }

    /// Opens a tunnel to a target with a CONNECT request.
    pub(crate) async fn connect_to(&self, target: &str) -> UnixStream {
        let mut stream = self.connect().await;
        let request = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            answer.push(stream.read_u8().await.unwrap());
        }
        let answer = String::from_utf8(answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        stream
    }

    /// Returns the sentences about refusals as one text.
    pub(crate) fn refusals(&self) -> String {
        self.proxy.take_refusals().into_iter().collect::<Vec<_>>().join("\n")
    }

    /// Returns the names that were looked up and the addresses that were connected to.
    pub(crate) fn log(&self) -> Vec<String> {
        self.upstream.log.lock().unwrap().clone()
    }

    /// Starts a server that sends a line at once and then returns what it gets.
    pub(crate) async fn line_server() -> (SocketAddr, JoinSet<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut task = JoinSet::new();
        task.spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                stream.write_all(b"hello\n").await.unwrap();
                let (mut reader, mut writer) = stream.split();
                _ = tokio::io::copy(&mut reader, &mut writer).await;
            }
        });
        (address, task)
    }

    pub(crate) fn root(&self) -> CertificateDer<'static> {
        self.upstream.root.clone()
    }

    pub(crate) fn root_pem(&self) -> String {
        use base64::Engine;
        let text = base64::engine::general_purpose::STANDARD.encode(&self.upstream.root);
        let lines: Vec<&str> =
            text.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).unwrap()).collect();
        format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
    }
}

/// Reads until the other side closes the connection, also if it does so with an error.
pub(crate) async fn read_to_end(mut stream: impl AsyncRead + Unpin) -> String {
    let mut bytes = Vec::new();
    _ = stream.read_to_end(&mut bytes).await;
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Returns a root certificate, and a TLS server with a certificate for these names.
pub(crate) fn certificates(names: &[&str]) -> (CertificateDer<'static>, TlsAcceptor) {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, "root of the test");
    let key = KeyPair::generate().unwrap();
    let root = params.self_signed(&key).unwrap().der().clone();
    let issuer = Issuer::new(params, key);
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(names).unwrap().signed_by(&key, &issuer).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate.der().clone()],
            PrivateKeyDer::Pkcs8(key.serialize_der().into()),
        )
        .unwrap();
    (root, TlsAcceptor::from(Arc::new(config)))
}

/// Starts an HTTP server that returns its requests.
pub(crate) async fn serve(tasks: &mut JoinSet<()>, tls: Option<TlsAcceptor>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            let tls = tls.clone();
            connections.spawn(async move {
                match tls {
                    None => serve_connection(stream).await,
                    Some(tls) => {
                        if let Ok(stream) = tls.accept(stream).await {
                            serve_connection(stream).await;
                        }
                    }
                }
            });
        }
    });
    address
}

async fn serve_connection(stream: impl AsyncRead + AsyncWrite + Unpin + 'static) {
    let service = service_fn(|request| async { Ok::<_, Infallible>(echo(request).await) });
    let builder = hyper::server::conn::http1::Builder::new();
    _ = builder.serve_connection(TokioIo::new(stream), service).await;
}

/// Returns the request as text, and its `Authorization` header as a header.
async fn echo(request: Request<Incoming>) -> Response<Full<Bytes>> {
    let (parts, body) = request.into_parts();
    if parts.uri.path() == "/large" {
        return Response::new(Full::new(Bytes::from(vec![b'x'; LARGE_BYTES])));
    }
    let mut text = format!("{} {}\n", parts.method, parts.uri);
    for (name, value) in &parts.headers {
        text.push_str(&format!("{name}: {}\n", String::from_utf8_lossy(value.as_bytes())));
    }
    let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    text.push_str(&format!("\n{}", String::from_utf8_lossy(&body)));
    let mut response = Response::new(Full::new(Bytes::from(text)));
    if let Some(value) = parts.headers.get(AUTHORIZATION) {
        response.headers_mut().insert("x-authorization", value.clone());
    }
    response
}
