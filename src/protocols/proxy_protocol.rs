//! The PROXY protocol: how a balancer that passes connections on says whose they are, and how we say it to a backend
//! (haproxy.org, `proxy-protocol.txt`, versions 1 and 2). Pure.
//!
//! What is read here becomes the client's address, so it is read as strictly as a head, and by ourselves: the libraries for
//! it take a port of `+80` and other separators than the space. Nothing is guessed: where the header is expected, a
//! connection without one is none.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// Signature, command, family, and the length of what follows.
const V2_HEAD: usize = 16;
/// Of version 1, with its CRLF: two IPv6 addresses in their longest form.
const V1_LONGEST: usize = 107;
/// Of version 2. Senders put certificates' names into its extensions; nobody needs more.
pub const LONGEST: usize = 4096;

/// Which version is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    V1,
    V2,
}

/// Whose connection it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// This client's.
    Proxied(SocketAddr),
    /// The sender's own, as for a health check, or of a client whose address it does not tell.
    Local,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

/// Reads the header at the beginning of `bytes`, and how long it is; `None` if it is not all there.
pub fn read(bytes: &[u8]) -> Result<Option<(Source, usize)>, Malformed> {
    let begins =
        |with: &[u8]| bytes.len().min(with.len()) > 0 && with.starts_with(&bytes[..bytes.len().min(with.len())]);
    match bytes {
        [] => Ok(None),
        _ if begins(SIGNATURE) => read_v2(bytes),
        _ if begins(b"PROXY ") => read_v1(bytes),
        _ => Err(Malformed("no PROXY protocol")),
    }
}

fn read_v1(bytes: &[u8]) -> Result<Option<(Source, usize)>, Malformed> {
    let Some(end) = bytes.iter().take(V1_LONGEST).position(|byte| *byte == b'\n') else {
        return if bytes.len() < V1_LONGEST { Ok(None) } else { Err(Malformed("a line that does not end")) };
    };
    let line = bytes[..end].strip_suffix(b"\r").and_then(|line| str::from_utf8(line).ok());
    let line = line.ok_or(Malformed("a line that does not end in CRLF, or is no text"))?;
    let mut words = line.split(' ').skip(1);
    let whose = match words.next() {
        // Whatever follows is to be ignored.
        Some("UNKNOWN") => Source::Local,
        Some("TCP4") => Source::Proxied(source_v1::<Ipv4Addr>(&mut words)?),
        Some("TCP6") => Source::Proxied(source_v1::<Ipv6Addr>(&mut words)?),
        _ => return Err(Malformed("neither TCP4, TCP6 nor UNKNOWN")),
    };
    Ok(Some((whose, end + 1)))
}

/// Two addresses, two ports, nothing else, in the one spelling that there is of each number.
fn source_v1<'l, A>(words: &mut impl Iterator<Item = &'l str>) -> Result<SocketAddr, Malformed>
where
    A: std::str::FromStr + Into<IpAddr>,
{
    let malformed = Malformed("not two addresses of one family and two ports");
    let mut next = || words.next().ok_or(malformed);
    let address = |text: &str| text.parse::<A>().map_err(|_| malformed);
    let port = |text: &str| text.parse::<u16>().ok().filter(|port| port.to_string() == text).ok_or(malformed);
    let (source, _, source_port, _) = (address(next()?)?, address(next()?)?, port(next()?)?, port(next()?)?);
    match words.next() {
        None => Ok(SocketAddr::new(source.into(), source_port)),
        Some(_) => Err(malformed),
    }
}

fn read_v2(bytes: &[u8]) -> Result<Option<(Source, usize)>, Malformed> {
    let Some((head, rest)) = bytes.split_first_chunk::<V2_HEAD>() else { return Ok(None) };
    let len = usize::from(u16::from_be_bytes([head[14], head[15]]));
    if V2_HEAD + len > LONGEST {
        return Err(Malformed("longer than any that is needed"));
    }
    // What stands behind the addresses, extensions and their checksum, is passed over.
    let Some(rest) = rest.get(..len) else { return Ok(None) };
    let too_short = Malformed("too short for its addresses");
    let whose = match (head[12], head[13]) {
        (0x20, _) => Source::Local,
        (0x21, 0x11) => {
            let [a, b, c, d, .., high, low, _, _] = *rest.first_chunk::<12>().ok_or(too_short)?;
            Source::Proxied((Ipv4Addr::new(a, b, c, d), u16::from_be_bytes([high, low])).into())
        }
        (0x21, 0x21) => {
            let addresses = rest.first_chunk::<36>().ok_or(too_short)?;
            let (source, [.., high, low, _, _]) = (addresses.first_chunk::<16>().ok_or(too_short)?, *addresses);
            Source::Proxied((Ipv6Addr::from(*source), u16::from_be_bytes([high, low])).into())
        }
        // Of no family, or by a socket of the sender's machine.
        (0x21, 0x00 | 0x31) => Source::Local,
        _ => return Err(Malformed("neither a stream nor a local connection of version 2")),
    };
    Ok(Some((whose, V2_HEAD + len)))
}

