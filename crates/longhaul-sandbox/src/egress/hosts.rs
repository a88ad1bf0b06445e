//! The list of hosts that programs in a sandbox may reach.
//!
//! Invariant: private and reserved addresses are reached only if an entry contains the address, or
//! `localhost`, together with the port.

use std::net::IpAddr;

use longhaul_core::net::{NetworkZone, zone};
use url::Host;

pub(super) const HTTP_PORT: u16 = 80;
pub(super) const HTTPS_PORT: u16 = 443;
/// Ports of an entry without a port.
const DEFAULT_PORTS: [u16; 2] = [HTTP_PORT, HTTPS_PORT];
/// Maximum number of entries of a list.
const ENTRIES_MAX: usize = 256;
/// Maximum length of the name of a host in bytes, as DNS defines it.
const NAME_BYTES_MAX: usize = 253;

/// Hosts of the preset `packages`: the registries of cargo, npm, pip, Go, Debian and Ubuntu.
const PACKAGES: [&str; 16] = [
    "crates.io",
    "index.crates.io",
    "static.crates.io",
    "registry.npmjs.org",
    "registry.yarnpkg.com",
    "pypi.org",
    "files.pythonhosted.org",
    "proxy.golang.org",
    "sum.golang.org",
    "deb.debian.org",
    "security.debian.org",
    "archive.ubuntu.com",
    "*.archive.ubuntu.com",
    "security.ubuntu.com",
    "ports.ubuntu.com",
    "esm.ubuntu.com",
];
/// Hosts of the preset `github`.
const GITHUB: [&str; 8] = [
    "github.com",
    "api.github.com",
    "codeload.github.com",
    "uploads.github.com",
    "raw.githubusercontent.com",
    "media.githubusercontent.com",
    "objects.githubusercontent.com",
    "release-assets.githubusercontent.com",
];

/// The hosts that programs in a sandbox may reach.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostList {
    allowed: Vec<HostRule>,
    denied: Vec<HostRule>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct HostRule {
    pattern: HostPattern,
    /// `None` means the default ports in a rule that allows, and all ports in a rule that denies.
    port: Option<u16>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum HostPattern {
    Host(Host),
    /// Every subdomain of the domain that this suffix, which begins with a dot, is about.
    Subdomains(String),
}

/// Addresses of an allowed host that the proxy may connect to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AllowedAddresses {
    Public,
    /// Every address, because the list contains the address itself.
    All,
}

impl HostList {
    /// Parses the entries of a list:
    ///
    /// - `example.com` allows the host at the ports 80 and 443, and `example.com:8443` at this port.
    /// - `*.example.com` allows all subdomains, but not `example.com`.
    /// - `10.0.0.5:5432` and `localhost:5432` allow an address that is not public. Names are never
    ///   resolved to such addresses.
    /// - `packages` and `github` are presets.
    /// - An entry that begins with `!` is refused, even if another entry allows it.
    ///
    /// # Errors
    ///
    /// The message quotes the invalid entry and shows an example.
    pub fn parse(entries: &[String]) -> Result<Self, String> {
        if entries.len() > ENTRIES_MAX {
            return Err(format!(
                "the list has {} hosts, at most {ENTRIES_MAX} are possible: combine hosts with \
                 `*.example.com`",
                entries.len()
            ));
        }
        let mut list = Self::default();
        for entry in entries {
            let text = entry.trim();
            let (text, rules) = match text.strip_prefix('!') {
                Some(text) => (text.trim_start(), &mut list.denied),
                None => (text, &mut list.allowed),
            };
            let is_denied = text.len() < entry.trim().len();
            let parse = |text: &str| {
                HostRule::parse(text, is_denied).map_err(|reason| {
                    let entry: String = entry.chars().take(100).collect();
                    format!(
                        "`{entry}` is not a valid entry of a list of hosts: {reason}; valid are, for \
                         example, `example.com`, `*.example.com`, `example.com:8443`, \
                         `10.0.0.5:5432`, `!private.example.com`, `packages` and `github`"
                    )
                })
            };
            match text {
                "packages" => rules.extend(PACKAGES.into_iter().flat_map(parse)),
                "github" => rules.extend(GITHUB.into_iter().flat_map(parse)),
                text => rules.push(parse(text)?),
            }
        }
        Ok(list)
    }

    /// Returns whether the list allows this host, a name or an IP address, at this port.
    pub fn allows(&self, host: &str, port: u16) -> bool {
        parse_host(host).is_ok_and(|host| self.access(&Target { host, port }).is_ok())
    }

    /// Returns whether the list contains a rule that allows this host at some port.
    pub(super) fn mentions(&self, host: &str) -> bool {
        let host = parse_host(host);
        host.is_ok_and(|host| self.allowed.iter().any(|rule| rule.pattern.matches(&host)))
    }

    /// Returns which addresses of a target are allowed. The error is the end of a sentence that
    /// explains why there are none.
    pub(super) fn access(&self, target: &Target) -> Result<AllowedAddresses, String> {
        let Target { host, port } = target;
        let mut denied = self.denied.iter();
        if denied.any(|rule| rule.pattern.matches(host) && rule.port.is_none_or(|p| p == *port)) {
            return Err("an entry with `!` in the list of hosts forbids this host".into());
        }
        let mut at_host = self.allowed.iter().filter(|rule| rule.pattern.matches(host)).peekable();
        let is_mentioned = at_host.peek().is_some();
        let is_allowed = at_host.any(|rule| match rule.port {
            None => DEFAULT_PORTS.contains(port),
            Some(allowed) => allowed == *port,
        });
        match (is_allowed, is_mentioned) {
            (true, _) if is_localhost(host) => Ok(AllowedAddresses::All),
            (true, _) => Ok(match host {
                Host::Domain(_) => AllowedAddresses::Public,
                Host::Ipv4(_) | Host::Ipv6(_) => AllowedAddresses::All,
            }),
            (false, true) => Err(format!("the list of hosts does not allow port {port}")),
            (false, false) => Err("the host is not in the list of hosts".into()),
        }
    }
}

