//! Forwarding of HTTP requests of programs to their hosts, with secrets in the place of placeholders.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt, Either, Full};
use hyper::body::{Body as _, Incoming};
use hyper::client::conn::http1::SendRequest;
use hyper::header::{
    CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue,
};
use hyper::http::uri::Scheme;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode, Version};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::egress::context::{Context, ProxyError};
use crate::egress::hosts::{HTTP_PORT, HTTPS_PORT, Target};

/// Maximum length of the header of a request or response in bytes.
const HEADER_BYTES_MAX: usize = 64 * 1024;
/// Maximum length of a request body in bytes in which placeholders are replaced.
const SEARCHED_BODY_BYTES_MAX: u64 = 1024 * 1024;
/// Headers that are about one connection and not forwarded, besides those that `Connection` lists.
const CONNECTION_HEADERS: [&str; 9] = [
    "connection",
    "expect",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "transfer-encoding",
    "upgrade",
];

/// The body of a request or response.
pub(super) type Body = Either<Incoming, Full<Bytes>>;

/// Forwards the HTTP requests of one connection.
pub(super) struct Forwarder {
    pub(super) context: Arc<Context>,
    /// Target of all requests, for `https://` unless its port is 80. `None` if each request contains
    /// its target, as in requests to a proxy.
    target: Option<Target>,
    link: Mutex<Option<Link>>,
}

/// A connection to the host of the last request.
struct Link {
    target: Target,
    sender: SendRequest<Body>,
    /// The task that reads from and writes to the connection.
    _task: JoinSet<()>,
}

impl Forwarder {
    pub(super) fn new(context: Arc<Context>, target: Option<Target>) -> Self {
        Self { context, target, link: Mutex::default() }
    }

    /// Returns the response of the host, or why there is none.
    pub(super) async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        match Box::pin(self.forward(request)).await {
            Ok(response) => response,
            Err(error) => error_response(&error),
        }
    }

    async fn forward(&self, request: Request<Incoming>) -> Result<Response<Body>, ProxyError> {
        let target = self.target_of(&request)?;
        self.context.check(&target)?;
        // Held until the response begins, because the body of the request can be in memory till then.
        let _slot = match self.context.secrets.is_empty() {
            true => None,
            false => self.context.body_slots.acquire().await.ok(),
        };
        let request = self.prepare(request, &target).await?;
        let failed = |error: hyper::Error| {
            ProxyError::Failed(format!("`{target}` did not answer the request: {error}"))
        };
        let mut last_link = self.link.lock().await;
        let mut link = match last_link.take() {
            Some(link) if link.target == target && !link.sender.is_closed() => link,
            _ => self.connect(&target).await?,
        };
        if link.sender.ready().await.is_err() {
            link = self.connect(&target).await?;
        }
        let response = link.sender.send_request(request).await.map_err(failed)?;
        *last_link = Some(link);
        let (mut parts, body) = response.into_parts();
        if parts.status == StatusCode::SWITCHING_PROTOCOLS {
            let message = format!("`{target}` switched to another protocol without being asked");
            return Err(ProxyError::Failed(message));
        }
        // Extensions contain the reason phrase, which could repeat a secret.
        parts.extensions.clear();
        parts.version = Version::HTTP_11;
        remove_connection_headers(&mut parts.headers);
        self.context.secrets.hide(&mut parts.headers);
        Ok(Response::from_parts(parts, Either::Left(body)))
    }

    fn target_of(&self, request: &Request<Incoming>) -> Result<Target, ProxyError> {
        let uri = request.uri();
        let Some(target) = &self.target else {
            let authority = uri.authority().filter(|_| uri.scheme() == Some(&Scheme::HTTP));
            let authority = authority.ok_or_else(|| {
                let message = "this is the proxy of a sandbox: it expects CONNECT or a request with \
                               a URL that begins with http://";
                ProxyError::Invalid(message.into())
            })?;
            return Target::parse(authority.as_str(), Some(HTTP_PORT)).map_err(|reason| {
                ProxyError::Invalid(format!("the host of the URL is invalid: {reason}"))
            });
        };
        let host = request.headers().get(HOST).and_then(|host| host.to_str().ok());
        let host = uri.authority().map(|authority| authority.as_str()).or(host);
        // The server could serve several hosts and chooses by the header.
        match host.map(|host| Target::parse(host, Some(target.port))) {
            Some(Ok(host)) if host == *target => Ok(host),
            _ => Err(self.context.refuse(format!(
                "The sandbox refused a request to `{target}`: its header `Host` is missing or \
                 contains another host. Send the request directly to the host that it is for."
            ))),
        }
    }

    /// Returns the request to send to the target.
    async fn prepare(
        &self,
        request: Request<Incoming>,
        target: &Target,
    ) -> Result<Request<Body>, ProxyError> {
        let (mut parts, body) = request.into_parts();
        remove_connection_headers(&mut parts.headers);
        parts.extensions.clear();
        parts.version = Version::HTTP_11;
        let is_secure = self.is_secure(target);
        parts.headers.insert(HOST, host_header(target, is_secure)?);
        let body = match self.context.secrets.is_empty() {
            true => Either::Left(body),
            false => read_small_body(body).await?,
        };
        let mut replacement = self.context.secrets.replacement(target, is_secure);
        let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
        let path = replacement.url(path).unwrap_or_else(|| path.to_owned());
        parts.uri = path.parse().map_err(|_| {
            ProxyError::Invalid("the URL is invalid or, with its secrets, too long".into())
        })?;
        let invalid_header = replacement.headers(&mut parts.headers).err();
        let body = match body {
            Either::Left(body) => Either::Left(body),
            Either::Right(bytes) => {
                let replaced = replacement.body(&parts.headers, &bytes).map(Bytes::from);
                if let Some(replaced) = &replaced {
                    parts.headers.insert(CONTENT_LENGTH, replaced.len().into());
                }
                Either::Right(Full::new(replaced.unwrap_or(bytes)))
            }
        };
        let kept = std::mem::take(&mut replacement.kept);
        for sentence in kept.into_iter().chain(invalid_header.clone()) {
            self.context.refuse(sentence);
        }
        match invalid_header {
            Some(message) => Err(ProxyError::Refused(message)),
            None => Ok(Request::from_parts(parts, body)),
        }
    }

    const fn is_secure(&self, target: &Target) -> bool {
        self.target.is_some() && target.port != HTTP_PORT
    }

    async fn connect(&self, target: &Target) -> Result<Link, ProxyError> {
        let stream = self.context.connect(target).await?;
        match (&self.context.interception, self.is_secure(target)) {
            (Some(interception), true) => {
                let limit = self.context.timeouts.connect;
                let result = timeout(limit, interception.connect(target, stream)).await;
                let result = result.unwrap_or_else(|error| Err(error.into()));
                let stream = result.map_err(|error| {
                    ProxyError::Failed(format!("the TLS handshake with `{target}` failed: {error}"))
                })?;
                Link::open(target, stream).await
            }
            (None, _) | (Some(_), false) => Link::open(target, stream).await,
        }
    }
}