/// What is said to `server` about a client. No port of the client's: its connections may take turns on this one.
pub fn write(version: Version, client: IpAddr, server: SocketAddr) -> Vec<u8> {
    let (client, server_ip) = match (client.to_canonical(), server.ip().to_canonical()) {
        (IpAddr::V4(client), IpAddr::V4(server)) => (IpAddr::V4(client), IpAddr::V4(server)),
        // Both are of one family in this protocol.
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
            // Four more bytes for the ports: 12 and 36 fit.
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

    /// Asserts that no beginning of it is taken for the whole, nor what follows for a part of it.
    fn whole(header: &[u8]) -> Source {
        for end in 0..header.len() {
            assert_eq!(read(&header[..end]), Ok(None), "{end} bytes of {}", header.escape_ascii());
        }
        let (whose, len) = read(&[header, b"GET"].concat()).expect("a header").expect("a whole one");
        assert_eq!(len, header.len(), "{}", header.escape_ascii());
        whose
    }

    fn client(address: &str) -> Source {
        Source::Proxied(address.parse().expect("an address"))
    }

    #[test]
    fn a_header_says_whose_a_connection_is() {
        for (header, whose) in [
            (&b"PROXY TCP4 198.51.100.7 192.0.2.1 51234 443\r\n"[..], client("198.51.100.7:51234")),
            (b"PROXY TCP6 2001:db8::7 ::1 0 65535\r\n", client("[2001:db8::7]:0")),
            (b"PROXY UNKNOWN\r\n", Source::Local),
            (b"PROXY UNKNOWN ffff::1 ffff::1 65535 65535\r\n", Source::Local),
        ] {
            assert_eq!(whole(header), whose);
        }
        let v4 = [198, 51, 100, 7, 192, 0, 2, 1, 0xc8, 0x22, 1, 0xbb];
        let v6 = [&[0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7][..], &[0; 16], &[0, 80, 0, 0]].concat();
        assert_eq!(whole(&v2(0x21, 0x11, &v4)), client("198.51.100.7:51234"));
        assert_eq!(whole(&v2(0x21, 0x11, &[&v4[..], &[0; 500]].concat())), client("198.51.100.7:51234"));
        assert_eq!(whole(&v2(0x21, 0x21, &v6)), client("[2001:db8::7]:80"));
        assert_eq!(whole(&v2(0x21, 0x31, &[b'/'; 216])), Source::Local);
        assert_eq!(whole(&v2(0x21, 0x00, &[])), Source::Local);
        assert_eq!(whole(&v2(0x20, 0x00, &[])), Source::Local);
        assert_eq!(whole(&v2(0x20, 0x11, &v4)), Source::Local);
    }

    #[test]
    fn what_is_written_is_read_again() {
        let server: SocketAddr = "192.0.2.1:80".parse().expect("an address");
        let server_v6: SocketAddr = "[2001:db8::1]:80".parse().expect("an address");
        for (from, server, told) in [
            ("198.51.100.7", server, "198.51.100.7:0"),
            ("::ffff:198.51.100.7", server, "198.51.100.7:0"),
            ("2001:db8::7", server, "[2001:db8::7]:0"),
            ("2001:db8::7", server_v6, "[2001:db8::7]:0"),
            ("198.51.100.7", server_v6, "[::ffff:198.51.100.7]:0"),
        ] {
            for version in [Version::V1, Version::V2] {
                assert_eq!(whole(&write(version, from.parse().expect("an address"), server)), client(told));
            }
        }
        let written = write(Version::V1, IpAddr::from([198, 51, 100, 7]), server);
        assert_eq!(written, b"PROXY TCP4 198.51.100.7 192.0.2.1 0 80\r\n");
    }

    #[test]
    fn nothing_else_is_a_header() {
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
            assert!(read(header.as_bytes()).is_err(), "{header:?}");
        }
        assert!(read(format!("PROXY UNKNOWN {}\r\n", "x".repeat(92)).as_bytes()).is_err(), "108 bytes");
        assert!(read(format!("PROXY UNKNOWN {}\r\n", "x".repeat(91)).as_bytes()).is_ok(), "107 bytes");
        for header in [
            v2(0x11, 0x11, &[0; 12]),
            v2(0x22, 0x11, &[0; 12]),
            v2(0x21, 0x12, &[0; 12]),
            v2(0x21, 0x22, &[0; 36]),
            v2(0x21, 0x41, &[0; 36]),
            v2(0x21, 0x11, &[0; 11]),
            v2(0x21, 0x21, &[0; 35]),
            v2(0x21, 0x11, &[0; LONGEST - V2_HEAD + 1]),
        ] {
            assert!(read(&header).is_err(), "{}", header.escape_ascii());
        }
    }
}
