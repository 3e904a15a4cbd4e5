//! Addresses, host names and `host:port` of endpoints.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use xds_codec::echo;

use super::fields::{Reader, Value};

/// Where an endpoint is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum EndpointHost {
    /// An address.
    Ip(IpAddr),
    /// A name that clients resolve, in lower case and without the dot at the end.
    Dns(String),
}

/// Reads an IP address that requests can be sent to; anything else is an error.
pub(crate) fn read_ip(value: &Value<'_>, reader: &mut Reader) -> Option<IpAddr> {
    let text = value.text(reader)?;
    or_report(parse_ip(text), value, reader)
}

/// Reads a host name that clients resolve; anything else is an error.
pub(crate) fn read_dns_name(value: &Value<'_>, reader: &mut Reader) -> Option<String> {
    let text = value.text(reader)?;
    or_report(parse_dns_name(text), value, reader)
}

/// Reads `host:port`, where the host is a name, an IPv4 address or an IPv6 address in brackets; anything else is an error.
pub(crate) fn read_host_port(value: &Value<'_>, reader: &mut Reader) -> Option<(EndpointHost, u16)> {
    let text = value.text(reader)?;
    or_report(parse_host_port(text), value, reader)
}

/// Reports the fault of an address.
fn or_report<T>(parsed: Result<T, String>, value: &Value<'_>, reader: &mut Reader) -> Option<T> {
    parsed.map_err(|message| reader.error("bad-address", &value.spot, message)).ok()
}

/// Parses an address that requests can be sent to.
pub(crate) fn parse_ip(text: &str) -> Result<IpAddr, String> {
    let address: IpAddr = text.parse().map_err(|_| format!("{} is not an IP address", echo(text)))?;
    if address == Ipv4Addr::UNSPECIFIED || address == Ipv6Addr::UNSPECIFIED || address.is_multicast() {
        return Err(format!("{address} is not the address of an endpoint"));
    }
    Ok(address)
}

/// Parses a name that resolvers accept: labels of letters, digits, `-` and `_`, in any case.
///
/// Unlike a host name of a route, it may have `_`, because names of containers do. A last label that is all digits is a mistyped
/// address, never a top-level domain.
pub(crate) fn parse_dns_name(text: &str) -> Result<String, String> {
    let fail = |reason: &str| Err(format!("{} is not a host name: {reason}", echo(text)));
    let name = text.strip_suffix('.').unwrap_or(text);
    if name.is_empty() || name.len() > MAX_DNS_NAME {
        return fail("a host name has 1 to 253 characters");
    }
    if text.parse::<IpAddr>().is_ok() {
        return fail("it is an IP address");
    }
    let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    let is_label = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && label.bytes().all(is_inner)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    if !name.split('.').all(is_label) {
        return fail("each part has 1 to 63 letters, digits, `-` and `_`");
    }
    let last = name.rsplit('.').next().unwrap_or_default();
    if last.bytes().all(|byte| byte.is_ascii_digit()) {
        return fail("only an address ends in a number");
    }
    Ok(name.to_ascii_lowercase())
}

/// Parses `host:port`.
pub(crate) fn parse_host_port(text: &str) -> Result<(EndpointHost, u16), String> {
    let wants = "write it as in `10.0.0.4:50051`, `[2001:db8::1]:50051` or `greeter.internal:50051`";
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => match rest.split_once("]:") {
            Some((inner, port)) => {
                let address: Ipv6Addr =
                    inner.parse().map_err(|_| format!("{} is not an IPv6 address; {wants}", echo(inner)))?;
                (EndpointHost::Ip(parse_ip(&address.to_string())?), port)
            }
            None => return Err(format!("{} has no port after the brackets; {wants}", echo(text))),
        },
        None if text.contains("://") => {
            return Err(format!("{} is a URL, not a host and a port; {wants}", echo(text)));
        }
        None if text.parse::<Ipv6Addr>().is_ok() || text.matches(':').count() > 1 => {
            return Err(format!("{} is an IPv6 address without brackets and port; {wants}", echo(text)));
        }
        None => match text.rsplit_once(':') {
            Some((host, port)) if host.parse::<IpAddr>().is_ok() => (EndpointHost::Ip(parse_ip(host)?), port),
            Some((host, port)) => (EndpointHost::Dns(parse_dns_name(host)?), port),
            None => return Err(format!("{} has no port; {wants}", echo(text))),
        },
    };
    Ok((host, parse_port(port)?))
}

/// Parses a port: digits only, 1 to 65535.
pub(crate) fn parse_port(text: &str) -> Result<u16, String> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let port = text.parse().ok().filter(|port: &u16| is_number && *port > 0);
    port.ok_or_else(|| format!("{} is not a port; a port is a number from 1 to 65535", echo(text)))
}

/// The longest name of the DNS, without its last dot.
const MAX_DNS_NAME: usize = 253;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_and_port_are_an_address_or_a_name_and_a_port() {
        let table = [
            ("10.0.0.4:50051", Some("Ip(10.0.0.4) 50051")),
            ("[2001:DB8::0:1]:443", Some("Ip(2001:db8::1) 443")),
            ("[::ffff:10.0.0.1]:1", Some("Ip(::ffff:10.0.0.1) 1")),
            ("Greeter.internal.:65535", Some("Dns(\"greeter.internal\") 65535")),
            ("my_service:80", Some("Dns(\"my_service\") 80")),
            ("localhost:80", Some("Dns(\"localhost\") 80")),
            ("1password.com:443", Some("Dns(\"1password.com\") 443")),
            ("10.0.0.4", None),
            ("10.0.0.4:", None),
            ("10.0.0.4:0", None),
            ("10.0.0.4:65536", None),
            ("10.0.0.4:+80", None),
            ("10.0.0.400:80", None),
            ("010.0.0.1:80", None),
            ("0.0.0.0:80", None),
            ("[::]:80", None),
            ("224.0.0.1:80", None),
            ("2001:db8::1", None),
            ("2001:db8::1:80", None),
            ("[2001:db8::1]", None),
            ("[10.0.0.1]:80", None),
            ("[fe80::1%eth0]:80", None),
            ("http://greeter:80", None),
            (":80", None),
            ("a b:80", None),
            ("a/b:80", None),
            ("gr\u{fc}\u{df}e.example:80", None),
            ("-a:80", None),
            ("a..b:80", None),
            ("", None),
        ];
        for (text, expected) in table {
            let found = parse_host_port(text).ok().map(|(host, port)| match host {
                EndpointHost::Ip(address) => format!("Ip({address}) {port}"),
                EndpointHost::Dns(name) => format!("Dns({name:?}) {port}"),
            });
            assert_eq!(found.as_deref(), expected, "{text}");
        }
        let long = format!("{}:80", "a.".repeat(128));
        assert!(parse_host_port(&long).is_err());
    }

    #[test]
    fn an_ipv6_address_without_brackets_is_told_what_it_lacks() {
        let message = parse_host_port("2001:db8::1:80").unwrap_err();
        assert!(message.contains("without brackets"), "{message}");
    }
}
