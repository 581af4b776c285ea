//! Which addresses may be dialled.
//!
//! Asked by [`super::dial`] about the one address that is about to be connected to, after the name was resolved; text is never
//! looked at. Forms that carry an IPv4 address inside an IPv6 one are judged by what they carry. Whatever the table does not
//! refuse is dialled, so the table names every special block of the IANA registries (RFC 6890 and its updates).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

/// An address that may not be dialled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("blocked address {address}: {rule}")]
pub struct Blocked {
    /// The address that the name gave.
    pub address: IpAddr,
    /// The block it lies in.
    pub rule: &'static str,
}

/// Refuses `address` unless one of `allow` covers it.
///
/// # Errors
/// [`Blocked`] names the rule and the address.
pub fn check(address: IpAddr, allow: &[IpNet]) -> Result<(), Blocked> {
    if allow.iter().any(|net| net.contains(&address)) {
        return Ok(());
    }
    // An allowed IPv4 network also allows the mapped spelling of its addresses; the kernel dials the same host.
    if let IpAddr::V6(v6) = address
        && let Some(v4) = v6.to_ipv4_mapped()
        && allow.iter().any(|net| net.contains(&IpAddr::V4(v4)))
    {
        return Ok(());
    }
    let rule = match address {
        IpAddr::V4(v4) => rule_v4(v4),
        IpAddr::V6(v6) => rule_v6(v6),
    };
    match rule {
        Some(rule) => Err(Blocked { address, rule }),
        None => Ok(()),
    }
}

/// First match wins; more special blocks come first.
const V4: &[([u8; 4], u32, &str)] = &[
    ([169, 254, 169, 254], 32, "cloud metadata"),
    ([169, 254, 170, 2], 32, "cloud metadata"),
    ([100, 100, 100, 200], 32, "cloud metadata"),
    ([168, 63, 129, 16], 32, "cloud metadata"),
    ([0, 0, 0, 0], 32, "unspecified"),
    ([0, 0, 0, 0], 8, "this network"),
    ([10, 0, 0, 0], 8, "private (RFC 1918)"),
    ([172, 16, 0, 0], 12, "private (RFC 1918)"),
    ([192, 168, 0, 0], 16, "private (RFC 1918)"),
    ([100, 64, 0, 0], 10, "carrier-grade NAT (RFC 6598)"),
    ([127, 0, 0, 0], 8, "loopback"),
    ([169, 254, 0, 0], 16, "link-local"),
    ([192, 0, 0, 0], 24, "protocol assignments (RFC 6890)"),
    ([192, 31, 196, 0], 24, "AS112 (RFC 7535)"),
    ([192, 52, 193, 0], 24, "AMT relay (RFC 7450)"),
    ([192, 175, 48, 0], 24, "AS112 (RFC 7534)"),
    ([192, 0, 2, 0], 24, "documentation"),
    ([198, 51, 100, 0], 24, "documentation"),
    ([203, 0, 113, 0], 24, "documentation"),
    ([192, 88, 99, 0], 24, "6to4 relay (RFC 7526)"),
    ([198, 18, 0, 0], 15, "benchmarking (RFC 2544)"),
    ([224, 0, 0, 0], 4, "multicast"),
    ([255, 255, 255, 255], 32, "broadcast"),
    ([240, 0, 0, 0], 4, "reserved (class E)"),
];

fn rule_v4(address: Ipv4Addr) -> Option<&'static str> {
    let bits = address.to_bits();
    V4.iter()
        .find(|(net, len, _)| {
            let mask = u32::MAX << (32 - len);
            bits & mask == u32::from_be_bytes(*net) & mask
        })
        .map(|(_, _, rule)| *rule)
}

