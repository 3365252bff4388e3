//! Messages as Envoy sends them, and damaged ones.

use http::Method;

use super::*;
use crate::protocols::protobuf::Message;

const HEADERS_OF_TEST: [(&str, &str); 9] = [
    (":method", "DELETE"),
    (":authority", "api.example:8443"),
    (":path", "/orders/%31?a=b"),
    (":scheme", "https"),
    ("authorization", "Bearer x.y.z"),
    ("x-forwarded-for", "198.51.100.7"),
    ("content-length", "4"),
    ("client-cert", ":AA==:"),
    ("x_auth_subject", "root"),
];

/// What a message says.
#[derive(Clone)]
struct Said {
    source: &'static str,
    texts: Vec<(u32, &'static str)>,
    headers: Vec<(&'static str, &'static str)>,
    is_raw: bool,
}

fn said() -> Said {
    let texts = [(1, "42"), (METHOD, "DELETE"), (PATH, "/orders/%31?a=b"), (HOST, "api.example:8443")];
    let texts = texts.into_iter().chain([(SCHEME, "https"), (10, "HTTP/1.1")]).collect();
    Said { source: "198.51.100.7", texts, headers: HEADERS_OF_TEST.to_vec(), is_raw: true }
}

fn peer(message: &mut Message, field: u32, address: &str) {
    message.message(field, |peer| {
        peer.message(PEER_ADDRESS, |of| {
            of.message(SOCKET_ADDRESS, |socket| {
                socket.bytes(ADDRESS, address.as_bytes());
                socket.number(3, 40_000);
            });
        });
        peer.bytes(4, b"spiffe://a/b");
    });
}

impl Said {
    fn http(&self) -> Message {
        let mut http = Message::default();
        self.texts.iter().for_each(|(number, text)| http.bytes(*number, text.as_bytes()));
        http.number(9, u64::MAX);
        let entry = |message: &mut Message, (key, value): (&str, &str), number| {
            message.bytes(KEY, key.as_bytes());
            message.bytes(number, value.as_bytes());
        };
        if self.is_raw {
            http.message(HEADER_MAP, |map| {
                for header in &self.headers {
                    map.message(MAP_HEADERS, |message| entry(message, *header, RAW_VALUE));
                }
            });
        } else {
            for header in &self.headers {
                http.message(HEADERS, |message| entry(message, *header, VALUE));
            }
        }
        http
    }

    fn with_http(&self, http: &[u8]) -> Vec<u8> {
        let mut check = Message::default();
        check.message(ATTRIBUTES, |attributes| {
            peer(attributes, SOURCE, self.source);
            peer(attributes, 2, "10.0.0.1");
            attributes.message(REQUEST, |request| {
                request.message(1, |time| time.number(1, 1_700_000_000));
                request.bytes(HTTP, http);
            });
            attributes.message(10, |extension| extension.bytes(KEY, b"k"));
        });
        check.0
    }

    fn bytes(&self) -> Vec<u8> {
        self.with_http(&self.http().0)
    }

