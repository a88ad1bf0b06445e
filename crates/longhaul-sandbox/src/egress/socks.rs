//! The handshake of SOCKS5 (RFC 1928): no authentication, and only connections.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::egress::context::ProxyError;
use crate::egress::hosts::{Target, parse_host};

/// Version byte that every message begins with.
pub(super) const VERSION: u8 = 5;
const NO_AUTHENTICATION: u8 = 0;
const NO_ACCEPTABLE_METHOD: u8 = 0xff;
const CONNECT: u8 = 1;
const COMMAND_NOT_SUPPORTED: u8 = 7;
const ADDRESS_TYPE_NOT_SUPPORTED: u8 = 8;

/// Reads the handshake after its first byte. Returns what to connect to, which must be answered with
/// [`reply`].
pub(super) async fn read_target(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
) -> io::Result<Result<Target, ProxyError>> {
    let invalid = |message: &str| io::Error::new(io::ErrorKind::InvalidData, message.to_owned());
    let mut methods = vec![0; stream.read_u8().await?.into()];
    stream.read_exact(&mut methods).await?;
    if !methods.contains(&NO_AUTHENTICATION) {
        stream.write_all(&[VERSION, NO_ACCEPTABLE_METHOD]).await?;
        return Err(invalid("the program requires authentication"));
    }
    stream.write_all(&[VERSION, NO_AUTHENTICATION]).await?;
    let mut request = [0; 4];
    stream.read_exact(&mut request).await?;
    let [VERSION, command, 0, address_type] = request else {
        return Err(invalid("the request is malformed"));
    };
    if command != CONNECT {
        write_reply(stream, COMMAND_NOT_SUPPORTED).await?;
        return Err(invalid("the command is not CONNECT"));
    }
    let host = match address_type {
        1 => Ipv4Addr::from(stream.read_u32().await?).to_string(),
        3 => {
            let mut name = vec![0; stream.read_u8().await?.into()];
            stream.read_exact(&mut name).await?;
            String::from_utf8_lossy(&name).into_owned()
        }
        4 => Ipv6Addr::from(stream.read_u128().await?).to_string(),
        _ => {
            write_reply(stream, ADDRESS_TYPE_NOT_SUPPORTED).await?;
            return Err(invalid("the type of the address is unknown"));
        }
    };
    let port = stream.read_u16().await?;
    let host = parse_host(&host).map_err(ProxyError::Invalid);
    Ok(host.map(|host| Target { host, port }))
}

/// Answers the request to connect.
pub(super) async fn reply<T>(
    stream: &mut (impl AsyncWrite + Unpin),
    result: &Result<T, ProxyError>,
) -> io::Result<()> {
    let code = match result {
        Ok(_) => 0,
        Err(ProxyError::Refused(_)) => 2,
        Err(ProxyError::Failed(_)) => 4,
        Err(ProxyError::Invalid(_)) => 1,
    };
    write_reply(stream, code).await
}

async fn write_reply(stream: &mut (impl AsyncWrite + Unpin), code: u8) -> io::Result<()> {
    // The address that the proxy connects from is unknown to the program: 0.0.0.0:0.
    stream.write_all(&[VERSION, code, 0, 1, 0, 0, 0, 0, 0, 0]).await
}
