//! The PROXY protocol (haproxy.org, `proxy-protocol.txt`, versions 1 and 2): a load balancer names the client of a
//! connection, and the gateway names it to a backend. Pure.
//!
//! The parsed address becomes the client's address, so the parser is as strict as the one for request heads. It is our
//! own, because the libraries for it accept a port of `+80` and separators other than a space. Where a header is
//! expected, a connection without one is rejected.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// Signature, command, family, and the length of the rest.
const V2_HEAD: usize = 16;
/// Maximum length of a version 1 header with its CRLF: two IPv6 addresses in their longest form.
const MAX_V1_HEADER: usize = 107;
/// Maximum length of a version 2 header. Senders put the names of certificates into its extensions; real headers are
/// much shorter.
pub const MAX_HEADER: usize = 4096;

/// The version of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    V1,
    V2,
}

/// The client of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// This client, through the sender.
    Proxied(SocketAddr),
    /// The sender itself, as for a health check, or a client that the sender does not name.
    Local,
}

/// Why a header is not valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Malformed(pub &'static str);

/// Parses the header at the beginning of `bytes` and returns its length too. `None` if it is not complete.
pub fn parse(bytes: &[u8]) -> Result<Option<(Source, usize)>, Malformed> {
    let begins_with =
        |with: &[u8]| bytes.len().min(with.len()) > 0 && with.starts_with(&bytes[..bytes.len().min(with.len())]);
    match bytes {
        [] => Ok(None),
        _ if begins_with(SIGNATURE) => parse_v2(bytes),
        _ if begins_with(b"PROXY ") => parse_v1(bytes),
        _ => Err(Malformed("the connection does not begin with a PROXY protocol header")),
    }
}

fn parse_v1(bytes: &[u8]) -> Result<Option<(Source, usize)>, Malformed> {
    let Some(end) = bytes.iter().take(MAX_V1_HEADER).position(|byte| *byte == b'\n') else {
        return if bytes.len() < MAX_V1_HEADER {
            Ok(None)
        } else {
            Err(Malformed("the version 1 header is longer than 107 bytes"))
        };
    };
    let line = bytes[..end].strip_suffix(b"\r").and_then(|line| str::from_utf8(line).ok());
    let line = line.ok_or(Malformed("the version 1 header is not text that ends in CRLF"))?;
    let mut words = line.split(' ').skip(1);
    let source = match words.next() {
        // The standard says to ignore the rest of the line.
        Some("UNKNOWN") => Source::Local,
        Some("TCP4") => Source::Proxied(source_v1::<Ipv4Addr>(&mut words)?),
        Some("TCP6") => Source::Proxied(source_v1::<Ipv6Addr>(&mut words)?),
        _ => return Err(Malformed("the family is not TCP4, TCP6 or UNKNOWN")),
    };
    Ok(Some((source, end + 1)))
}

/// Parses two addresses and two ports, each number in its only spelling.
fn source_v1<'l, A>(words: &mut impl Iterator<Item = &'l str>) -> Result<SocketAddr, Malformed>
where
    A: std::str::FromStr + Into<IpAddr>,
{
    let malformed = Malformed("expected two addresses of one family and two ports");
    let mut next = || words.next().ok_or(malformed);
    let address = |text: &str| text.parse::<A>().map_err(|_| malformed);
    let port = |text: &str| text.parse::<u16>().ok().filter(|port| port.to_string() == text).ok_or(malformed);
    let source = address(next()?)?;
    let _ = address(next()?)?;
    let source_port = port(next()?)?;
    let _ = port(next()?)?;
    match words.next() {
        None => Ok(SocketAddr::new(source.into(), source_port)),
        Some(_) => Err(malformed),
    }
}

