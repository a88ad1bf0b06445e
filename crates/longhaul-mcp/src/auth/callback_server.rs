//! The door on this machine that a browser comes back to when somebody has logged in.
//!
//! Never: open to another machine, answers anything but its one path, and repeats
//! nothing of what it is told.

use std::io;
use std::net::Ipv4Addr;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use url::Url;

/// The one path.
const CALLBACK_PATH: &str = "/callback";

/// A request is no longer than this.
const REQUEST_BYTES_MAX: usize = 16 * 1024;

/// So long somebody has to say what they want.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// So long it is waited when nobody could be let in.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// So many are heard at once.
const CONNECTIONS_MAX: usize = 16;

/// Waits for a browser.
#[derive(Debug)]
pub struct CallbackServer {
    listener: TcpListener,
    port: u16,
}

impl CallbackServer {
    /// Opens the door at this port; none: at any that is free.
    pub async fn bind(port: Option<u16>) -> io::Result<Self> {
        let at = (Ipv4Addr::LOCALHOST, port.unwrap_or(0));
        let listener = TcpListener::bind(at).await?;
        let port = listener.local_addr()?.port();
        Ok(Self { listener, port })
    }

    /// Where a browser is sent.
    pub fn redirect_uri(&self) -> String {
        format!("http://127.0.0.1:{}{CALLBACK_PATH}", self.port)
    }

    /// Waits until a browser comes that brings this back, and says where it was sent.
    /// To wait anew is to hang up on whoever is being heard.
    pub async fn wait_for_callback(&self, state: &str) -> String {
        let mut guests = FuturesUnordered::new();
        loop {
            tokio::select! {
                came = self.listener.accept(), if guests.len() < CONNECTIONS_MAX => {
                    match came {
                        Ok((guest, _)) => guests.push(timeout(READ_TIMEOUT, self.serve(guest, state))),
                        // They hung up at once, or too much is open here: that passes.
                        Err(_) => tokio::time::sleep(ACCEPT_RETRY_DELAY).await,
                    }
                }
                Some(heard) = guests.next(), if !guests.is_empty() => {
                    // Who says nothing, or something else, is no reason to stop.
                    if let Ok(Some(led_to)) = heard {
                        return led_to;
                    }
                }
            }
        }
    }

    async fn serve(&self, mut guest: TcpStream, state: &str) -> Option<String> {
        let asked = read_head(&mut guest).await?;
        let led_to = self.parse_callback(&asked, state);
        let (status, words) = match &led_to {
            Ok(_) => ("200 OK", "Longhaul goes on in the terminal. This page can be closed."),
            Err(no) => *no,
        };
        let page = format!(
            "HTTP/1.1 {status}\r\ncontent-type: text/plain; charset=utf-8\r\n\
             content-length: {}\r\ncache-control: no-store\r\nreferrer-policy: no-referrer\r\n\
             x-content-type-options: nosniff\r\nconnection: close\r\n\r\n{words}\n",
            words.len() + 1
        );
        // Who does not wait for the page has said what they had to say.
        _ = guest.write_all(page.as_bytes()).await;
        _ = guest.shutdown().await;
        led_to.ok()
    }

    /// Where a browser was sent, if that is here and with what was asked for.
    fn parse_callback(
        &self,
        head: &str,
        state: &str,
    ) -> Result<String, (&'static str, &'static str)> {
        let mut words = head.lines().next().unwrap_or_default().split(' ');
        let (Some("GET"), Some(target)) = (words.next(), words.next()) else {
            return Err(("405 Method Not Allowed", "Nothing is done here but to come back."));
        };
        let nothing = ("404 Not Found", "There is nothing here.");
        if target.split('?').next() != Some(CALLBACK_PATH) {
            return Err(nothing);
        }
        let led_to = format!("http://127.0.0.1:{}{target}", self.port);
        let url: Url = led_to.parse().map_err(|_| nothing)?;
        let is_ours = url.query_pairs().any(|(key, value)| key == "state" && value == state);
        match is_ours && !state.is_empty() {
            true => Ok(led_to),
            false => Err(("400 Bad Request", "This belongs to no login that waits here.")),
        }
    }
}

/// The head of a request; none: it is too long, or there is none.
async fn read_head(guest: &mut TcpStream) -> Option<String> {
    let mut all = Vec::new();
    let mut some = [0; 2048];
    while !all.windows(4).any(|end| end == b"\r\n\r\n") {
        let count = guest.read(&mut some).await.ok().filter(|count| *count > 0)?;
        all.extend_from_slice(&some[..count]);
        if all.len() > REQUEST_BYTES_MAX {
            return None;
        }
    }
    String::from_utf8(all).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn send_request(at: u16, request: &str) -> String {
        let mut line = TcpStream::connect((Ipv4Addr::LOCALHOST, at)).await.unwrap();
        line.write_all(request.as_bytes()).await.unwrap();
        let mut said = String::new();
        // Who is turned away in the middle of a word hears nothing.
        _ = line.read_to_string(&mut said).await;
        said
    }

    #[tokio::test]
    async fn only_a_callback_with_the_right_state_is_accepted() {
        let door = CallbackServer::bind(None).await.unwrap();
        let port = door.port;
        let guests = async {
            // A browser that connects beforehand and says nothing.
            let _idle = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.unwrap();
            let long = format!("GET /callback?{} HTTP/1.1\r\n", "x".repeat(REQUEST_BYTES_MAX));
            for (request, status) in [
                ("GET / HTTP/1.1\r\n\r\n", "404"),
                ("POST /callback?state=s&code=c HTTP/1.1\r\n\r\n", "405"),
                ("GET /callback?state=other&code=c HTTP/1.1\r\n\r\n", "400"),
                ("GET /callback?code=c HTTP/1.1\r\n\r\n", "400"),
                ("GET /callbacks?state=s HTTP/1.1\r\n\r\n", "404"),
                (long.as_str(), ""),
                ("GET /callback?state=s&code=c HTTP/1.1\r\n\r\n", "200"),
            ] {
                let said = send_request(port, request).await;
                assert!(said.contains(status), "{request:.60} {said}");
                assert!(!said.contains("code=c"), "{said}");
            }
        };
        let (led_to, ()) = tokio::join!(door.wait_for_callback("s"), guests);
        let expect = format!("http://127.0.0.1:{port}/callback?state=s&code=c");
        assert_eq!(led_to, expect);
    }
}