const V6: &[(Ipv6Addr, u32, &str)] = &[
    (Ipv6Addr::UNSPECIFIED, 128, "unspecified"),
    (Ipv6Addr::LOCALHOST, 128, "loopback"),
    (Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254), 128, "cloud metadata"),
    (Ipv6Addr::new(0x64, 0xff9b, 1, 0, 0, 0, 0, 0), 48, "local NAT64 (RFC 8215)"),
    (Ipv6Addr::new(0x100, 0, 0, 0, 0, 0, 0, 0), 64, "discard only (RFC 6666)"),
    (Ipv6Addr::new(0x100, 0, 0, 1, 0, 0, 0, 0), 64, "dummy prefix (RFC 9780)"),
    (Ipv6Addr::new(0x2001, 0x2, 0, 0, 0, 0, 0, 0), 48, "benchmarking (RFC 5180)"),
    (Ipv6Addr::new(0x2001, 0x1, 0, 0, 0, 0, 0, 0), 32, "anycast of protocols (RFC 7723, 8155, 9665)"),
    (Ipv6Addr::new(0x2001, 0x3, 0, 0, 0, 0, 0, 0), 32, "AMT relay (RFC 7450)"),
    (Ipv6Addr::new(0x2001, 0x4, 0x112, 0, 0, 0, 0, 0), 48, "AS112 (RFC 7535)"),
    (Ipv6Addr::new(0x2001, 0x10, 0, 0, 0, 0, 0, 0), 28, "ORCHID (RFC 4843)"),
    (Ipv6Addr::new(0x2001, 0x20, 0, 0, 0, 0, 0, 0), 28, "ORCHIDv2 (RFC 7343)"),
    (Ipv6Addr::new(0x2001, 0x30, 0, 0, 0, 0, 0, 0), 28, "DRIP (RFC 9374)"),
    (Ipv6Addr::new(0x2620, 0x4f, 0x8000, 0, 0, 0, 0, 0), 48, "AS112 (RFC 7534)"),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32, "documentation"),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20, "documentation (RFC 9637)"),
    (Ipv6Addr::new(0x5f00, 0, 0, 0, 0, 0, 0, 0), 16, "SRv6 (RFC 9602)"),
    (Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0), 7, "unique local (RFC 4193)"),
    (Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10, "link-local"),
    (Ipv6Addr::new(0xfec0, 0, 0, 0, 0, 0, 0, 0), 10, "site-local (RFC 3879)"),
    (Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8, "multicast"),
];

fn inside(address: Ipv6Addr, net: Ipv6Addr, len: u32) -> bool {
    let mask = u128::MAX << (128 - len);
    address.to_bits() & mask == net.to_bits() & mask
}

