//! The doors that the owner of a project opens beyond what is open to all:
//! further ports, and hosts inside the house.
//!
//! Never: opened by a model, or wider than the owner spelled it out.

use std::net::IpAddr;

use url::Host;

/// The ports that are open without a word.
const DEFAULT_PORTS: [u16; 2] = [80, 443];

/// What may be asked beyond the public hosts at the ports of HTTP.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Allowlist {
    rules: Vec<AllowRule>,
    /// Private and loopback addresses are open, at every port.
    allow_private: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct AllowRule {
    host: HostPattern,
    ports: PortPattern,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum HostPattern {
    /// Everybody.
    All,
    /// Every name below this one.
    Subdomains(String),
    /// This name.
    Name(String),
    /// This address.
    Address(IpAddr),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PortPattern {
    Default,
    Single(u16),
    All,
}

/// How far a host may be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Grant {
    /// At its public addresses.
    Public,
    /// Also inside the house.
    Private,
    /// Whatever its address is: it is spelled out.
    Listed,
}

impl Allowlist {
    /// The doors of these words: `example.com:8443`, `*.example.com:8443`, `*:8080`,
    /// `127.0.0.1:8080`, `[::1]:*`. Without a port they mean 80 and 443. A whole
    /// name or an address is open even if it is private; a `*` opens only ports.
    pub fn new<'a>(
        allow: impl IntoIterator<Item = &'a str>,
        allow_private: bool,
    ) -> Result<Self, AllowlistError> {
        let doors = allow.into_iter().map(AllowRule::parse).collect::<Result<_, _>>()?;
        Ok(Self { rules: doors, allow_private })
    }

    /// Whether this host may be asked at this port, and how far; or why not.
    pub(super) fn grant(
        &self,
        host: &Host<&str>,
        port: u16,
        private: bool,
    ) -> Result<Grant, String> {
        let fits = self.rules.iter().filter(|door| door.matches(host, port));
        let mut fits = fits.peekable();
        let is_open = fits.peek().is_some();
        if fits.any(|door| matches!(door.host, HostPattern::Name(_) | HostPattern::Address(_))) {
            return Ok(Grant::Listed);
        }
        if private || self.allow_private {
            return Ok(Grant::Private);
        }
        match is_open || DEFAULT_PORTS.contains(&port) {
            true => Ok(Grant::Public),
            false => Err(format!(
                "port {port} is not open; the ports are 80 and 443, and what \
                 `allow` under [outbound] in longhaul.toml lists"
            )),
        }
    }
}

impl AllowRule {
    fn parse(text: &str) -> Result<Self, AllowlistError> {
        let bad = || AllowlistError(text.chars().take(200).collect());
        let text = text.trim();
        let (host, port) = match (text.strip_prefix('['), text.rsplit_once(':')) {
            (Some(rest), _) => match rest.split_once(']').ok_or_else(bad)? {
                (host, "") => (host, None),
                (host, port) => (host, Some(port.strip_prefix(':').ok_or_else(bad)?)),
            },
            // More than one colon: an address of the new kind without a port.
            (None, Some((host, port))) if !host.contains(':') => (host, Some(port)),
            (None, _) => (text, None),
        };
        let ports = match port {
            None => PortPattern::Default,
            Some("*") => PortPattern::All,
            Some(port) => match port.parse() {
                Ok(port @ 1..) => PortPattern::Single(port),
                Ok(0) | Err(_) => return Err(bad()),
            },
        };
        Ok(Self { host: HostPattern::parse(host).ok_or_else(bad)?, ports })
    }

    fn matches(&self, host: &Host<&str>, port: u16) -> bool {
        let at_port = match self.ports {
            PortPattern::Default => DEFAULT_PORTS.contains(&port),
            PortPattern::Single(open) => open == port,
            PortPattern::All => true,
        };
        at_port && self.host.matches(host)
    }
}

