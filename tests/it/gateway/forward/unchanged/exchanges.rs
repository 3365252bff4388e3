//! The requests and responses of the test, also unusual ones.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;

use crate::support::connection;

/// Headers that the gateway sets on every request.
pub const SET: [&str; 5] = ["forwarded", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-request-id"];
/// Headers that the gateway sets on a request with a token.
pub const IDENTITY: [&str; 4] = ["x-auth-issuer", "x-auth-scope", "x-auth-subject", "x-auth-token-id"];
/// Headers that differ between HTTP/1.1 and HTTP/2. The test compares them separately.
pub const FRAMING: [&str; 4] = ["content-length", "host", "te", "transfer-encoding"];

/// A request or a response without its first line.
#[derive(Clone, Default)]
pub struct Message {
    headers: Vec<(&'static str, Bytes)>,
    pub body: Bytes,
    /// If true, the message has no Content-Length.
    pub streamed: bool,
    trailers: Vec<(&'static str, &'static str)>,
}

impl Message {
    fn with(headers: &[(&'static str, &'static str)]) -> Message {
        let headers = headers.iter().map(|(name, value)| (*name, Bytes::from_static(value.as_bytes())));
        Message { headers: headers.collect(), ..Message::default() }
    }

    fn body(mut self, body: impl Into<Bytes>) -> Message {
        self.body = body.into();
        self
    }

    fn streamed(mut self) -> Message {
        self.streamed = true;
        self
    }

    fn trailers(mut self, trailers: &[(&'static str, &'static str)]) -> Message {
        self.trailers = trailers.to_vec();
        self.streamed()
    }

    pub fn header_map(&self) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in &self.headers {
            map.append(*name, HeaderValue::from_maybe_shared(value.clone()).expect("a valid value"));
        }
        map
    }

    pub fn trailer_map(&self) -> HeaderMap {
        let field = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        self.trailers.iter().map(field).collect()
    }

    pub fn to_body(&self) -> connection::Body {
        if !self.streamed {
            return Full::new(self.body.clone()).boxed_unsync();
        }
        let chunks: Vec<Bytes> = self.body.chunks(10_007).map(Bytes::copy_from_slice).collect();
        let trailers = (!self.trailers.is_empty()).then(|| Frame::trailers(self.trailer_map()));
        let frames = chunks.into_iter().map(Frame::data).chain(trailers).map(Ok);
        StreamBody::new(futures_util::stream::iter(frames.collect::<Vec<_>>())).boxed_unsync()
    }
}

/// A request, and the response of the backend.
pub struct Exchange {
    pub name: &'static str,
    pub method: &'static str,
    pub target: &'static str,
    pub request: Message,
    pub status: u16,
    pub response: Message,
}

pub fn exchange(name: &'static str, method: &'static str, target: &'static str) -> Exchange {
    Exchange { name, method, target, request: Message::default(), status: 200, response: Message::default() }
}

impl Exchange {
    fn sends(mut self, request: Message) -> Exchange {
        self.request = request;
        self
    }

    fn receives(mut self, status: u16, response: Message) -> Exchange {
        (self.status, self.response) = (status, response);
        self
    }
}

/// Pseudo-random bytes, so that a lost or duplicated part is found.
fn noise(length: usize) -> Bytes {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let byte = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..length).map(byte).collect::<Vec<u8>>().into()
}

