//! One connection of a program to the egress proxy: its handshake and the tunnel to a host.

use std::io::{self, Cursor};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, copy_bidirectional};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;
use tokio_util::io::{InspectReader, InspectWriter};

use crate::egress::context::{Context, ProxyError};
use crate::egress::forward::{Body, Forwarder, error_response, serve_http, text_body};
use crate::egress::hosts::{HTTP_PORT, HTTPS_PORT, Target, parse_host};
use crate::egress::socks;
use crate::egress::tls::{FirstMessage, Interception, read_first_message};

/// A stream of data in both directions.
trait Duplex: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Duplex for T {}

/// How data gets from a program to an allowed target.
enum Route {
    /// As HTTP requests, so that their `Host` header is checked.
    Http,
    /// As HTTP requests that are decrypted.
    Decrypt,
    /// Unchanged.
    Tunnel(TcpStream),
}

/// Serves one connection until it ends or is idle for too long.
pub(super) async fn serve(context: Arc<Context>, stream: UnixStream) {
    let idle = context.timeouts.idle;
    let is_active = Arc::new(AtomicBool::new(true));
    let marker = || {
        let is_active = Arc::clone(&is_active);
        move |_: &[u8]| is_active.store(true, Ordering::Relaxed)
    };
    // All data of the connection, in both directions, is read from or written to this stream.
    let stream = InspectWriter::new(InspectReader::new(stream, marker()), marker());
    tokio::select! {
        result = Box::pin(serve_stream(context, Box::new(stream))) => {
            if let Err(error) = result {
                tracing::debug!(%error, "a connection from a sandbox has failed");
            }
        }
        () = until_idle(&is_active, idle) => {}
    }
}

async fn until_idle(is_active: &AtomicBool, idle: Duration) {
    while is_active.swap(false, Ordering::Relaxed) {
        tokio::time::sleep(idle).await;
    }
}

async fn serve_stream(context: Arc<Context>, mut stream: Box<dyn Duplex>) -> io::Result<()> {
    let limit = context.timeouts.handshake;
    let first = timeout(limit, stream.read_u8()).await??;
    if first == socks::VERSION {
        let route = match timeout(limit, socks::read_target(&mut stream)).await?? {
            Ok(target) => find_route(&context, target).await,
            Err(error) => Err(error),
        };
        socks::reply(&mut stream, &route).await?;
        return match route {
            Ok((target, route)) => follow(context, stream, (target, route)).await,
            Err(_) => Ok(()),
        };
    }
    let service = Arc::new(ProxyService {
        forwarder: Forwarder::new(Arc::clone(&context), None),
        accepted: Mutex::default(),
    });
    let answer = |request| {
        let service = Arc::clone(&service);
        async move { service.answer(request).await }
    };
    serve_http(&context, with_prefix(vec![first], stream), answer).await;
    let accepted = service.accepted.lock().unwrap_or_else(PoisonError::into_inner).take();
    let Some((upgrade, target, route)) = accepted else {
        return Ok(());
    };
    let stream = upgrade.await.map_err(io::Error::other)?;
    follow(context, Box::new(TokioIo::new(stream)), (target, route)).await
}

/// The HTTP requests of one connection to the proxy.
struct ProxyService {
    forwarder: Forwarder,
    /// The accepted CONNECT request, after which the connection is no HTTP connection any more.
    accepted: Mutex<Option<(OnUpgrade, Target, Route)>>,
}

impl ProxyService {
    async fn answer(&self, mut request: Request<Incoming>) -> Response<Body> {
        if request.method() != Method::CONNECT {
            return self.forwarder.answer(request).await;
        }
        let authority = request.uri().authority().map(|authority| authority.as_str());
        let target = Target::parse(authority.unwrap_or_default(), None);
        let target = target.map_err(|reason| {
            ProxyError::Invalid(format!(
                "CONNECT needs a target such as `example.com:443`: {reason}"
            ))
        });
        let route = match target {
            Ok(target) => find_route(&self.forwarder.context, target).await,
            Err(error) => Err(error),
        };
        match route {
            Ok((target, route)) => {
                let upgrade = hyper::upgrade::on(&mut request);
                let mut accepted = self.accepted.lock().unwrap_or_else(PoisonError::into_inner);
                *accepted = Some((upgrade, target, route));
                Response::new(text_body(""))
            }
            Err(error) => error_response(&error),
        }
    }
}