    /// What is wrong with it.
    fn fault(&self) -> Option<String> {
        fault(&self.bytes())
    }
}

fn fault(message: &[u8]) -> Option<String> {
    CheckRequest::read(message, 100).err().map(|reject| {
        assert!(matches!(reject.reason, Reason::BadAuthCall | Reason::HeadTooLarge), "{:?}", reject.reason);
        reject.detail.into_owned()
    })
}

#[test]
fn a_message_of_envoy_is_read_in_both_forms() {
    for is_raw in [false, true] {
        let message = Said { is_raw, ..said() }.bytes();
        let check = CheckRequest::read(&message, 100).expect("a message");
        let Question { method, target, host } = &check.question;
        assert_eq!((method, target.to_string().as_str()), (&Method::DELETE, "/orders/%31?a=b"));
        assert_eq!(host, "api.example:8443");
        assert_eq!((check.source.to_string().as_str(), check.scheme), ("198.51.100.7", &b"https"[..]));
        let names: Vec<_> = check.headers.keys().map(HeaderName::as_str).collect();
        // Neither pseudo-headers nor a length: the body stays with Envoy. No certificate that the client names.
        assert_eq!(names, ["authorization", "x-forwarded-for", "x_auth_subject"], "raw: {is_raw}");
    }
}

#[test]
fn a_client_of_the_same_link_has_an_address() {
    for source in ["fe80::1", "fe80::1%2", "fe80::1%eth0"] {
        let message = Said { source, ..said() }.bytes();
        let check = CheckRequest::read(&message, 100).unwrap_or_else(|reject| panic!("{source}: {}", reject.detail));
        assert_eq!(check.source.to_string(), "fe80::1", "{source}");
    }
}

#[test]
fn what_is_not_clear_rejects_the_call() {
    let with = |number: u32, text: &'static str| {
        let texts = said().texts.into_iter().map(|(other, usual)| (other, if other == number { text } else { usual }));
        Said { texts: texts.collect(), ..said() }
    };
    for (number, text) in [
        (METHOD, ""),
        (METHOD, "GET /"),
        (METHOD, "CONNECT"),
        (METHOD, "GET"),
        (PATH, ""),
        (PATH, "orders"),
        (PATH, "*"),
        (PATH, "/public#/orders"),
        (PATH, "https://api.example/orders"),
        (PATH, "/orders/1?a=b"),
        (HOST, ""),
        (HOST, "a/b"),
        (HOST, "api.example"),
        (SCHEME, "http"),
    ] {
        assert!(with(number, text).fault().is_some(), "{number}: {text}");
    }
    for (number, text) in [(QUERY, "a=b"), (FRAGMENT, "a"), (METHOD, "DELETE"), (PATH, "/orders/%31?a=b")] {
        let mut twice = said();
        twice.texts.push((number, text));
        assert!(twice.fault().is_some(), "{number}: {text}");
    }
    for source in ["", "localhost", "10.0.0.1:80", "10.0.0.1%2", "/run/envoy.sock"] {
        assert!(Said { source, ..said() }.fault().is_some(), "{source}");
    }
    for header in [
        ("", "x"),
        ("a b", "x"),
        ("x", "a\nb"),
        (":method", "GET"),
        (":path", "/public"),
        (":protocol", "websocket"),
        (":other", "x"),
        ("host", "other.example"),
    ] {
        let mut more = said();
        more.headers.push(header);
        assert!(more.fault().is_some(), "{header:?}");
    }
    for (is_raw, expected) in [(true, false), (false, true)] {
        let mut twice = Said { is_raw, ..said() };
        twice.headers.push(("authorization", "Bearer a.b.c"));
        assert_eq!(twice.fault().is_some(), expected, "joined in one form, apart in the other");
    }
}

#[test]
fn a_message_within_a_message_is_there_once() {
    let http = said().http().0;
    let other = Said { headers: vec![(":path", "/public")], ..said() };
    for is_raw in [false, true] {
        let both = [&http[..], &Said { is_raw, ..other.clone() }.http().0].concat();
        assert_eq!(fault(&said().with_http(&both)).as_deref(), Some("request.http is malformed or repeated"));
    }
    let mut both_forms = said().http();
    both_forms.message(HEADERS, |entry| entry.bytes(KEY, b"x"));
    assert!(fault(&said().with_http(&both_forms.0)).is_some());
    let mut two_values = said().http();
    two_values.message(HEADERS, |entry| entry.number(KEY, 1));
    assert!(fault(&said().with_http(&two_values.0)).is_some());
    // Envoy could act on either.
    for (name, value) in [(":path", "/orders/%31?a=b"), (":method", "DELETE"), (":authority", "api.example:8443")] {
        for is_raw in [true, false] {
            let mut http = Said { is_raw: false, headers: Vec::new(), ..said() }.http();
            let entry = |entry: &mut Message| {
                entry.bytes(KEY, name.as_bytes());
                entry.bytes(VALUE, value.as_bytes());
                entry.bytes(RAW_VALUE, b"/public");
            };
            if is_raw {
                http.message(HEADER_MAP, |map| map.message(MAP_HEADERS, entry));
            } else {
                http.message(HEADERS, entry);
            }
            assert_eq!(fault(&said().with_http(&http.0)).as_deref(), Some("a header has two values"), "{name}");
        }
    }
    let message = said().bytes();
    assert!(fault(&[&message[..], &message].concat()).is_some(), "two of attributes");
    let mut unknown = Message(message);
    unknown.bytes(1000, b"of a later version");
    assert_eq!(fault(&unknown.0), None);
    assert!(fault(b"").is_some());
}

