//! Tests of lists of hosts.

use longhaul_sandbox::egress::HostList;

fn parse(entries: &[&str]) -> Result<HostList, String> {
    let entries: Vec<String> = entries.iter().map(|entry| (*entry).to_owned()).collect();
    HostList::parse(&entries)
}

fn check(entries: &[&str], host: &str, port: u16, expected: bool) {
    let list = parse(entries).unwrap();
    assert_eq!(list.allows(host, port), expected, "{entries:?} {host}:{port}");
}

#[test]
fn entries_allow_their_hosts_and_ports() {
    check(&[], "a.example", 443, false);
    check(&["a.example"], "a.example", 443, true);
    check(&["a.example"], "a.example", 80, true);
    check(&["a.example"], "a.example", 8443, false);
    check(&["a.example"], "A.Example.", 443, true);
    check(&[" A.EXAMPLE. "], "a.example", 443, true);
    check(&["a.example"], "b.a.example", 443, false);
    check(&["a.example"], "aa.example", 443, false);
    check(&["a.example"], "a.example.evil", 443, false);
    check(&["a.example:8443"], "a.example", 8443, true);
    check(&["a.example:8443"], "a.example", 443, false);
    check(&["bücher.example"], "xn--bcher-kva.example", 443, true);
    check(&["a.example", "b.example:22"], "b.example", 22, true);
}

#[test]
fn wildcards_allow_subdomains_only() {
    check(&["*.a.example"], "b.a.example", 443, true);
    check(&["*.a.example"], "c.b.a.example", 443, true);
    check(&["*.a.example"], "a.example", 443, false);
    check(&["*.a.example"], "ba.example", 443, false);
    check(&["*.a.example"], "b.a.example.evil.example", 443, false);
    check(&["*.a.example"], ".a.example", 443, false);
    check(&["*.a.example:8443"], "b.a.example", 8443, true);
    check(&["*.a.example:8443"], "b.a.example", 443, false);
}

#[test]
fn denied_hosts_are_refused_even_if_another_entry_allows_them() {
    check(&["*.a.example", "!b.a.example"], "b.a.example", 443, false);
    check(&["!b.a.example", "*.a.example"], "b.a.example", 443, false);
    check(&["*.a.example", "!b.a.example"], "c.a.example", 443, true);
    check(&["*.a.example", "!*.b.a.example"], "c.b.a.example", 443, false);
    check(&["a.example", "!a.example:80"], "a.example", 80, false);
    check(&["a.example", "!a.example:80"], "a.example", 443, true);
    check(&["a.example:8443", "!a.example"], "a.example", 8443, false);
    check(&["github", "!uploads.github.com"], "uploads.github.com", 443, false);
    check(&["packages", "!packages"], "pypi.org", 443, false);
}

#[test]
fn addresses_are_allowed_only_as_they_are_listed() {
    check(&["a.example"], "93.184.216.34", 443, false);
    check(&["93.184.216.34"], "93.184.216.34", 443, true);
    check(&["93.184.216.34"], "0x5db8d822", 443, true);
    check(&["93.184.216.34"], "93.184.216.35", 443, false);
    check(&["127.0.0.1:8080"], "127.0.0.1", 8080, true);
    check(&["127.0.0.1:8080"], "127.1", 8080, true);
    check(&["127.0.0.1:8080"], "127.0.0.1", 80, false);
    check(&["127.0.0.1:8080"], "localhost", 8080, false);
    check(&["127.0.0.1:8080"], "::ffff:127.0.0.1", 8080, false);
    check(&["localhost:8080"], "localhost", 8080, true);
    check(&["localhost:8080"], "127.0.0.1", 8080, false);
    check(&["localhost:8080"], "a.localhost", 8080, false);
    check(&["[2606:4700::1111]:443"], "2606:4700::1111", 443, true);
    check(&["[2606:4700::1111]"], "[2606:4700:0::1111]", 443, true);
    check(&["2606:4700::1111"], "2606:4700::1112", 443, false);
    check(&["169.254.169.254:80"], "169.254.169.254", 80, true);
}

#[test]
fn presets_contain_registries_and_github() {
    for host in ["index.crates.io", "registry.npmjs.org", "pypi.org", "proxy.golang.org"] {
        check(&["packages"], host, 443, true);
    }
    check(&["packages"], "deb.debian.org", 80, true);
    check(&["packages"], "de.archive.ubuntu.com", 80, true);
    check(&["packages"], "github.com", 443, false);
    check(&["github"], "codeload.github.com", 443, true);
    check(&["github"], "github.com.evil.example", 443, false);
}

#[test]
fn invalid_entries_are_refused_with_the_reason() {
    for (entry, reason) in [
        ("", "not the name of a host"),
        ("*", "allows all hosts"),
        ("!", "not the name of a host"),
        ("*.com", "whole top-level domain"),
        ("a.*", "not the name of a host"),
        ("*a.example", "not the name of a host"),
        ("a.*.example", "not the name of a host"),
        ("*.*.example", "not the name of a host"),
        ("a..example", "not the name of a host"),
        ("a b.example", "not the name of a host"),
        ("user@a.example", "not the name of a host"),
        ("*.127.0.0.1", "no subdomains"),
        ("*.0.113", "no subdomains"),
        ("https://a.example", "a URL"),
        ("a.example/b", "a URL or a path"),
        ("a.example:", "between 1 and 65535"),
        ("a.example:0", "between 1 and 65535"),
        ("a.example:65536", "between 1 and 65535"),
        ("a.example:https", "between 1 and 65535"),
        ("[::1", "not the name of a host"),
        ("10.0.0.5", "needs its port, such as `10.0.0.5:5432`"),
        ("::1", "needs its port, such as `[::1]:5432`"),
        ("169.254.169.254", "needs its port"),
        ("localhost", "needs its port, such as `localhost:5432`"),
        ("npm", "neither a preset nor the full name"),
        (&"a".repeat(300), "too long"),
    ] {
        let error = parse(&[entry]).unwrap_err();
        assert!(error.contains(reason), "{entry}: {error}");
        assert!(error.contains("`*.example.com`") && error.len() < 500, "{error}");
    }
    let error = parse(&["a.example"; 257]).unwrap_err();
    assert!(error.contains("at most 256"), "{error}");
}