/// Returns how to reach the target if the list of hosts allows it.
async fn find_route(context: &Context, target: Target) -> Result<(Target, Route), ProxyError> {
    context.check(&target)?;
    let route = if target.port == HTTP_PORT {
        Route::Http
    } else if context.secrets.has_secret_for(&target) {
        Route::Decrypt
    } else {
        Route::Tunnel(context.connect(&target).await?)
    };
    Ok((target, route))
}

/// Passes data between a program and its target until one of the two ends the connection.
async fn follow(
    context: Arc<Context>,
    mut stream: Box<dyn Duplex>,
    (target, route): (Target, Route),
) -> io::Result<()> {
    let limit = context.timeouts.handshake;
    let mut start = Vec::with_capacity(4096);
    match (route, &context.interception) {
        (Route::Tunnel(mut upstream), _) => {
            if target.port == HTTPS_PORT {
                let first = timeout(limit, read_first_message(&mut stream, &mut start)).await??;
                check_tls(&context, &target, &first)?;
            } else {
                // In some protocols, of which TLS is none, the server sends the first message.
                let mut byte = [0];
                let is_tls = tokio::select! {
                    read = stream.read_buf(&mut start) => read? > 0,
                    peeked = upstream.peek(&mut byte) => { peeked?; false }
                };
                if is_tls
                    && let first @ FirstMessage::Tls { .. } =
                        timeout(limit, read_first_message(&mut stream, &mut start)).await??
                {
                    check_tls(&context, &target, &first)?;
                }
            }
            copy_bidirectional(&mut with_prefix(start, stream), &mut upstream).await?;
        }
        (Route::Decrypt, Some(interception)) => {
            let first = timeout(limit, read_first_message(&mut stream, &mut start)).await??;
            check_tls(&context, &target, &first)?;
            let stream = with_prefix(start, stream);
            let stream = decrypt(&context, interception, (&target, stream)).await?;
            serve_target(&context, stream, target).await;
        }
        (Route::Http | Route::Decrypt, _) => serve_target(&context, stream, target).await,
    }
    Ok(())
}

/// Checks that a program sends a TLS handshake, and for the target that it has asked for: one server
/// may serve several hosts, and chooses by the name in the handshake.
fn check_tls(context: &Context, target: &Target, first: &FirstMessage) -> io::Result<()> {
    let host = &target.host;
    let reason = match first {
        FirstMessage::Other => "it is not TLS".to_owned(),
        FirstMessage::Tls { server_name: None } => match target.address() {
            Some(_) => return Ok(()),
            None => "the TLS handshake contains no name of a host (SNI)".to_owned(),
        },
        FirstMessage::Tls { server_name: Some(name) } => match parse_host(name) {
            Ok(name) if name == *host => return Ok(()),
            Ok(name) => format!("the TLS handshake is for another host, `{name}`"),
            Err(_) => "the TLS handshake is for another host".to_owned(),
        },
    };
    let refusal = context.refuse(format!(
        "The sandbox refused the connection to `{target}`: {reason}. Send a request with https:// \
         to `{host}`, without another name in its TLS handshake."
    ));
    Err(io::Error::other(refusal))
}

async fn decrypt(
    context: &Context,
    interception: &Interception,
    (target, stream): (&Target, Box<dyn Duplex>),
) -> io::Result<Box<dyn Duplex>> {
    let acceptor = interception.acceptor(&target.host.to_string())?;
    match timeout(context.timeouts.handshake, acceptor.accept(stream)).await? {
        Ok(stream) => Ok(Box::new(stream)),
        Err(error) => {
            let refusal = context.refuse(format!(
                "A TLS handshake with `{target}` has failed in the sandbox ({error}). The program \
                 must use HTTP/1.1 and trust the certificates in the file of the variable \
                 SSL_CERT_FILE."
            ));
            Err(io::Error::other(refusal))
        }
    }
}

/// Serves HTTP requests of a connection that is to one target.
async fn serve_target(context: &Arc<Context>, stream: Box<dyn Duplex>, target: Target) {
    let forwarder = Arc::new(Forwarder::new(Arc::clone(context), Some(target)));
    let answer = |request| {
        let forwarder = Arc::clone(&forwarder);
        async move { forwarder.answer(request).await }
    };
    serve_http(context, stream, answer).await;
}

/// Returns a stream from which these bytes are read first.
fn with_prefix(prefix: Vec<u8>, stream: Box<dyn Duplex>) -> Box<dyn Duplex> {
    let (reader, writer) = tokio::io::split(stream);
    Box::new(tokio::io::join(Cursor::new(prefix).chain(reader), writer))
}
