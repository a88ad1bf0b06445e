//! TLS of the egress proxy: the names in handshakes, and the certificates with which the proxy
//! decrypts requests to hosts that have a secret.
//!
//! Invariant: private keys exist only in memory.

use std::io;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::Acceptor;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::egress::hosts::Target;

/// Maximum length of the first message of a TLS handshake in bytes.
const HELLO_BYTES_MAX: usize = 32 * 1024;
/// First byte of a TLS handshake.
const HANDSHAKE_RECORD: u8 = 0x16;
/// Length of a line of a PEM file in bytes, as RFC 7468 requires it.
const PEM_LINE_BYTES: usize = 64;
/// The only protocol that is decrypted.
const HTTP_1_1: &[u8] = b"http/1.1";

/// What decrypts requests of programs and encrypts them again for the real host.
pub(super) struct Interception {
    /// Certificates that this machine trusts and that of the issuer.
    pub(super) ca_bundle_pem: String,
    issuer: Issuer<'static, KeyPair>,
    /// Key of all certificates of hosts.
    host_key: KeyPair,
    connector: TlsConnector,
}

impl std::fmt::Debug for Interception {
    /// Formats nothing of the keys.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Interception").finish_non_exhaustive()
    }
}

impl Interception {
    pub(super) fn new(roots: Vec<CertificateDer<'static>>) -> Result<Self, String> {
        let failed = |error: rcgen::Error| format!("can't create a certificate: {error}");
        let key = KeyPair::generate().map_err(failed)?;
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.distinguished_name.push(DnType::CommonName, "Longhaul sandbox");
        let certificate = params.self_signed(&key).map_err(failed)?;
        let mut ca_bundle_pem = String::new();
        let mut store = RootCertStore::empty();
        for root in &roots {
            push_pem(&mut ca_bundle_pem, root);
        }
        push_pem(&mut ca_bundle_pem, certificate.der());
        store.add_parsable_certificates(roots);
        if store.is_empty() {
            return Err(
                "this machine has no certificates to verify hosts with: install the package \
                        ca-certificates, or set SSL_CERT_FILE to a file with certificates"
                    .into(),
            );
        }
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| format!("can't configure TLS: {error}"))?;
        let mut config = config.with_root_certificates(store).with_no_client_auth();
        config.alpn_protocols = vec![HTTP_1_1.to_vec()];
        Ok(Self {
            ca_bundle_pem,
            issuer: Issuer::new(params, key),
            host_key: KeyPair::generate().map_err(failed)?,
            connector: TlsConnector::from(Arc::new(config)),
        })
    }

    /// Returns what accepts TLS connections in the name of a host.
    pub(super) fn acceptor(&self, host: &str) -> io::Result<TlsAcceptor> {
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let mut params = CertificateParams::new([host]).map_err(io::Error::other)?;
        // With the name of the issuer, the certificate would be taken for a self-signed one.
        params.distinguished_name.push(DnType::CommonName, "host of a Longhaul sandbox");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.use_authority_key_identifier_extension = true;
        let certificate = params.signed_by(&self.host_key, &self.issuer);
        let certificate = certificate.map_err(io::Error::other)?;
        let key = PrivateKeyDer::Pkcs8(self.host_key.serialize_der().into());
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .and_then(|config| {
                let chain = vec![certificate.der().clone()];
                config.with_no_client_auth().with_single_cert(chain, key)
            });
        let mut config = config.map_err(io::Error::other)?;
        config.alpn_protocols = vec![HTTP_1_1.to_vec()];
        Ok(TlsAcceptor::from(Arc::new(config)))
    }

    /// Encrypts a connection to a host, whose certificate is verified.
    pub(super) async fn connect(
        &self,
        target: &Target,
        stream: TcpStream,
    ) -> io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
        let name = match target.address() {
            Some(ip) => ServerName::from(ip),
            None => ServerName::try_from(target.host.to_string()).map_err(io::Error::other)?,
        };
        self.connector.connect(name, stream).await
    }
}

fn push_pem(pem: &mut String, certificate: &CertificateDer<'_>) {
    let text = STANDARD.encode(certificate);
    pem.push_str("-----BEGIN CERTIFICATE-----\n");
    let mut rest = text.as_str();
    while !rest.is_empty() {
        let (line, after) = rest.split_at(rest.len().min(PEM_LINE_BYTES));
        pem.push_str(line);
        pem.push('\n');
        rest = after;
    }
    pem.push_str("-----END CERTIFICATE-----\n");
}

/// What a program sends first in a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum FirstMessage {
    /// A TLS handshake with a host of this name. `None` if the handshake names no host.
    Tls { server_name: Option<String> },
    /// Something else, or nothing.
    Other,
}

/// Reads the first message of a program. `buffer` may contain its beginning and contains all bytes
/// read so far afterwards.
pub(super) async fn read_first_message(
    stream: &mut (impl AsyncRead + Unpin),
    buffer: &mut Vec<u8>,
) -> io::Result<FirstMessage> {
    let mut acceptor = Acceptor::default();
    let mut seen = 0;
    loop {
        if buffer.first().is_some_and(|byte| *byte != HANDSHAKE_RECORD) {
            return Ok(FirstMessage::Other);
        }
        while seen < buffer.len() {
            seen += acceptor.read_tls(&mut &buffer[seen..])?;
            match acceptor.accept() {
                Ok(None) => {}
                Ok(Some(accepted)) => {
                    let server_name = accepted.client_hello().server_name().map(str::to_owned);
                    return Ok(FirstMessage::Tls { server_name });
                }
                Err((error, _)) => return Err(io::Error::other(error)),
            }
        }
        if buffer.len() >= HELLO_BYTES_MAX {
            return Err(io::Error::other("the TLS handshake is too long"));
        }
        if stream.read_buf(buffer).await? == 0 {
            return Ok(FirstMessage::Other);
        }
    }
}