fn rule_v6(address: Ipv6Addr) -> Option<&'static str> {
    if let Some((_, _, rule)) = V6.iter().find(|(net, len, _)| inside(address, *net, *len)) {
        return Some(rule);
    }
    let s = address.segments();
    let low = |high: u16, low: u16| Ipv4Addr::from_bits((u32::from(high) << 16) | u32::from(low));
    // Each form that carries an IPv4 address: judged by what it carries.
    match s {
        // v4-mapped ::ffff:0:0/96, translated ::ffff:0:0:0/96, v4-compatible ::/96, NAT64 64:ff9b::/96.
        [0, 0, 0, 0, 0, 0xffff, a, b] | [0, 0, 0, 0, 0xffff, 0, a, b] | [0x64, 0xff9b, 0, 0, 0, 0, a, b] => {
            rule_v4(low(a, b))
        }
        [0, 0, 0, 0, 0, 0, a, b] => rule_v4(low(a, b)).or(Some("IPv4-compatible (RFC 4291)")),
        // 6to4: the bits after the prefix.
        [0x2002, a, b, ..] => rule_v4(low(a, b)),
        // Teredo: the server in the clear, the client inverted (RFC 4380).
        [0x2001, 0, a, b, _, _, c, d] => rule_v4(low(a, b)).or(rule_v4(low(!c, !d))).or(Some("Teredo (RFC 4380)")),
        // ISATAP: an interface identifier of [02]00:5efe and an IPv4 address (RFC 5214), under any prefix.
        [_, _, _, _, 0 | 0x200, 0x5efe, a, b] => rule_v4(low(a, b)),
        // Only 2000::/3 is handed out to networks.
        [first, ..] if first & 0xe000 != 0x2000 => Some("not a global unicast address"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test stops loudly")]

    use super::*;

    fn rule(text: &str) -> Option<&'static str> {
        check(text.parse().unwrap(), &[]).err().map(|b| b.rule)
    }

    #[test]
    fn every_special_block_is_refused_by_name() {
        for (text, expected) in [
            ("127.0.0.1", "loopback"),
            ("127.255.255.254", "loopback"),
            ("0.0.0.0", "unspecified"),
            ("0.1.2.3", "this network"),
            ("10.0.0.1", "private (RFC 1918)"),
            ("172.16.0.1", "private (RFC 1918)"),
            ("172.31.255.255", "private (RFC 1918)"),
            ("192.168.1.1", "private (RFC 1918)"),
            ("100.64.0.1", "carrier-grade NAT (RFC 6598)"),
            ("100.127.255.255", "carrier-grade NAT (RFC 6598)"),
            ("100.100.100.200", "cloud metadata"),
            ("169.254.169.254", "cloud metadata"),
            ("169.254.1.1", "link-local"),
            ("192.0.0.8", "protocol assignments (RFC 6890)"),
            ("192.0.2.1", "documentation"),
            ("198.51.100.1", "documentation"),
            ("203.0.113.1", "documentation"),
            ("192.88.99.1", "6to4 relay (RFC 7526)"),
            ("192.31.196.1", "AS112 (RFC 7535)"),
            ("192.52.193.1", "AMT relay (RFC 7450)"),
            ("192.175.48.1", "AS112 (RFC 7534)"),
            ("168.63.129.16", "cloud metadata"),
            ("169.254.170.2", "cloud metadata"),
            ("169.254.170.23", "link-local"),
            ("192.0.0.192", "protocol assignments (RFC 6890)"),
            ("198.18.0.1", "benchmarking (RFC 2544)"),
            ("198.19.255.255", "benchmarking (RFC 2544)"),
            ("224.0.0.1", "multicast"),
            ("239.255.255.255", "multicast"),
            ("240.0.0.1", "reserved (class E)"),
            ("255.255.255.255", "broadcast"),
        ] {
            assert_eq!(rule(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn every_special_block_of_the_larger_addresses_is_refused_by_name() {
        for (text, expected) in [
            ("::", "unspecified"),
            ("::1", "loopback"),
            ("::ffff:127.0.0.1", "loopback"),
            ("::ffff:0:127.0.0.1", "loopback"),
            ("::127.0.0.1", "loopback"),
            ("::8.8.8.8", "IPv4-compatible (RFC 4291)"),
            ("64:ff9b::7f00:1", "loopback"),
            ("64:ff9b:1::1", "local NAT64 (RFC 8215)"),
            ("100::1", "discard only (RFC 6666)"),
            ("2001:1::1", "anycast of protocols (RFC 7723, 8155, 9665)"),
            ("2001:2::1", "benchmarking (RFC 5180)"),
            ("2001:3::1", "AMT relay (RFC 7450)"),
            ("2001:4:112::1", "AS112 (RFC 7535)"),
            ("2001:10::1", "ORCHID (RFC 4843)"),
            ("2001:2f::1", "ORCHIDv2 (RFC 7343)"),
            ("2001:30::1", "DRIP (RFC 9374)"),
            ("2620:4f:8000::1", "AS112 (RFC 7534)"),
            ("64:ff9b::a9fe:a9fe", "cloud metadata"),
            ("64:ff9b:1:ffff::a9fe:a9fe", "local NAT64 (RFC 8215)"),
            ("2606:4700::200:5efe:a00:1", "private (RFC 1918)"),
            ("2002:c0a8:101::1", "private (RFC 1918)"),
            ("2002:e000:1::", "multicast"),
            ("::ffff:255.255.255.255", "broadcast"),
            ("::ffff:100.64.0.1", "carrier-grade NAT (RFC 6598)"),
            ("::ffff:198.51.100.1", "documentation"),
            ("2001:db8::1", "documentation"),
            ("3fff::1", "documentation (RFC 9637)"),
            ("5f00::1", "SRv6 (RFC 9602)"),
            ("2002:7f00:1::", "loopback"),
            ("2002:a9fe:a9fe::1", "cloud metadata"),
            ("2001:0:808:808:0:0:80ff:fffe", "loopback"),
            ("2001:0:7f00:1:0:0:f7f7:f7f7", "loopback"),
            ("2001:0:808:808:0:0:f7f7:f7f7", "Teredo (RFC 4380)"),
            ("2606:4700::5efe:7f00:1", "loopback"),
            ("fc00::1", "unique local (RFC 4193)"),
            ("fd00:ec2::254", "cloud metadata"),
            ("fe80::1", "link-local"),
            ("fe81::1", "link-local"),
            ("febf::1", "link-local"),
            ("fec0::1", "site-local (RFC 3879)"),
            ("ff02::1", "multicast"),
            ("4000::1", "not a global unicast address"),
        ] {
            assert_eq!(rule(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn public_addresses_pass_also_inside_a_carrier() {
        for text in [
            "8.8.8.8",
            "100.63.255.255",
            "100.128.0.1",
            "172.15.255.255",
            "172.32.0.1",
            "198.17.255.255",
            "198.20.0.1",
            "223.255.255.255",
            "2606:4700:4700::1111",
            "2002:808:808::1",
            "64:ff9b::808:808",
            "::ffff:8.8.8.8",
        ] {
            assert_eq!(rule(text), None, "{text}");
        }
    }

    #[test]
    fn an_allowed_network_passes_and_nothing_beside_it() {
        let allow: Vec<IpNet> = vec!["127.0.0.1/32".parse().unwrap(), "fd00:1::/32".parse().unwrap()];
        for (text, passes) in [
            ("127.0.0.1", true),
            ("::ffff:127.0.0.1", true),
            ("127.0.0.2", false),
            ("fd00:1::5", true),
            ("fd00:2::5", false),
            ("64:ff9b::7f00:1", false),
        ] {
            assert_eq!(check(text.parse().unwrap(), &allow).is_ok(), passes, "{text}");
        }
    }

    #[test]
    fn the_error_names_rule_and_address() {
        let blocked = check("10.1.2.3".parse().unwrap(), &[]).unwrap_err();
        assert_eq!(blocked.to_string(), "blocked address 10.1.2.3: private (RFC 1918)");
    }
}
