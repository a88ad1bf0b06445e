//! The local HTTP server that receives the redirect of the browser after an OAuth login.
//!
//! Invariant: the server listens on loopback only, serves a single path, and repeats no part of a
//! request in its response.

use std::io;
use std::net::Ipv4Addr;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use url::Url;

/// The only path that the callback server serves.
const CALLBACK_PATH: &str = "/callback";

/// Maximum length of a request to the callback server, in bytes.
const REQUEST_BYTES_MAX: usize = 16 * 1024;

/// Timeout for reading a request to the callback server.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// Delay after an error while accepting a connection.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// Maximum number of concurrent connections to the callback server.
const CONNECTIONS_MAX: usize = 16;

/// Local HTTP server that waits for the browser's redirect after a login.
#[derive(Debug)]
pub struct CallbackServer {
    listener: TcpListener,
    port: u16,
}

impl CallbackServer {
    /// Starts listening on this loopback port. `None` means any free port.
    pub async fn bind(port: Option<u16>) -> io::Result<Self> {
        let at = (Ipv4Addr::LOCALHOST, port.unwrap_or(0));
        let listener = TcpListener::bind(at).await?;
        let port = listener.local_addr()?.port();
        Ok(Self { listener, port })
    }

    /// Returns the redirect URI to register for the login.
    pub fn redirect_uri(&self) -> String {
        format!("http://127.0.0.1:{}{CALLBACK_PATH}", self.port)
    }

    /// Waits for a callback with this OAuth `state` and returns its URL. Dropping the future closes
    /// the connections that it has accepted.
    pub async fn wait_for_callback(&self, oauth_state: &str) -> String {
        let mut connections = FuturesUnordered::new();
        loop {
            tokio::select! {
                accepted = self.listener.accept(), if connections.len() < CONNECTIONS_MAX => {
                    match accepted {
                        Ok((stream, _)) => connections.push(timeout(READ_TIMEOUT, self.serve(stream, oauth_state))),
                        // The connection was closed at once, or too many files are open. Both are
                        // transient.
                        Err(_) => tokio::time::sleep(ACCEPT_RETRY_DELAY).await,
                    }
                }
                Some(result) = connections.next(), if !connections.is_empty() => {
                    // A connection without a valid callback does not end the wait.
                    if let Ok(Some(callback_url)) = result {
                        return callback_url;
                    }
                }
            }
        }
    }

    /// Serves one connection. Returns the callback URL if the request has the right path and OAuth
    /// `state`.
    async fn serve(&self, mut stream: TcpStream, state: &str) -> Option<String> {
        let head = read_request_head(&mut stream).await?;
        let target = head.strip_prefix("GET ").and_then(|rest| rest.split([' ', '\r']).next());
        let callback = target.filter(|target| target.split('?').next() == Some(CALLBACK_PATH));
        let url = callback.and_then(|target| {
            format!("http://127.0.0.1:{}{target}", self.port).parse::<Url>().ok()
        });
        let url_of_login = url.as_ref().filter(|url| {
            !state.is_empty()
                && url.query_pairs().any(|pair| pair == ("state".into(), state.into()))
        });
        let (status, message) = match (target, &url, url_of_login) {
            (None, ..) => ("405 Method Not Allowed", "Only GET is supported."),
            (_, None, _) => ("404 Not Found", "Not found."),
            (_, _, None) => {
                ("400 Bad Request", "This callback does not belong to a pending login.")
            }
            _ => ("200 OK", "Longhaul continues in the terminal. You can close this page."),
        };
        let page = format!(
            "HTTP/1.1 {status}\r\ncontent-type: text/plain; charset=utf-8\r\n\
             content-length: {}\r\ncache-control: no-store\r\nreferrer-policy: no-referrer\r\n\
             x-content-type-options: nosniff\r\nconnection: close\r\n\r\n{message}\n",
            message.len() + 1
        );
        // The callback is complete even if the browser does not wait for the page.
        _ = stream.write_all(page.as_bytes()).await;
        _ = stream.shutdown().await;
        url_of_login.map(Url::to_string)
    }
}

/// Reads the head of an HTTP request. `None` if the head is too long or incomplete.
async fn read_request_head(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    let mut buffer = [0; 2048];
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let count = stream.read(&mut buffer).await.ok().filter(|count| *count > 0)?;
        head.extend_from_slice(&buffer[..count]);
        if head.len() > REQUEST_BYTES_MAX {
            return None;
        }
    }
    String::from_utf8(head).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn send_request(port: u16, request: &str) -> String {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut response = String::new();
        // A request that is rejected before its end gets no response.
        _ = stream.read_to_string(&mut response).await;
        response
    }

    #[tokio::test]
    async fn only_a_callback_with_the_right_state_is_accepted() {
        let server = CallbackServer::bind(None).await.unwrap();
        let port = server.port;
        let clients = async {
            // A browser may open a connection in advance and send nothing.
            let _idle = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.unwrap();
            let oversized_request =
                format!("GET /callback?{} HTTP/1.1\r\n", "x".repeat(REQUEST_BYTES_MAX));
            for (request, status) in [
                ("GET / HTTP/1.1\r\n\r\n", "404"),
                ("POST /callback?state=s&code=c HTTP/1.1\r\n\r\n", "405"),
                ("GET /callback?state=other&code=c HTTP/1.1\r\n\r\n", "400"),
                ("GET /callback?code=c HTTP/1.1\r\n\r\n", "400"),
                ("GET /callbacks?state=s HTTP/1.1\r\n\r\n", "404"),
                (oversized_request.as_str(), ""),
                ("GET /callback?state=s&code=c HTTP/1.1\r\n\r\n", "200"),
            ] {
                let response = send_request(port, request).await;
                assert!(response.contains(status), "{request:.60} {response}");
                assert!(!response.contains("code=c"), "{response}");
            }
        };
        let (callback_url, ()) = tokio::join!(server.wait_for_callback("s"), clients);
        let expected = format!("http://127.0.0.1:{port}/callback?state=s&code=c");
        assert_eq!(callback_url, expected);
    }
}
