//! Classification of network addresses: loopback, private, public or reserved.
//!
//! Invariant: an address counts as public only if an explicit rule here matches it, and a host
//! counts as loopback only if its text alone shows this, without a DNS lookup.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Where an IP address leads: this machine, a private network, the public internet or nowhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NetworkZone {
    /// Address of this machine.
    Loopback,
    /// Address in a private network.
    Private,
    /// Address on the public internet.
    Public,
    /// Address that no request may target: link-local (where clouds serve their metadata and
    /// credentials), multicast, reserved, or an address that embeds another address.
    Reserved,
}

/// Returns the network zone of an address.
pub const fn zone(ip: IpAddr) -> NetworkZone {
    match ip {
        IpAddr::V4(ip) => zone_v4(ip),
        IpAddr::V6(ip) => zone_v6(ip),
    }
}

/// Returns the network zone of a URL's host as far as it can be determined without a DNS lookup:
/// for an address, or for a name under `localhost`. Returns `None` for every other name.
///
/// Only the bare name `localhost` counts as loopback. A name that ends in `.localhost` counts as
/// private, because some resolvers ask a DNS server for it.
pub fn host_zone(host: &str) -> Option<NetworkZone> {
    if host.eq_ignore_ascii_case("localhost") {
        return Some(NetworkZone::Loopback);
    }
    let unbracketed = host.trim_start_matches('[').trim_end_matches(']');
    if let Ok(ip) = unbracketed.parse() {
        return Some(zone(ip));
    }
    let last_label = host.trim_end_matches('.').rsplit('.').next()?;
    last_label.eq_ignore_ascii_case("localhost").then_some(NetworkZone::Private)
}

/// Returns whether the host of a URL denotes this machine.
pub fn is_loopback(host: &str) -> bool {
    host_zone(host) == Some(NetworkZone::Loopback)
}

/// Returns whether requests to the host of a URL may use a proxy. A proxy can't reach this
/// machine or its private network.
pub fn may_use_proxy(host: &str) -> bool {
    matches!(host_zone(host), None | Some(NetworkZone::Public))
}

const fn zone_v4(ip: Ipv4Addr) -> NetworkZone {
    match ip.octets() {
        [127, ..] => NetworkZone::Loopback,
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] => NetworkZone::Private,
        // Shared address space of carrier-grade NAT, also used by some VPNs.
        [100, 64..=127, ..] => NetworkZone::Private,
        // "This" network, multicast, reserved, broadcast and link-local.
        [0 | 224..=255, ..] | [169, 254, ..] => NetworkZone::Reserved,
        // IETF protocol assignments, 6to4 relay anycast, benchmarking.
        [192, 0, 0, _] | [192, 88, 99, _] | [198, 18..=19, ..] => NetworkZone::Reserved,
        // Addresses for use in documentation.
        [192, 0, 2, _] | [198, 51, 100, _] | [203, 0, 113, _] => NetworkZone::Reserved,
        _ => NetworkZone::Public,
    }
}

const fn zone_v6(ip: Ipv6Addr) -> NetworkZone {
    match ip.segments() {
        [0, 0, 0, 0, 0, 0, 0, 1] => NetworkZone::Loopback,
        [0xfc00..=0xfdff, ..] => NetworkZone::Private,
        // Teredo, ORCHID, benchmarking and other IETF protocol assignments.
        [0x2001, 0..=0x1ff, ..] => NetworkZone::Reserved,
        // Documentation, and 6to4, which embeds an IPv4 address.
        [0x2001, 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] | [0x2002, ..] => NetworkZone::Reserved,
        // All global unicast addresses allocated so far. NAT64, IPv4-mapped, link-local and
        // multicast addresses are outside of this range.
        [0x2000..=0x3fff, ..] => NetworkZone::Public,
        _ => NetworkZone::Reserved,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn assert_zone(expected: NetworkZone, addresses: &[&str]) {
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
        assert_zone(NetworkZone::Public, &public);
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
        assert_zone(NetworkZone::Private, &private);
    }

    #[test]
    fn loopback_addresses_are_loopback() {
        assert_zone(NetworkZone::Loopback, &["127.0.0.1", "127.255.255.255", "::1"]);
    }

    #[test]
    fn a_host_is_loopback_only_by_its_exact_name_or_address() {
        for (host, expected) in [
            ("localhost", Some(NetworkZone::Loopback)),
            ("LOCALHOST", Some(NetworkZone::Loopback)),
            ("127.0.0.2", Some(NetworkZone::Loopback)),
            ("[::1]", Some(NetworkZone::Loopback)),
            ("a.localhost", Some(NetworkZone::Private)),
            ("localhost.", Some(NetworkZone::Private)),
            ("[fd00::1]", Some(NetworkZone::Private)),
            ("[fe80::1]", Some(NetworkZone::Reserved)),
            ("0.0.0.0", Some(NetworkZone::Reserved)),
            ("8.8.8.8", Some(NetworkZone::Public)),
            ("localhost.example", None),
            ("a.example", None),
            ("", None),
        ] {
            assert_eq!(host_zone(host), expected, "{host}");
            assert_eq!(is_loopback(host), expected == Some(NetworkZone::Loopback), "{host}");
            let is_outside = matches!(expected, None | Some(NetworkZone::Public));
            assert_eq!(may_use_proxy(host), is_outside, "{host}");
        }
    }

    #[test]
    fn reserved_addresses_are_reserved() {
        let reserved = [
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
        assert_zone(NetworkZone::Reserved, &reserved);
    }

    proptest! {
        /// Addresses that the standard library calls special are never public.
        #[test]
        fn special_addresses_are_not_public(bits: u32) {
            let ip = Ipv4Addr::from(bits);
            let is_special = ip.is_private() || ip.is_loopback() || ip.is_link_local()
                || ip.is_broadcast() || ip.is_documentation() || ip.is_multicast()
                || ip.is_unspecified();
            prop_assert!(!is_special || zone(ip.into()) != NetworkZone::Public);
        }

        /// An IPv6 address that embeds an IPv4 address and routes packets to it is never public.
        #[test]
        fn embedding_an_ipv4_address_does_not_make_it_public(bits: u32, groups: [u16; 5]) {
            let [high, low] = [(bits >> 16) as u16, bits as u16];
            let [a, b, c, d, e] = groups;
            for segments in [
                [0, 0, 0, 0, 0, 0xffff, high, low],
                [0, 0, 0, 0, 0xffff, 0, high, low],
                [0, 0, 0, 0, 0, 0, high, low],
                [0x64, 0xff9b, 0, 0, 0, 0, high, low],
                [0x64, 0xff9b, 1, a, b, c, high, low],
                [0x2002, high, low, a, b, c, d, e],
                [0x2001, 0, high, low, a, b, c, d],
            ] {
                prop_assert_ne!(zone(Ipv6Addr::from(segments).into()), NetworkZone::Public);
            }
        }

        #[test]
        fn only_global_unicast_ipv6_is_public(bits: u128) {
            let ip = Ipv6Addr::from(bits);
            prop_assert!(bits >> 125 == 1 || zone(ip.into()) != NetworkZone::Public);
        }
    }
}