pub fn exchanges() -> Vec<Exchange> {
    let plain = || Message::with(&[]);
    let large: &'static str = "v".repeat(8 << 10).leak();
    let many: Vec<(&'static str, &'static str)> = (0..80).map(|number| (&*format!("x-{number}").leak(), "1")).collect();
    let odd = Bytes::from_static(b"\x80\xff tab:\there, \"quoted; \\ \" %00 \xc3\xa4=");
    let mut odd_values = Message::with(&[
        ("x-empty", ""),
        ("x-quoted", "\"a\\\"b\", c"),
        ("x!#$%&'*+.^_`|~9", "every character that a name may have"),
        ("x-list", "a"),
        ("x-list", "b, c"),
        ("x-list", ""),
        ("x-between", "1"),
        ("x-list", "a"),
    ]);
    odd_values.headers.push(("x-odd", odd));
    let sums = [("x-sum", "7"), ("x-also", "of bears"), ("x-sum", "8")];
    let announced = [("trailer", "x-sum, x-also"), ("te", "trailers")];
    let mut all = vec![
        exchange("no headers and no body", "GET", "/"),
        exchange("an encoded target", "REPORT", "/a%7Eb/%C3%A4/C/?x=%20&y&z==?&%2f;&//"),
        exchange("a target of special characters", "GET", "/-._~!$&'()*+,=:@"),
        exchange("no body and no length", "POST", "/").sends(plain().streamed()).receives(200, plain().streamed()),
        exchange("an empty body", "POST", "/").sends(plain()),
        exchange("a DELETE with a body", "DELETE", "/bears/7").sends(plain().body("too many")).receives(204, plain()),
        exchange("unusual values", "PUT", "/").sends(odd_values.clone()).receives(200, odd_values),
        exchange("large headers", "GET", "/")
            .sends(Message::with(&[("x-large", large)]))
            .receives(200, Message::with(&[("x-large", large), ("x-larger", large)])),
        exchange("many headers", "GET", "/").sends(Message::with(&many)).receives(200, Message::with(&many)),
        exchange("usual request headers", "GET", "/").sends(Message::with(&[
            ("accept", "text/html,*/*;q=0.8"),
            ("accept-encoding", "gzip, br"),
            ("user-agent", "bear/1.0 (brown)"),
            ("if-none-match", "W/\"1\", \"2\""),
            ("origin", "null"),
            ("via", "1.1 cave"),
            ("x-forwarders", "not one of x-forwarded-*"),
        ])),
        exchange("compressed", "POST", "/")
            .sends(Message::with(&[("content-encoding", "gzip"), ("content-type", "a/b")]).body(noise(100)))
            .receives(200, Message::with(&[("content-encoding", "br"), ("vary", "*")]).body(noise(100))),
        exchange("cookies set", "GET", "/").receives(
            302,
            Message::with(&[
                ("set-cookie", "a=1; Path=/"),
                ("set-cookie", "b=2"),
                ("location", "../c?d#e"),
                ("age", "0"),
            ]),
        ),
        exchange("a length for HEAD", "HEAD", "/").receives(200, Message::with(&[("content-length", "12345")])),
        exchange("no length for HEAD", "HEAD", "/").receives(404, plain()),
        exchange("not modified", "GET", "/").receives(304, Message::with(&[("etag", "\"1\""), ("vary", "accept")])),
        exchange("reset content", "POST", "/").receives(205, plain()),
        exchange("a range", "GET", "/")
            .sends(Message::with(&[("range", "bytes=2-5,7-"), ("if-range", "\"1\"")]))
            .receives(
                206,
                Message::with(&[("content-range", "bytes 2-5/10"), ("accept-ranges", "bytes")]).body("cdef"),
            ),
        exchange("not in the range", "GET", "/").receives(416, Message::with(&[("content-range", "bytes */10")])),
        exchange("an unregistered status", "GET", "/").receives(599, plain().body("?")),
        exchange("a 401 of the backend", "GET", "/").receives(401, Message::with(&[("www-authenticate", "Basic")])),
        exchange("trailers both ways", "POST", "/")
            .sends(Message::with(&announced).body(noise(30_000)).trailers(&sums))
            .receives(200, Message::with(&announced[..1]).body(noise(30_000)).trailers(&sums)),
        exchange("trailers without a body", "POST", "/")
            .sends(Message::with(&announced).trailers(&sums))
            .receives(200, Message::with(&announced[..1]).trailers(&sums)),
        exchange("options of a path", "OPTIONS", "/").receives(204, Message::with(&[("allow", "GET, OPTIONS")])),
        exchange("no headers and no body, again", "GET", "/"),
    ];
    for length in [1, (64 << 10) - 1, 64 << 10, (64 << 10) + 1, (3 << 20) + 7] {
        let body = noise(length);
        let known = || plain().body(body.clone());
        all.push(exchange("known lengths", "PUT", "/known").sends(known()).receives(201, known()));
        all.push(
            exchange("unknown lengths", "PATCH", "/unknown")
                .sends(known().streamed())
                .receives(200, known().streamed()),
        );
    }
    all
}

/// `name: value` of all fields but those in `without`, sorted by name. Values of one name keep their order.
pub fn fields(headers: &HeaderMap, without: &[&str]) -> Vec<String> {
    let mut names: Vec<&HeaderName> = headers.keys().filter(|name| !without.contains(&name.as_str())).collect();
    names.sort_by_key(|name| name.as_str());
    let values = |name: &HeaderName| {
        let line = |value: &HeaderValue| format!("{name}: {}", value.as_bytes().escape_ascii());
        headers.get_all(name).iter().map(line).collect::<Vec<_>>()
    };
    names.into_iter().flat_map(values).collect()
}