#[test]
fn headers_are_counted_before_they_are_kept() {
    let mut many = said();
    many.headers = vec![("x", "1"); 100];
    assert_eq!(many.fault(), None);
    many.headers.push(("x", "1"));
    assert!(many.fault().is_some_and(|fault| fault.contains("request_header_count")));
    many.headers = vec![("cookie", "a=1"); 1000];
    assert_eq!(many.fault(), None);
}

/// The value of a field as another reader finds it: the first or the last one, and an unreadable rest ignored.
fn by_another_reader(message: &[u8], path: &[u32], takes_first: bool) -> Vec<u8> {
    path.iter().fold(message.to_vec(), |message, number| {
        let mut found = Fields(&message).map_while(Result::ok).filter_map(|(other, field)| match field {
            Field::Bytes(bytes) if other == *number => Some(bytes),
            _ => None,
        });
        let found = if takes_first { found.next() } else { found.last() };
        found.unwrap_or_default().to_vec()
    })
}

/// A damaged message is rejected, or every reader finds the same request in it.
#[test]
fn damaged_messages_have_one_meaning_or_none() {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state % below as u64).expect("small")
    };
    let whole = [said().bytes(), Said { is_raw: false, ..said() }.bytes()];
    let mut read = 0;
    let mut rejected = 0;
    for round in 0..400_000 {
        let mut message = whole[round % 2].clone();
        for _ in 0..=random(3) {
            let at = random(message.len());
            match random(6) {
                0 => message[at] ^= 1 << random(8),
                1 => message[at] = u8::try_from(random(256)).expect("a byte"),
                2 => message.truncate(at + 1),
                3 => {
                    message.remove(at);
                }
                4 => message.insert(at, u8::try_from(random(256)).expect("a byte")),
                _ => {
                    let piece = message[at..(at + random(40)).min(message.len())].to_vec();
                    let to = random(message.len());
                    drop(message.splice(to..to, piece));
                }
            }
            if message.is_empty() {
                message.push(0);
            }
        }
        let Ok(check) = CheckRequest::read(&message, 100) else {
            rejected += 1;
            continue;
        };
        read += 1;
        for takes_first in [true, false] {
            let of = |number| by_another_reader(&message, &[ATTRIBUTES, REQUEST, HTTP, number], takes_first);
            let Question { method, target, host } = &check.question;
            assert_eq!(of(METHOD), method.as_str().as_bytes(), "{message:?}");
            assert_eq!(of(PATH), target.to_string().as_bytes(), "{message:?}");
            assert_eq!((of(HOST).as_slice(), of(SCHEME).as_slice()), (host.as_bytes(), check.scheme), "{message:?}");
            let path = [ATTRIBUTES, SOURCE, PEER_ADDRESS, SOCKET_ADDRESS, ADDRESS];
            let source = by_another_reader(&message, &path, takes_first);
            assert_eq!(String::from_utf8(source).ok().and_then(|text| text.parse().ok()), Some(check.source));
        }
    }
    assert!(read > 10_000 && rejected > 100_000, "{read} read, {rejected} rejected");
}