impl HostPattern {
    fn parse(text: &str) -> Option<Self> {
        if text == "*" {
            return Some(Self::All);
        }
        if let Ok(ip) = text.parse() {
            return Some(Self::Address(ip));
        }
        let (below, name) = match text.strip_prefix("*.") {
            Some(name) => (true, name),
            None => (false, text),
        };
        match (Host::parse(name).ok()?, below) {
            (Host::Domain(name), _)
                if name.contains('*') || without_trailing_dot(&name).is_empty() =>
            {
                None
            }
            (Host::Domain(name), true) => {
                Some(Self::Subdomains(format!(".{}", without_trailing_dot(&name))))
            }
            (Host::Domain(name), false) => Some(Self::Name(without_trailing_dot(&name).to_owned())),
            (Host::Ipv4(ip), false) => Some(Self::Address(ip.into())),
            (Host::Ipv6(ip), false) => Some(Self::Address(ip.into())),
            (Host::Ipv4(_) | Host::Ipv6(_), true) => None,
        }
    }

    fn matches(&self, host: &Host<&str>) -> bool {
        match (self, host) {
            (Self::All, _) => true,
            (Self::Subdomains(end), Host::Domain(name)) => {
                without_trailing_dot(name).ends_with(end.as_str())
            }
            (Self::Name(open), Host::Domain(name)) => without_trailing_dot(name) == open,
            (Self::Address(IpAddr::V4(open)), Host::Ipv4(ip)) => open == ip,
            (Self::Address(IpAddr::V6(open)), Host::Ipv6(ip)) => open == ip,
            (Self::Subdomains(_) | Self::Name(_) | Self::Address(_), _) => false,
        }
    }
}

/// The name without the dot that says that it is whole.
fn without_trailing_dot(name: &str) -> &str {
    name.strip_suffix('.').unwrap_or(name)
}

/// A word that opens no door.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` names no host: write `example.com`, `*.example.com`, `127.0.0.1:8080`, \
     `[::1]:8080`, `example.com:*` or `*:8080`"
)]
pub struct AllowlistError(pub String);

#[cfg(test)]
mod tests {
    use super::*;

    fn check(allow: &[&str], url: &str, expected: Option<Grant>) {
        let doors = Allowlist::new(allow.iter().copied(), false).unwrap();
        let url = url::Url::parse(url).unwrap();
        let port = url.port_or_known_default().unwrap();
        let pass = doors.grant(&url.host().unwrap(), port, false);
        assert_eq!(pass.ok(), expected, "{allow:?} {url}");
    }

    #[test]
    fn allow_rules_match_their_hosts_and_ports() {
        let (public, named) = (Some(Grant::Public), Some(Grant::Listed));
        check(&[], "http://a.example/", public);
        check(&[], "https://a.example/", public);
        check(&[], "http://a.example:8080/", None);
        check(&["a.example"], "http://A.example./", named);
        check(&["a.example"], "http://a.example:8080/", None);
        check(&["a.example:8080"], "http://a.example:8080/", named);
        check(&["a.example:8080"], "http://a.example/", public);
        check(&["a.example:*"], "http://a.example:9/", named);
        check(&["*.example:8080"], "http://a.example:8080/", public);
        check(&["*.example:8080"], "http://example:8080/", None);
        check(&["*.example:8080"], "http://badexample:8080/", None);
        check(&["*:8080"], "http://any.example:8080/", public);
        check(&["127.0.0.1:8080"], "http://0x7f.1:8080/", named);
        check(&["127.0.0.1:8080"], "http://127.0.0.2:8080/", None);
        check(&["[::1]:8080"], "http://[0:0::1]:8080/", named);
        check(&["::1"], "http://[::1]/", named);
        check(&["bücher.example"], "http://b%C3%BCcher.example/", named);
        let doors = Allowlist::new([], true).unwrap();
        let pass = |private| doors.grant(&Host::Domain("x"), 9, private);
        assert_eq!(pass(false), Ok(Grant::Private));
        let pass = Allowlist::default().grant(&Host::Domain("x"), 9, true);
        assert_eq!(pass, Ok(Grant::Private));
    }

    #[test]
    fn invalid_allow_rules_are_rejected() {
        for bad in [
            "",
            " ",
            ":80",
            "a:",
            "a:0",
            "a:99999",
            "a:x",
            "http://a",
            "a/b",
            "*.*",
            "a.*",
            "*.127.0.0.1",
            "[::1",
            "[::1]80",
            "*.",
            "a b",
            "user@a",
        ] {
            let no = Allowlist::new([bad], false);
            assert!(no.is_err(), "{bad:?} {no:?}");
        }
    }
}