impl HostRule {
    fn parse(text: &str, is_denied: bool) -> Result<Self, String> {
        if text.contains("//") || text.contains('/') {
            return Err("it is a URL or a path, and only a host is possible".into());
        }
        let (host, port) = split_port(text)?;
        let pattern = match host.strip_prefix("*.") {
            _ if host == "*" => return Err("it allows all hosts; list the hosts one by one".into()),
            Some(domain) => match parse_host(domain)? {
                Host::Domain(domain) if domain.contains('.') => {
                    HostPattern::Subdomains(format!(".{domain}"))
                }
                Host::Domain(_) => return Err("it allows a whole top-level domain".into()),
                Host::Ipv4(_) | Host::Ipv6(_) => {
                    return Err("an IP address has no subdomains".into());
                }
            },
            None => HostPattern::Host(parse_host(host)?),
        };
        if let (HostPattern::Host(host), None, false) = (&pattern, port, is_denied) {
            let is_public = match address(host) {
                Some(ip) => zone(ip) == NetworkZone::Public,
                None => !is_localhost(host),
            };
            if !is_public {
                return Err(format!(
                    "an address that is not public needs its port, such as `{host}:5432`"
                ));
            }
        }
        if let HostPattern::Host(host @ Host::Domain(name)) = &pattern
            && !name.contains('.')
            && !is_localhost(host)
        {
            return Err("it is neither a preset nor the full name of a host".into());
        }
        Ok(Self { pattern, port })
    }
}

impl HostPattern {
    fn matches(&self, host: &Host) -> bool {
        match (self, host) {
            (Self::Host(allowed), host) => allowed == host,
            (Self::Subdomains(suffix), Host::Domain(name)) => name.ends_with(suffix.as_str()),
            (Self::Subdomains(_), Host::Ipv4(_) | Host::Ipv6(_)) => false,
        }
    }
}

/// A host and a port that a program in a sandbox wants to connect to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    /// Normalised host: a name is in lower case and without the dot at its end.
    pub(super) host: Host,
    pub(super) port: u16,
}

impl Target {
    /// Parses `host:port`, or `host` if there is a default port.
    pub(super) fn parse(text: &str, default_port: Option<u16>) -> Result<Self, String> {
        let (host, port) = split_port(text)?;
        let port = port.or(default_port).ok_or("the port is missing")?;
        Ok(Self { host: parse_host(host)?, port })
    }

    /// Returns the IP address of a target that is not a name.
    pub(super) fn address(&self) -> Option<IpAddr> {
        address(&self.host)
    }

    pub(super) fn is_localhost(&self) -> bool {
        is_localhost(&self.host)
    }

    /// Returns the entry of a list of hosts that allows this target.
    pub(super) fn list_entry(&self) -> String {
        let is_public = self.address().is_none_or(|ip| zone(ip) == NetworkZone::Public);
        match is_public && !self.is_localhost() && DEFAULT_PORTS.contains(&self.port) {
            true => self.host.to_string(),
            false => self.to_string(),
        }
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

fn address(host: &Host) -> Option<IpAddr> {
    match host {
        Host::Domain(_) => None,
        Host::Ipv4(ip) => Some((*ip).into()),
        Host::Ipv6(ip) => Some((*ip).into()),
    }
}

fn is_localhost(host: &Host) -> bool {
    matches!(host, Host::Domain(name) if name == "localhost")
}

/// Splits `host`, `host:port`, `[ipv6]`, `[ipv6]:port` or `ipv6`.
fn split_port(text: &str) -> Result<(&str, Option<u16>), String> {
    let (host, port) = match (text.rsplit_once(':'), text.ends_with(']')) {
        (Some((host, port)), false) if !host.contains(':') || host.ends_with(']') => {
            (host, Some(port))
        }
        _ => (text, None),
    };
    let port = match port.map(|port| port.parse::<u16>().ok().filter(|port| *port > 0)) {
        Some(None) => return Err("its port is not a number between 1 and 65535".into()),
        Some(Some(port)) => Some(port),
        None => None,
    };
    Ok((host, port))
}

/// Parses a name or an IP address, with or without brackets, and normalises it.
pub(super) fn parse_host(text: &str) -> Result<Host, String> {
    let invalid = || "it contains something that is not the name of a host".to_owned();
    if text.len() > NAME_BYTES_MAX {
        return Err("the name of the host is too long".into());
    }
    if let Ok(ip) = text.parse() {
        return Ok(Host::Ipv6(ip));
    }
    let host = Host::parse(text).map_err(|_| invalid())?;
    let Host::Domain(name) = host else {
        return Ok(host);
    };
    let name = name.strip_suffix('.').unwrap_or(&name);
    let is_valid = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_.".contains(c);
    match name.len() <= NAME_BYTES_MAX
        && name.chars().all(is_valid)
        && name.split('.').all(|label| (1..=63).contains(&label.len()))
    {
        true => Ok(Host::Domain(name.to_owned())),
        false => Err(invalid()),
    }
}
