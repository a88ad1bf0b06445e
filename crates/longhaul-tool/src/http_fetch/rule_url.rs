//! The spellings of a URL that approval rules match: the URL as it is requested, and the normalized
//! URL, which servers usually treat as the same.
//!
//! The request itself is not normalized, because a few servers do distinguish the spellings: the
//! path `/web/https://example.com/` of an archive has a double slash.

use url::Url;

/// Returns the URL as it is requested, and the normalized URL if that is another text.
pub(super) fn spellings(url: &Url) -> Vec<String> {
    let normalized = normalized(url).filter(|normalized| normalized != url.as_str());
    std::iter::once(url.to_string()).chain(normalized).collect()
}

/// Returns the URL without needless percent-encoding, double slashes, an empty query and the dot
/// after a host name. The parser has already removed dot segments, default ports and upper case
/// in the host. `None` means that servers may interpret the URL in several ways: it has an
/// incomplete percent-encoding, or dot segments between encoded slashes.
pub(super) fn normalized(url: &Url) -> Option<String> {
    let path = decode_unreserved(url.path())?;
    let mut folders = path.split('/');
    if folders.any(has_hidden_dot_segment) {
        return None;
    }
    let folders: Vec<&str> = path.split('/').skip(1).collect();
    let (name, inner_folders) = folders.split_last()?;
    let inner_folders = inner_folders.iter().filter(|folder| !folder.is_empty());
    let path: String = inner_folders.map(|folder| format!("/{folder}")).collect();
    let query = url.query().filter(|query| !query.is_empty());
    let query = query.map_or(Some(String::new()), |query| {
        decode_unreserved(query).map(|query| format!("?{query}"))
    })?;
    let host = url.host_str()?;
    let host = host.strip_suffix('.').unwrap_or(host);
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    Some(format!("{}://{host}{port}{path}/{name}{query}", url.scheme()))
}

/// Decodes the percent-encoded characters that need no encoding, and writes the others in upper
/// case. `%2F` stays as it is: it is not a slash.
fn decode_unreserved(text: &str) -> Option<String> {
    let mut parts = text.split('%');
    let mut decoded = parts.next()?.to_owned();
    for part in parts {
        let (code, rest) = part.split_at_checked(2)?;
        let is_hex = code.chars().all(|c| c.is_ascii_hexdigit());
        let byte = u8::from_str_radix(code, 16).ok().filter(|_| is_hex)?;
        match char::from(byte) {
            c @ ('a'..='z' | 'A'..='Z' | '0'..='9' | '-' | '.' | '_' | '~') => decoded.push(c),
            _ => decoded.push_str(&format!("%{byte:02X}")),
        }
        decoded.push_str(rest);
    }
    Some(decoded)
}

/// Returns whether a path segment contains `.` or `..` between encoded slashes, which some servers
/// decode and resolve.
fn has_hidden_dot_segment(segment: &str) -> bool {
    let parts: Vec<&str> = segment.split("%2F").flat_map(|part| part.split("%5C")).collect();
    parts.len() > 1 && parts.iter().any(|part| matches!(*part, "." | ".."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_has_one_normalized_spelling() {
        for (url, expected) in [
            ("https://a.example/x/y?q=1", Some("https://a.example/x/y?q=1")),
            ("HTTPS://A.Example.:443", Some("https://a.example/")),
            ("https://a.example:8443/%61dm%69n", Some("https://a.example:8443/admin")),
            ("https://a.example//admin///x/", Some("https://a.example/admin/x/")),
            ("https://a.example/x/%2e%2E/./admin", Some("https://a.example/admin")),
            ("https://a.example/x?", Some("https://a.example/x")),
            ("https://a.example/x?to=%61%26%c3%bc", Some("https://a.example/x?to=a%26%C3%BC")),
            ("https://a.example/group%2fname", Some("https://a.example/group%2Fname")),
            ("https://a.example/%2561", Some("https://a.example/%2561")),
            ("https://a.example\\admin", Some("https://a.example/admin")),
            ("http://0x7f.1/", Some("http://127.0.0.1/")),
            ("http://[::0:1]:80/a", Some("http://[::1]/a")),
            ("https://a.example/%zz", None),
            ("https://a.example/%+1", None),
            ("https://a.example/x%", None),
            ("https://a.example/?q=%é", None),
            ("https://a.example/x/..%2fadmin", None),
            ("https://a.example/x/y%5c%2e%2e%5cadmin", None),
        ] {
            let url = Url::parse(url).unwrap();
            assert_eq!(normalized(&url).as_deref(), expected, "{url}");
        }
    }
}