impl Link {
    async fn open<S>(target: &Target, stream: S) -> Result<Self, ProxyError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let mut builder = hyper::client::conn::http1::Builder::new();
        builder.max_buf_size(HEADER_BYTES_MAX);
        let (sender, connection) =
            builder.handshake(TokioIo::new(stream)).await.map_err(|error| {
                ProxyError::Failed(format!("the connection to `{target}` failed: {error}"))
            })?;
        let mut task = JoinSet::new();
        task.spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection of the egress proxy has failed");
            }
        });
        Ok(Self { target: target.clone(), sender, _task: task })
    }
}

/// Serves the HTTP requests of a connection until it ends or a CONNECT request was accepted.
pub(super) async fn serve_http<S, A, F>(context: &Context, stream: S, answer: A)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    A: Fn(Request<Incoming>) -> F,
    F: Future<Output = Response<Body>>,
{
    let answer = |request| {
        let response = answer(request);
        async { Ok::<_, Infallible>(response.await) }
    };
    let mut builder = hyper::server::conn::http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(context.timeouts.handshake)
        .max_buf_size(HEADER_BYTES_MAX);
    let connection = builder.serve_connection(TokioIo::new(stream), service_fn(answer));
    if let Err(error) = connection.with_upgrades().await {
        tracing::debug!(%error, "a connection from a sandbox has failed");
    }
}

pub(super) fn error_response(error: &ProxyError) -> Response<Body> {
    let mut response = Response::new(text_body(&format!("{error}\n")));
    *response.status_mut() = error.status();
    let content_type = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}

pub(super) fn text_body(text: &str) -> Body {
    Either::Right(Full::new(Bytes::copy_from_slice(text.as_bytes())))
}

/// Reads a body whose length is known and small.
async fn read_small_body(body: Incoming) -> Result<Either<Incoming, Bytes>, ProxyError> {
    match body.size_hint().exact() {
        Some(length) if length <= SEARCHED_BODY_BYTES_MAX => match body.collect().await {
            Ok(body) => Ok(Either::Right(body.to_bytes())),
            Err(error) => {
                Err(ProxyError::Invalid(format!("the body of the request is incomplete: {error}")))
            }
        },
        Some(_) | None => Ok(Either::Left(body)),
    }
}

fn host_header(target: &Target, is_secure: bool) -> Result<HeaderValue, ProxyError> {
    let default_port = if is_secure { HTTPS_PORT } else { HTTP_PORT };
    let host = match target.port == default_port {
        true => target.host.to_string(),
        false => target.to_string(),
    };
    HeaderValue::from_str(&host).map_err(|error| ProxyError::Invalid(error.to_string()))
}

fn remove_connection_headers(headers: &mut HeaderMap) {
    let listed = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let listed: Vec<_> = listed
        .flat_map(|value| value.split(','))
        .filter_map(|name| HeaderName::from_bytes(name.trim().as_bytes()).ok())
        .collect();
    for name in listed {
        headers.remove(name);
    }
    for name in CONNECTION_HEADERS {
        headers.remove(name);
    }
}