fn parse_v2(bytes: &[u8]) -> Result<Option<(Source, usize)>, Malformed> {
    let Some((head, rest)) = bytes.split_first_chunk::<V2_HEAD>() else { return Ok(None) };
    let len = usize::from(u16::from_be_bytes([head[14], head[15]]));
    if V2_HEAD + len > MAX_HEADER {
        return Err(Malformed("the version 2 header is longer than 4096 bytes"));
    }
    // The extensions after the addresses are skipped.
    let Some(rest) = rest.get(..len) else { return Ok(None) };
    let too_short = Malformed("the version 2 header is too short for its addresses");
    let source = match (head[12], head[13]) {
        (0x20, _) => Source::Local,
        (0x21, 0x11) => {
            let [a, b, c, d, .., high, low, _, _] = *rest.first_chunk::<12>().ok_or(too_short)?;
            Source::Proxied((Ipv4Addr::new(a, b, c, d), u16::from_be_bytes([high, low])).into())
        }
        (0x21, 0x21) => {
            let addresses = rest.first_chunk::<36>().ok_or(too_short)?;
            let source = addresses.first_chunk::<16>().ok_or(too_short)?;
            let [.., high, low, _, _] = *addresses;
            Source::Proxied((Ipv6Addr::from(*source), u16::from_be_bytes([high, low])).into())
        }
        // Without a family, or over a Unix socket.
        (0x21, 0x00 | 0x31) => Source::Local,
        _ => return Err(Malformed("the version 2 header is for neither TCP nor a local connection")),
    };
    Ok(Some((source, V2_HEAD + len)))
}

/// The header that names a client to `server`. The client's port is 0, because requests of several of its connections
/// may use this one.
pub fn header(version: Version, client: IpAddr, server: SocketAddr) -> Vec<u8> {
    let (client, server_ip) = match (client.to_canonical(), server.ip().to_canonical()) {
        (IpAddr::V4(client), IpAddr::V4(server)) => (IpAddr::V4(client), IpAddr::V4(server)),
        // Both must be of one family in this protocol.
        (client, server) => (IpAddr::V6(as_v6(client)), IpAddr::V6(as_v6(server))),
    };
    match version {
        Version::V1 => {
            let family = if client.is_ipv4() { "TCP4" } else { "TCP6" };
            format!("PROXY {family} {client} {server_ip} 0 {}\r\n", server.port()).into_bytes()
        }
        Version::V2 => {
            let (family, addresses) = match (client, server_ip) {
                (IpAddr::V4(client), IpAddr::V4(server)) => (0x11, [client.octets(), server.octets()].concat()),
                (client, server) => (0x21, [as_v6(client).octets(), as_v6(server).octets()].concat()),
            };
            // The addresses and four bytes for the ports: 12 or 36.
            let len = u8::try_from(addresses.len() + 4).unwrap_or_default();
            let ports = [[0, 0], server.port().to_be_bytes()].concat();
            [SIGNATURE.as_slice(), &[0x21, family, 0, len], &addresses, &ports].concat()
        }
    }
}

