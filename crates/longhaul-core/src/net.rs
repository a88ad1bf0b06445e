//! Where a network address lies: on this machine, in a private network, on the public
//! internet, or in a range that no request is meant for.
//!
//! Never: guesses in favour of an address. What no rule calls public is not, and what is
//! not spelled as this machine is not this machine.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Where an address lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Zone {
    /// On this machine.
    Loopback,
    /// In a private network.
    Private,
    /// On the public internet.
    Public,
    /// Nothing that a request is meant for: link-local (there clouds keep their secrets),
    /// multicast, reserved, or an address that wraps another.
    Reserved,
}

/// Where this address lies.
pub const fn zone(ip: IpAddr) -> Zone {
    match ip {
        IpAddr::V4(ip) => zone_v4(ip),
        IpAddr::V6(ip) => zone_v6(ip),
    }
}

/// Where the host of a URL lies, as far as its spelling says: an address, or a name below
/// `localhost`. `None` for every other name: only a lookup tells.
///
/// Only the bare `localhost` is this machine. A name below it is at most in a private
/// network, because some resolvers ask a DNS server for it.
pub fn host_zone(host: &str) -> Option<Zone> {
    if host.eq_ignore_ascii_case("localhost") {
        return Some(Zone::Loopback);
    }
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    if let Ok(ip) = bare.parse() {
        return Some(zone(ip));
    }
    let last = host.trim_end_matches('.').rsplit('.').next()?;
    last.eq_ignore_ascii_case("localhost").then_some(Zone::Private)
}

/// Whether the host of a URL is this machine.
pub fn is_loopback(host: &str) -> bool {
    host_zone(host) == Some(Zone::Loopback)
}

/// Whether a proxy may be asked for the host of a URL. A proxy does not know the way to
/// this machine or into a private network.
pub fn may_use_proxy(host: &str) -> bool {
    matches!(host_zone(host), None | Some(Zone::Public))
}

const fn zone_v4(ip: Ipv4Addr) -> Zone {
    match ip.octets() {
        [127, ..] => Zone::Loopback,
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] => Zone::Private,
        // What providers share out among their customers, and some VPNs too.
        [100, 64..=127, ..] => Zone::Private,
        // This network, links, groups, the reserved, the broadcast.
        [0 | 224..=255, ..] | [169, 254, ..] => Zone::Reserved,
        // Protocol assignments, the old relays of 6to4, measuring.
        [192, 0, 0, _] | [192, 88, 99, _] | [198, 18..=19, ..] => Zone::Reserved,
        // Documentation.
        [192, 0, 2, _] | [198, 51, 100, _] | [203, 0, 113, _] => Zone::Reserved,
        _ => Zone::Public,
    }
}

