//! Which addresses anybody can route to, and which lie inside some house.
//!
//! Never: guesses in favour of an address. What no rule calls public is not.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// What an address is to us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Anybody can route to it.
    Public,
    /// Loopback, or inside a house.
    Private,
    /// Nothing that a request is meant for: a link's own (there clouds keep their
    /// secrets), a group's, a reserved one, or one that wraps another.
    Odd,
}

/// What this address is.
pub(crate) const fn kind(ip: IpAddr) -> Kind {
    match ip {
        IpAddr::V4(ip) => kind_v4(ip),
        IpAddr::V6(ip) => kind_v6(ip),
    }
}

const fn kind_v4(ip: Ipv4Addr) -> Kind {
    match ip.octets() {
        [10 | 127, ..] | [172, 16..=31, ..] | [192, 168, ..] => Kind::Private,
        // What providers share out among their customers, and some VPNs too.
        [100, 64..=127, ..] => Kind::Private,
        // This network, links, groups, the reserved, the broadcast.
        [0 | 224..=255, ..] | [169, 254, ..] => Kind::Odd,
        // Protocol assignments, the old relays of 6to4, measuring.
        [192, 0, 0, _] | [192, 88, 99, _] | [198, 18..=19, ..] => Kind::Odd,
        // Documentation.
        [192, 0, 2, _] | [198, 51, 100, _] | [203, 0, 113, _] => Kind::Odd,
        _ => Kind::Public,
    }
}

const fn kind_v6(ip: Ipv6Addr) -> Kind {
    match ip.segments() {
        [0, 0, 0, 0, 0, 0, 0, 1] | [0xfc00..=0xfdff, ..] => Kind::Private,
        // Teredo, ORCHID, measuring and whatever else protocols were given.
        [0x2001, 0..=0x1ff, ..] => Kind::Odd,
        // Documentation, and 6to4, which wraps an address of the old kind.
        [0x2001, 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] | [0x2002, ..] => Kind::Odd,
        // All that is handed out to the world so far. NAT64 and mapped
        // addresses, links and groups lie outside.
        [0x2000..=0x3fff, ..] => Kind::Public,
        _ => Kind::Odd,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(expected: Kind, addresses: &[&str]) {
        for text in addresses {
            let ip: IpAddr = text.parse().unwrap();
            assert_eq!(kind(ip), expected, "{text}");
        }
    }

    #[test]
    fn what_is_handed_out_is_public() {
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
        check(Kind::Public, &public);
    }

    #[test]
    fn what_is_inside_is_private() {
        let private = [
            "10.0.0.1",
            "127.0.0.1",
            "127.255.255.255",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.0.1",
            "100.64.0.1",
            "100.127.255.255",
            "::1",
            "fc00::1",
            "fdff::1",
        ];
        check(Kind::Private, &private);
    }

    #[test]
    fn what_is_set_apart_is_odd() {
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
        check(Kind::Odd, &odd);
    }

    proptest! {
        /// What the standard library calls special is never public.
        #[test]
        fn what_is_special_is_not_public(bits: u32) {
            let ip = Ipv4Addr::from(bits);
            let special = ip.is_private() || ip.is_loopback() || ip.is_link_local()
                || ip.is_broadcast() || ip.is_documentation() || ip.is_multicast()
                || ip.is_unspecified();
            prop_assert!(!special || kind(ip.into()) != Kind::Public);
        }

        /// An address of the old kind is not public in any dress of the new kind
        /// that leads a packet to it.
        #[test]
        fn no_dress_makes_an_address_public(bits: u32, below: [u16; 5]) {
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
                prop_assert_ne!(kind(Ipv6Addr::from(dressed).into()), Kind::Public);
            }
        }

        #[test]
        fn only_one_eighth_of_the_new_kind_is_public(bits: u128) {
            let ip = Ipv6Addr::from(bits);
            prop_assert!(bits >> 125 == 1 || kind(ip.into()) != Kind::Public);
        }
    }
}
