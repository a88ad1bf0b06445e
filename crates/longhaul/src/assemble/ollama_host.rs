//! Where Ollama is, by the variable that its own programs read.
//!
//! Never: an address with a name or a password in it.

/// The variable that says where Ollama is.
pub(crate) const HOST_VAR: &str = "OLLAMA_HOST";

/// Where it listens unless somebody says otherwise.
const DEFAULT_PORT: &str = "11434";

/// The address that a host stands for, as Ollama itself reads it; none: it is none.
/// A host that means every address of a machine is asked at this one.
pub(crate) fn base_url(host: &str) -> Option<String> {
    let host = host.trim().trim_matches(['"', '\'']).trim_end_matches('/');
    let (scheme, rest) = host.split_once("://").unwrap_or(("", host));
    let (place, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (name, port) = match place.rsplit_once(':') {
        // The colons of a bare address of the sixth version are no port's.
        Some((name, _)) if name.contains(':') && !name.ends_with(']') => (place, None),
        Some((name, port)) => (name, Some(port)),
        None => (place, None),
    };
    let port = match (port, scheme) {
        (Some(port), _) => port.parse::<u16>().ok()?.to_string(),
        (None, "http") => "80".to_owned(),
        (None, "https") => "443".to_owned(),
        (None, _) => DEFAULT_PORT.to_owned(),
    };
    let name = match name.trim_matches(['[', ']']) {
        "" | "0.0.0.0" => "127.0.0.1".to_owned(),
        "::" => "[::1]".to_owned(),
        six if six.contains(':') => format!("[{six}]"),
        name => name.to_owned(),
    };
    let odd = |letter: char| letter.is_whitespace() || letter == '@';
    if name.contains(odd) || !["", "http", "https"].contains(&scheme) {
        return None;
    }
    let scheme = if scheme.is_empty() { "http" } else { scheme };
    let path = match path.trim_end_matches('/') {
        "" | "v1" => "v1".to_owned(),
        path if path.ends_with("/v1") => path.to_owned(),
        path => format!("{path}/v1"),
    };
    Some(format!("{scheme}://{name}:{port}/{path}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ollama_host_is_parsed_as_ollama_does() {
        for (host, said) in [
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
            assert_eq!(base_url(host).as_deref(), said, "{host}");
        }
    }
}