const fn zone_v6(ip: Ipv6Addr) -> Zone {
    match ip.segments() {
        [0, 0, 0, 0, 0, 0, 0, 1] => Zone::Loopback,
        [0xfc00..=0xfdff, ..] => Zone::Private,
        // Teredo, ORCHID, measuring and whatever else protocols were given.
        [0x2001, 0..=0x1ff, ..] => Zone::Reserved,
        // Documentation, and 6to4, which wraps an address of the old kind.
        [0x2001, 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] | [0x2002, ..] => Zone::Reserved,
        // All that is handed out to the world so far. NAT64 and mapped
        // addresses, links and groups lie outside.
        [0x2000..=0x3fff, ..] => Zone::Public,
        _ => Zone::Reserved,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(expected: Zone, addresses: &[&str]) {
        for text in addresses {
            let ip: IpAddr = text.parse().unwrap();
            assert_eq!(zone(ip), expected, "{text}");
        }
    }

    #[test]
    fn allocated_addresses_are_public() {
        let public = [
            "1.1.1.1",
            "8.8.8.8",
            "93.184.216.34",
            "100.63.255.255",
            "100.128.0.0",
            "126.0.0.1",
            "128.0.0.1",
            "169.253.255.255",
            "169.255.0.0",
            "172.15.255.255",
            "172.32.0.0",
            "192.0.1.0",
            "192.0.3.0",
            "192.167.0.1",
            "198.17.255.255",
            "198.20.0.0",
            "223.255.255.255",
            "2001:4860:4860::8888",
            "2606:4700::1111",
            "2001:200::1",
            "2a00::1",
            "2003::1",
        ];
        check(Zone::Public, &public);
    }

    #[test]
    fn private_network_addresses_are_private() {
        let private = [
            "10.0.0.1",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.0.1",
            "100.64.0.1",
            "100.127.255.255",
            "fc00::1",
            "fdff::1",
        ];
        check(Zone::Private, &private);
    }

    #[test]
    fn loopback_addresses_are_loopback() {
        check(Zone::Loopback, &["127.0.0.1", "127.255.255.255", "::1"]);
    }

    #[test]
    fn a_host_is_loopback_only_by_its_exact_name_or_address() {
        for (host, expected) in [
            ("localhost", Some(Zone::Loopback)),
            ("LOCALHOST", Some(Zone::Loopback)),
            ("127.0.0.2", Some(Zone::Loopback)),
            ("[::1]", Some(Zone::Loopback)),
            ("a.localhost", Some(Zone::Private)),
            ("localhost.", Some(Zone::Private)),
            ("[fd00::1]", Some(Zone::Private)),
            ("[fe80::1]", Some(Zone::Reserved)),
            ("0.0.0.0", Some(Zone::Reserved)),
            ("8.8.8.8", Some(Zone::Public)),
            ("localhost.example", None),
            ("a.example", None),
            ("", None),
        ] {
            assert_eq!(host_zone(host), expected, "{host}");
            assert_eq!(is_loopback(host), expected == Some(Zone::Loopback), "{host}");
            let is_outside = matches!(expected, None | Some(Zone::Public));
            assert_eq!(may_use_proxy(host), is_outside, "{host}");
        }
    }

    #[test]
    fn reserved_addresses_are_reserved() {
        let odd = [
            "0.0.0.0",
            "0.1.2.3",
            "169.254.169.254",
            "192.0.0.1",
            "192.0.0.170",
            "192.0.2.1",
            "192.88.99.1",
            "198.18.0.1",
            "198.19.255.255",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "239.255.255.255",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::2",
            "::127.0.0.1",
            "::ffff:127.0.0.1",
            "::ffff:8.8.8.8",
            "::ffff:0:8.8.8.8",
            "64:ff9b::7f00:1",
            "64:ff9b::808:808",
            "64:ff9b:1::1",
            "100::1",
            "2001::1",
            "2001:2::1",
            "2001:10::1",
            "2001:20::1",
            "2001:db8::1",
            "2002:7f00:1::",
            "2002:808:808::",
            "3fff::1",
            "3fff:fff::1",
            "5f00::1",
            "fe80::1",
            "fec0::1",
            "ff02::1",
        ];
        check(Zone::Reserved, &odd);
    }

    proptest! {
        /// What the standard library calls special is never public.
        #[test]
        fn special_addresses_are_not_public(bits: u32) {
            let ip = Ipv4Addr::from(bits);
            let special = ip.is_private() || ip.is_loopback() || ip.is_link_local()
                || ip.is_broadcast() || ip.is_documentation() || ip.is_multicast()
                || ip.is_unspecified();
            prop_assert!(!special || zone(ip.into()) != Zone::Public);
        }

        /// An address of the old kind is not public in any dress of the new kind
        /// that leads a packet to it.
        #[test]
        fn embedding_an_ipv4_address_does_not_make_it_public(bits: u32, below: [u16; 5]) {
            let [high, low] = [(bits >> 16) as u16, bits as u16];
            let [a, b, c, d, e] = below;
            for dressed in [
                [0, 0, 0, 0, 0, 0xffff, high, low],
                [0, 0, 0, 0, 0xffff, 0, high, low],
                [0, 0, 0, 0, 0, 0, high, low],
                [0x64, 0xff9b, 0, 0, 0, 0, high, low],
                [0x64, 0xff9b, 1, a, b, c, high, low],
                [0x2002, high, low, a, b, c, d, e],
                [0x2001, 0, high, low, a, b, c, d],
            ] {
                prop_assert_ne!(zone(Ipv6Addr::from(dressed).into()), Zone::Public);
            }
        }

        #[test]
        fn only_global_unicast_ipv6_is_public(bits: u128) {
            let ip = Ipv6Addr::from(bits);
            prop_assert!(bits >> 125 == 1 || zone(ip.into()) != Zone::Public);
        }
    }
}
