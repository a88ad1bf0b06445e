//! The allowlist of outbound requests: additional ports and private hosts.
//!
//! Invariant: only the owner of a project can extend the allowlist, and an entry allows nothing
//! beyond the host and port it names.

use std::ops::RangeInclusive;

use url::Host;

/// Ports that outbound requests may always use.
const DEFAULT_PORTS: [u16; 2] = [80, 443];

/// Hosts and ports that outbound requests may use besides public hosts at the default ports.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Allowlist {
    rules: Vec<AllowRule>,
    /// Whether private and loopback addresses are allowed for every host, at every port.
    allow_private: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct AllowRule {
    host: HostPattern,
    /// The allowed ports. `None` means the default ports.
    ports: Option<RangeInclusive<u16>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum HostPattern {
    /// Every host name and address.
    All,
    /// Every subdomain of this host name.
    Subdomains(String),
    /// The host with exactly this name or address.
    Host(Host),
}

/// Which addresses of a host an outbound request may connect to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AllowedAddresses {
    /// Only public addresses are allowed.
    Public,
    /// Public and private addresses are allowed.
    Private,
    /// Every address is allowed, because the host is listed explicitly.
    Listed,
}

impl Allowlist {
    /// Parses allowlist entries such as `example.com:8443`, `*.example.com:8443`, `*:8080`,
    /// `127.0.0.1:8080`, `[::1]:*`. An entry without a port means 80 and 443. A full host name or
    /// an IP address is allowed even if it is private; a `*` only allows ports.
    pub fn new<'a>(
        allow: impl IntoIterator<Item = &'a str>,
        allow_private: bool,
    ) -> Result<Self, AllowlistError> {
        let rules = allow.into_iter().map(AllowRule::parse).collect::<Result<_, _>>()?;
        Ok(Self { rules, allow_private })
    }

    /// Returns which addresses of this host are allowed at this port. `private` means that this
    /// request may use private addresses. The error says why no address is allowed.
    pub(super) fn allowed_addresses(
        &self,
        host: &Host<&str>,
        port: u16,
        private: bool,
    ) -> Result<AllowedAddresses, String> {
        let matching_rules = self.rules.iter().filter(|rule| rule.matches(host, port));
        let mut matching_rules = matching_rules.peekable();
        let has_matching_rule = matching_rules.peek().is_some();
        if matching_rules.any(|rule| matches!(rule.host, HostPattern::Host(_))) {
            return Ok(AllowedAddresses::Listed);
        }
        if private || self.allow_private {
            return Ok(AllowedAddresses::Private);
        }
        match has_matching_rule || DEFAULT_PORTS.contains(&port) {
            true => Ok(AllowedAddresses::Public),
            false => Err(format!(
                "port {port} is not allowed; allowed are 80, 443 and the ports that \
                 `allow` under [outbound] in longhaul.toml lists"
            )),
        }
    }
}

impl AllowRule {
    fn parse(text: &str) -> Result<Self, AllowlistError> {
        let invalid_rule = || AllowlistError(text.chars().take(200).collect());
        let text = text.trim();
        let (host, port) = match (text.strip_prefix('['), text.rsplit_once(':')) {
            (Some(rest), _) => match rest.split_once(']').ok_or_else(invalid_rule)? {
                (host, "") => (host, None),
                (host, port) => (host, Some(port.strip_prefix(':').ok_or_else(invalid_rule)?)),
            },
            // More than one colon: an IPv6 address without a port.
            (None, Some((host, port))) if !host.contains(':') => (host, Some(port)),
            (None, _) => (text, None),
        };
        let ports = match port {
            None => None,
            Some("*") => Some(0..=u16::MAX),
            Some(port) => match port.parse() {
                Ok(port @ 1..) => Some(port..=port),
                Ok(0) | Err(_) => return Err(invalid_rule()),
            },
        };
        Ok(Self { host: HostPattern::parse(host).ok_or_else(invalid_rule)?, ports })
    }

    fn matches(&self, host: &Host<&str>, port: u16) -> bool {
        let is_port_allowed = match &self.ports {
            None => DEFAULT_PORTS.contains(&port),
            Some(ports) => ports.contains(&port),
        };
        is_port_allowed && self.host.matches(host)
    }
}