fn as_v6(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v2(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        let len = u16::try_from(rest.len()).expect("short").to_be_bytes();
        [SIGNATURE.as_slice(), &[command, family], &len, rest].concat()
    }

    /// Asserts that no prefix of the header parses, and that no byte after it belongs to it.
    fn parse_whole(header: &[u8]) -> Source {
        for end in 0..header.len() {
            assert_eq!(parse(&header[..end]), Ok(None), "{end} bytes of {}", header.escape_ascii());
        }
        let (source, len) = parse(&[header, b"GET"].concat()).expect("a header").expect("a whole one");
        assert_eq!(len, header.len(), "{}", header.escape_ascii());
        source
    }

    fn client(address: &str) -> Source {
        Source::Proxied(address.parse().expect("an address"))
    }

    #[test]
    fn a_header_names_the_client() {
        for (header, source) in [
            (&b"PROXY TCP4 198.51.100.7 192.0.2.1 51234 443\r\n"[..], client("198.51.100.7:51234")),
            (b"PROXY TCP6 2001:db8::7 ::1 0 65535\r\n", client("[2001:db8::7]:0")),
            (b"PROXY UNKNOWN\r\n", Source::Local),
            (b"PROXY UNKNOWN ffff::1 ffff::1 65535 65535\r\n", Source::Local),
        ] {
            assert_eq!(parse_whole(header), source);
        }
        let v4 = [198, 51, 100, 7, 192, 0, 2, 1, 0xc8, 0x22, 1, 0xbb];
        let v6 = [&[0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7][..], &[0; 16], &[0, 80, 0, 0]].concat();
        assert_eq!(parse_whole(&v2(0x21, 0x11, &v4)), client("198.51.100.7:51234"));
        assert_eq!(parse_whole(&v2(0x21, 0x11, &[&v4[..], &[0; 500]].concat())), client("198.51.100.7:51234"));
        assert_eq!(parse_whole(&v2(0x21, 0x21, &v6)), client("[2001:db8::7]:80"));
        assert_eq!(parse_whole(&v2(0x21, 0x31, &[b'/'; 216])), Source::Local);
        assert_eq!(parse_whole(&v2(0x21, 0x00, &[])), Source::Local);
        assert_eq!(parse_whole(&v2(0x20, 0x00, &[])), Source::Local);
        assert_eq!(parse_whole(&v2(0x20, 0x11, &v4)), Source::Local);
    }

    #[test]
    fn a_written_header_can_be_parsed() {
        let server: SocketAddr = "192.0.2.1:80".parse().expect("an address");
        let server_v6: SocketAddr = "[2001:db8::1]:80".parse().expect("an address");
        for (from, server, named) in [
            ("198.51.100.7", server, "198.51.100.7:0"),
            ("::ffff:198.51.100.7", server, "198.51.100.7:0"),
            ("2001:db8::7", server, "[2001:db8::7]:0"),
            ("2001:db8::7", server_v6, "[2001:db8::7]:0"),
            ("198.51.100.7", server_v6, "[::ffff:198.51.100.7]:0"),
        ] {
            for version in [Version::V1, Version::V2] {
                assert_eq!(parse_whole(&header(version, from.parse().expect("an address"), server)), client(named));
            }
        }
        let written = header(Version::V1, IpAddr::from([198, 51, 100, 7]), server);
        assert_eq!(written, b"PROXY TCP4 198.51.100.7 192.0.2.1 0 80\r\n");
    }

    #[test]
    fn other_bytes_are_rejected() {
        for header in [
            "GET / HTTP/1.1\r\n",
            "\x16\x03\x01",
            "PROXYTCP4",
            "proxy TCP4 1.2.3.4 1.2.3.4 1 2\r\n",
            "PROXY\tTCP4 1.2.3.4 1.2.3.4 1 2\r\n",
            "PROXY  TCP4 1.2.3.4 1.2.3.4 1 2\r\n",
            "PROXY TCP4 1.2.3.4 1.2.3.4 1 2\n",
            "PROXY TCP4 1.2.3.4 1.2.3.4 1 2 \r\n",
            "PROXY TCP4 1.2.3.4 1.2.3.4 1 2 3\r\n",
            "PROXY TCP4 1.2.3.4 1.2.3.4 1\r\n",
            "PROXY TCP4 1.2.3.4\r\n",
            "PROXY TCP4  1.2.3.4 1.2.3.4 1 2\r\n",
            "PROXY TCP4 1.2.3.4 1.2.3.4 01 2\r\n",
            "PROXY TCP4 1.2.3.4 1.2.3.4 +1 2\r\n",
            "PROXY TCP4 1.2.3.4 1.2.3.4 65536 2\r\n",
            "PROXY TCP4 1.2.3.04 1.2.3.4 1 2\r\n",
            "PROXY TCP4 1.2.3 1.2.3.4 1 2\r\n",
            "PROXY TCP4 ::1 ::1 1 2\r\n",
            "PROXY TCP6 1.2.3.4 1.2.3.4 1 2\r\n",
            "PROXY TCP6 ::1%lo ::1 1 2\r\n",
            "PROXY UDP4 1.2.3.4 1.2.3.4 1 2\r\n",
            "PROXY TCP4\r\n",
            "PROXY \r\n",
            "\r\n\r\n\0\r\nQUIT\r",
        ] {
            assert!(parse(header.as_bytes()).is_err(), "{header:?}");
        }
        assert!(parse(format!("PROXY UNKNOWN {}\r\n", "x".repeat(92)).as_bytes()).is_err(), "108 bytes");
        assert!(parse(format!("PROXY UNKNOWN {}\r\n", "x".repeat(91)).as_bytes()).is_ok(), "107 bytes");
        for header in [
            v2(0x11, 0x11, &[0; 12]),
            v2(0x22, 0x11, &[0; 12]),
            v2(0x21, 0x12, &[0; 12]),
            v2(0x21, 0x22, &[0; 36]),
            v2(0x21, 0x41, &[0; 36]),
            v2(0x21, 0x11, &[0; 11]),
            v2(0x21, 0x21, &[0; 35]),
            v2(0x21, 0x11, &[0; MAX_HEADER - V2_HEAD + 1]),
        ] {
            assert!(parse(&header).is_err(), "{}", header.escape_ascii());
        }
    }
}
