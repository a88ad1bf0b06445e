//! Parses `OLLAMA_HOST`, the environment variable with the address of the Ollama server. An address
//! with a user name or password is rejected.

/// Environment variable with the address of the Ollama server.
pub(crate) const HOST_VAR: &str = "OLLAMA_HOST";

/// Default port of an Ollama server.
const DEFAULT_PORT: &str = "11434";

/// Converts the value of `OLLAMA_HOST` to a base URL by Ollama's own rules. `None` means that the
/// value is invalid. An address for all interfaces, such as `0.0.0.0`, becomes the loopback
/// address.
pub(crate) fn ollama_base_url(host: &str) -> Option<String> {
    let host = host.trim().trim_matches(['"', '\'']).trim_end_matches('/');
    let (scheme, rest) = host.split_once("://").unwrap_or(("", host));
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (name, port) = match authority.rsplit_once(':') {
        // In an IPv6 address without brackets the last colon does not start a port.
        Some((name, _)) if name.contains(':') && !name.ends_with(']') => (authority, None),
        Some((name, port)) => (name, Some(port)),
        None => (authority, None),
    };
    let port = match (port, scheme) {
        (Some(port), _) => port.parse::<u16>().ok()?.to_string(),
        (None, "http") => "80".to_owned(),
        (None, "https") => "443".to_owned(),
        (None, _) => DEFAULT_PORT.to_owned(),
    };
    let host_name = match name.trim_matches(['[', ']']) {
        "" | "0.0.0.0" => "127.0.0.1".to_owned(),
        "::" => "[::1]".to_owned(),
        ipv6 if ipv6.contains(':') => format!("[{ipv6}]"),
        host_name => host_name.to_owned(),
    };
    let is_invalid_char = |c: char| c.is_whitespace() || c == '@';
    if host_name.contains(is_invalid_char) || !["", "http", "https"].contains(&scheme) {
        return None;
    }
    let scheme = if scheme.is_empty() { "http" } else { scheme };
    let path = match path.trim_end_matches('/') {
        "" | "v1" => "v1".to_owned(),
        path if path.ends_with("/v1") => path.to_owned(),
        path => format!("{path}/v1"),
    };
    Some(format!("{scheme}://{host_name}:{port}/{path}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ollama_host_is_parsed_as_ollama_does() {
        for (host, expected) in [
            ("", Some("http://127.0.0.1:11434/v1")),
            ("0.0.0.0", Some("http://127.0.0.1:11434/v1")),
            ("0.0.0.0:8080", Some("http://127.0.0.1:8080/v1")),
            (":8080", Some("http://127.0.0.1:8080/v1")),
            ("gpu.local", Some("http://gpu.local:11434/v1")),
            ("gpu.local:1/", Some("http://gpu.local:1/v1")),
            ("http://gpu.local", Some("http://gpu.local:80/v1")),
            ("https://gpu.local", Some("https://gpu.local:443/v1")),
            ("https://gpu.local/v1", Some("https://gpu.local:443/v1")),
            ("https://gpu.local/o", Some("https://gpu.local:443/o/v1")),
            ("[::]:1", Some("http://[::1]:1/v1")),
            ("::1", Some("http://[::1]:11434/v1")),
            ("\"10.0.0.2\"", Some("http://10.0.0.2:11434/v1")),
            ("gpu.local:port", None),
            ("ftp://gpu.local", None),
            ("a b", None),
            ("http://me:pass@gpu.local", None),
        ] {
            assert_eq!(ollama_base_url(host).as_deref(), expected, "{host}");
        }
    }
}