impl HostPattern {
    fn parse(text: &str) -> Option<Self> {
        if text == "*" {
            return Some(Self::All);
        }
        if let Ok(ip) = text.parse() {
            return Some(Self::Host(Host::Ipv6(ip)));
        }
        let (is_wildcard, name) = match text.strip_prefix("*.") {
            Some(name) => (true, name),
            None => (false, text),
        };
        match Host::parse(name).ok()? {
            Host::Domain(name) => {
                let name = without_trailing_dot(&name);
                match (name.contains('*') || name.is_empty(), is_wildcard) {
                    (true, _) => None,
                    (false, true) => Some(Self::Subdomains(format!(".{name}"))),
                    (false, false) => Some(Self::Host(Host::Domain(name.to_owned()))),
                }
            }
            address @ (Host::Ipv4(_) | Host::Ipv6(_)) => {
                (!is_wildcard).then_some(Self::Host(address))
            }
        }
    }

    fn matches(&self, host: &Host<&str>) -> bool {
        match (self, host) {
            (Self::All, _) => true,
            (Self::Subdomains(end), Host::Domain(name)) => {
                without_trailing_dot(name).ends_with(end.as_str())
            }
            (Self::Host(Host::Domain(allowed)), Host::Domain(name)) => {
                without_trailing_dot(name) == allowed
            }
            (Self::Host(Host::Ipv4(allowed)), Host::Ipv4(ip)) => allowed == ip,
            (Self::Host(Host::Ipv6(allowed)), Host::Ipv6(ip)) => allowed == ip,
            (Self::Subdomains(_) | Self::Host(_), _) => false,
        }
    }
}

/// Returns a host name without the trailing dot of a fully qualified name.
fn without_trailing_dot(name: &str) -> &str {
    name.strip_suffix('.').unwrap_or(name)
}

/// Why a text is not a valid allowlist entry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a valid host: write `example.com`, `*.example.com`, `127.0.0.1:8080`, \
     `[::1]:8080`, `example.com:*` or `*:8080`"
)]
pub struct AllowlistError(pub String);

#[cfg(test)]
mod tests {
    use super::*;

    fn check_allowed_addresses(allow: &[&str], url: &str, expected: Option<AllowedAddresses>) {
        let allowlist = Allowlist::new(allow.iter().copied(), false).unwrap();
        let url = url::Url::parse(url).unwrap();
        let port = url.port_or_known_default().unwrap();
        let grant = allowlist.allowed_addresses(&url.host().unwrap(), port, false);
        assert_eq!(grant.ok(), expected, "{allow:?} {url}");
    }

    #[test]
    fn allow_rules_match_their_hosts_and_ports() {
        let (public, listed) = (Some(AllowedAddresses::Public), Some(AllowedAddresses::Listed));
        check_allowed_addresses(&[], "http://a.example/", public);
        check_allowed_addresses(&[], "https://a.example/", public);
        check_allowed_addresses(&[], "http://a.example:8080/", None);
        check_allowed_addresses(&["a.example"], "http://A.example./", listed);
        check_allowed_addresses(&["a.example"], "http://a.example:8080/", None);
        check_allowed_addresses(&["a.example:8080"], "http://a.example:8080/", listed);
        check_allowed_addresses(&["a.example:8080"], "http://a.example/", public);
        check_allowed_addresses(&["a.example:*"], "http://a.example:9/", listed);
        check_allowed_addresses(&["*.example:8080"], "http://a.example:8080/", public);
        check_allowed_addresses(&["*.example:8080"], "http://example:8080/", None);
        check_allowed_addresses(&["*.example:8080"], "http://badexample:8080/", None);
        check_allowed_addresses(&["*:8080"], "http://any.example:8080/", public);
        check_allowed_addresses(&["127.0.0.1:8080"], "http://0x7f.1:8080/", listed);
        check_allowed_addresses(&["127.0.0.1:8080"], "http://127.0.0.2:8080/", None);
        check_allowed_addresses(&["[::1]:8080"], "http://[0:0::1]:8080/", listed);
        check_allowed_addresses(&["::1"], "http://[::1]/", listed);
        check_allowed_addresses(&["bücher.example"], "http://b%C3%BCcher.example/", listed);
        let allowlist = Allowlist::new([], true).unwrap();
        let grant = |private| allowlist.allowed_addresses(&Host::Domain("x"), 9, private);
        assert_eq!(grant(false), Ok(AllowedAddresses::Private));
        let grant = Allowlist::default().allowed_addresses(&Host::Domain("x"), 9, true);
        assert_eq!(grant, Ok(AllowedAddresses::Private));
    }

    #[test]
    fn invalid_allow_rules_are_rejected() {
        for invalid in [
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
            let result = Allowlist::new([invalid], false);
            assert!(result.is_err(), "{invalid:?} {result:?}");
        }
    }
}
