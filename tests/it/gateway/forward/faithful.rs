//! Nobody can tell that a gateway stands between: whatever is sent arrives byte for byte, both ways, in all four combinations
//! of HTTP/1.1 and HTTP/2, but for the changes that `deploy/messages.md` lists.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Version};
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};

use crate::support::connection::{self, HttpConnection};
use crate::support::{Backend, Gateway};

/// What the gateway sets on every request.
pub const SET: [&str; 5] = ["forwarded", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-request-id"];
/// And on a request with a token.
pub const IDENTITY: [&str; 4] = ["x-auth-issuer", "x-auth-scope", "x-auth-subject", "x-auth-token-id"];
/// Where a body ends, which host is meant, whether trailers are welcome: each protocol says it in its own way. Looked at apart.
const FRAMING: [&str; 4] = ["content-length", "host", "te", "transfer-encoding"];

/// A request or an answer, without its first line.
#[derive(Clone, Default)]
struct Message {
    headers: Vec<(&'static str, Bytes)>,
    body: Bytes,
    /// Is the length told beforehand?
    streamed: bool,
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

    fn header_map(&self) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in &self.headers {
            map.append(*name, HeaderValue::from_maybe_shared(value.clone()).expect("a legal value"));
        }
        map
    }

    fn trailer_map(&self) -> HeaderMap {
        let field = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        self.trailers.iter().map(field).collect()
    }

    fn to_body(&self) -> connection::Body {
        if !self.streamed {
            return Full::new(self.body.clone()).boxed_unsync();
        }
        let pieces: Vec<Bytes> = self.body.chunks(10_007).map(Bytes::copy_from_slice).collect();
        let trailers = (!self.trailers.is_empty()).then(|| Frame::trailers(self.trailer_map()));
        let frames = pieces.into_iter().map(Frame::data).chain(trailers).map(Ok);
        StreamBody::new(futures_util::stream::iter(frames.collect::<Vec<_>>())).boxed_unsync()
    }
}

/// One exchange: what is sent, and what is answered.
pub struct Exchange {
    name: &'static str,
    method: &'static str,
    target: &'static str,
    request: Message,
    status: u16,
    response: Message,
}

pub fn exchange(name: &'static str, method: &'static str, target: &'static str) -> Exchange {
    Exchange { name, method, target, request: Message::default(), status: 200, response: Message::default() }
}

impl Exchange {
    fn says(mut self, request: Message) -> Exchange {
        self.request = request;
        self
    }

    fn hears(mut self, status: u16, response: Message) -> Exchange {
        (self.status, self.response) = (status, response);
        self
    }
}

/// So many bytes with no pattern in them that a lost or doubled piece would leave in place.
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

fn exchanges() -> Vec<Exchange> {
    let plain = || Message::with(&[]);
    let large: &'static str = "v".repeat(8 << 10).leak();
    let many: Vec<(&'static str, &'static str)> = (0..80).map(|number| (&*format!("x-{number}").leak(), "1")).collect();
    let odd = Bytes::from_static(b"\x80\xff tab:\there, \"quoted; \\ \" %00 \xc3\xa4=");
    let mut odd_values = Message::with(&[
        ("x-empty", ""),
        ("x-quoted", "\"a\\\"b\", c"),
        ("x!#$%&'*+.^_`|~9", "every sign that a name may have"),
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
        exchange("nothing at all", "GET", "/"),
        exchange("a target as it is", "REPORT", "/a%7Eb/%C3%A4/C/?x=%20&y&z==?&%2f;&//"),
        exchange("a target of signs", "GET", "/-._~!$&'()*+,=:@"),
        exchange("no body, of no told length", "POST", "/").says(plain().streamed()).hears(200, plain().streamed()),
        exchange("an empty body", "POST", "/").says(plain()),
        exchange("deletion with a reason", "DELETE", "/bears/7").says(plain().body("too many")).hears(204, plain()),
        exchange("odd values", "PUT", "/").says(odd_values.clone()).hears(200, odd_values),
        exchange("large headers", "GET", "/")
            .says(Message::with(&[("x-large", large)]))
            .hears(200, Message::with(&[("x-large", large), ("x-larger", large)])),
        exchange("many headers", "GET", "/").says(Message::with(&many)).hears(200, Message::with(&many)),
        exchange("what clients say", "GET", "/").says(Message::with(&[
            ("accept", "text/html,*/*;q=0.8"),
            ("accept-encoding", "gzip, br"),
            ("user-agent", "bear/1.0 (brown)"),
            ("if-none-match", "W/\"1\", \"2\""),
            ("origin", "null"),
            ("via", "1.1 cave"),
            ("x-forwarded", "not quite of the family"),
        ])),
        exchange("compressed", "POST", "/")
            .says(Message::with(&[("content-encoding", "gzip"), ("content-type", "a/b")]).body(noise(100)))
            .hears(200, Message::with(&[("content-encoding", "br"), ("vary", "*")]).body(noise(100))),
        exchange("cookies set", "GET", "/").hears(
            302,
            Message::with(&[
                ("set-cookie", "a=1; Path=/"),
                ("set-cookie", "b=2"),
                ("location", "../c?d#e"),
                ("age", "0"),
            ]),
        ),
        exchange("a length for HEAD", "HEAD", "/").hears(200, Message::with(&[("content-length", "12345")])),
        exchange("no length for HEAD", "HEAD", "/").hears(404, plain()),
        exchange("not modified", "GET", "/").hears(304, Message::with(&[("etag", "\"1\""), ("vary", "accept")])),
        exchange("reset content", "POST", "/").hears(205, plain()),
        exchange("a range", "GET", "/")
            .says(Message::with(&[("range", "bytes=2-5,7-"), ("if-range", "\"1\"")]))
            .hears(206, Message::with(&[("content-range", "bytes 2-5/10"), ("accept-ranges", "bytes")]).body("cdef")),
        exchange("not in the range", "GET", "/").hears(416, Message::with(&[("content-range", "bytes */10")])),
        exchange("a status of nobody's", "GET", "/").hears(599, plain().body("?")),
        exchange("a refusal of its own", "GET", "/").hears(401, Message::with(&[("www-authenticate", "Basic")])),
        exchange("trailers both ways", "POST", "/")
            .says(Message::with(&announced).body(noise(30_000)).trailers(&sums))
            .hears(200, Message::with(&announced[..1]).body(noise(30_000)).trailers(&sums)),
        exchange("trailers and nothing else", "POST", "/")
            .says(Message::with(&announced).trailers(&sums))
            .hears(200, Message::with(&announced[..1]).trailers(&sums)),
        exchange("options of a path", "OPTIONS", "/").hears(204, Message::with(&[("allow", "GET, OPTIONS")])),
        exchange("nothing at all, again", "GET", "/"),
    ];
    for length in [1, (64 << 10) - 1, 64 << 10, (64 << 10) + 1, (3 << 20) + 7] {
        let body = noise(length);
        let known = || plain().body(body.clone());
        all.push(exchange("known lengths", "PUT", "/known").says(known()).hears(201, known()));
        all.push(
            exchange("unknown lengths", "PATCH", "/unknown").says(known().streamed()).hears(200, known().streamed()),
        );
    }
    all
}

/// A request as it reached the backend.
pub struct Arrived {
    method: Method,
    target: String,
    host: String,
    pub headers: HeaderMap,
    body: Bytes,
    trailers: HeaderMap,
}

/// What the backend is to answer next, and what it was asked last.
#[derive(Default)]
pub struct Table {
    response: Mutex<Option<Response<connection::Body>>>,
    pub arrived: Mutex<Option<Arrived>>,
}

impl Table {
    pub async fn exchange(self: Arc<Self>, request: Request<Incoming>) -> Response<connection::Body> {
        let (head, body) = request.into_parts();
        let collected = body.collect().await.expect("a whole body");
        let trailers = collected.trailers().cloned().unwrap_or_default();
        let host = head.uri.authority().map(ToString::to_string);
        let field = || head.headers.get("host").and_then(|host| host.to_str().ok()).map(str::to_owned);
        *self.arrived.lock().expect("unpoisoned") = Some(Arrived {
            method: head.method,
            target: head.uri.path_and_query().expect("a path").to_string(),
            host: host.or_else(field).expect("a host"),
            headers: head.headers,
            body: collected.to_bytes(),
            trailers,
        });
        self.response.lock().expect("unpoisoned").take().expect("one request for each response")
    }

    /// A backend of this protocol that answers from a table, and a gateway in front of it.
    pub async fn served(version: Version) -> (Arc<Table>, Backend, Gateway) {
        let table = Arc::new(Table::default());
        let tables = table.clone();
        let backend = Backend::start(version, move |request| tables.clone().exchange(request)).await;
        let gateway = Gateway::from_text(Gateway::config_text(&backend.address.to_string(), backend.protocol()));
        (table, backend, gateway)
    }

    pub fn lay(&self, exchange: &Exchange) {
        let mut response = Response::new(exchange.response.to_body());
        *response.status_mut() = StatusCode::from_u16(exchange.status).expect("a status");
        *response.headers_mut() = exchange.response.header_map();
        response.headers_mut().insert("date", HeaderValue::from_static("Sat, 21 Nov 2026 05:00:00 GMT"));
        *self.response.lock().expect("unpoisoned") = Some(response);
    }
}

/// `Name: value` of all fields, sorted by name; the values of one name in their order.
pub fn fields(headers: &HeaderMap, without: &[&str]) -> Vec<String> {
    let mut names: Vec<&HeaderName> = headers.keys().filter(|name| !without.contains(&name.as_str())).collect();
    names.sort_by_key(|name| name.as_str());
    let values = |name: &HeaderName| {
        let line = |value: &HeaderValue| format!("{name}: {}", value.as_bytes().escape_ascii());
        headers.get_all(name).iter().map(line).collect::<Vec<_>>()
    };
    names.into_iter().flat_map(values).collect()
}

async fn tell(
    exchange: &Exchange,
    connection: &mut HttpConnection,
    token: &str,
    table: &Table,
    backend: Version,
    told: &str,
) {
    table.lay(exchange);
    let mut request = Request::builder().method(exchange.method).uri(exchange.target).body(exchange.request.to_body());
    let request = request.as_mut().expect("a request");
    *request.headers_mut() = exchange.request.header_map();
    let bearer = format!("Bearer {token}");
    request.headers_mut().insert("authorization", bearer.parse().expect("a value"));
    let request = std::mem::replace(request, Request::new(connection::empty()));
    let response = connection.send(request).await;
    let (head, body) = response.into_parts();
    let collected = body.collect().await.unwrap_or_else(|error| panic!("{told}: {error}"));

    // Up.
    let arrived = table.arrived.lock().expect("unpoisoned").take().unwrap_or_else(|| panic!("{told}: {head:?}"));
    assert_eq!((arrived.method.as_str(), arrived.target.as_str()), (exchange.method, exchange.target), "{told}");
    assert_eq!(arrived.host, "gateway.test", "{told}");
    let mut sent = exchange.request.header_map();
    sent.insert("authorization", bearer.parse().expect("a value"));
    let added = [&SET[..], &IDENTITY, &FRAMING].concat();
    assert_eq!(fields(&arrived.headers, &added), fields(&sent, &FRAMING), "{told}");
    let told_by_gateway = arrived.headers.keys().filter(|name| [&SET[..], &IDENTITY].concat().contains(&name.as_str()));
    assert_eq!(told_by_gateway.count(), SET.len() + IDENTITY.len(), "{told}: {:?}", arrived.headers);
    assert_eq!(arrived.headers.get("te"), sent.get("te"), "{told}");
    assert!(arrived.body == exchange.request.body, "{told}: {} bytes arrived", arrived.body.len());
    let length = arrived.headers.get("content-length").map(|length| length.to_str().expect("text").to_owned());
    let chunked = arrived.headers.get("transfer-encoding").is_some();
    if exchange.request.streamed {
        assert_eq!((length, chunked), (None, backend == Version::HTTP_11), "{told}");
    } else {
        assert!(length.is_none_or(|length| length == exchange.request.body.len().to_string()) && !chunked, "{told}");
    }
    assert_eq!(fields(&arrived.trailers, &[]), fields(&exchange.request.trailer_map(), &[]), "{told}: up");

    // Down.
    assert_eq!(head.status, exchange.status, "{told}");
    let laid = exchange.response.header_map();
    let framing = ["content-length", "transfer-encoding"];
    assert_eq!(fields(&head.headers, &[&framing[..], &["date"]].concat()), fields(&laid, &framing), "{told}");
    assert_eq!(head.headers["date"], "Sat, 21 Nov 2026 05:00:00 GMT", "{told}");
    let length = head.headers.get("content-length").cloned();
    match laid.get("content-length") {
        Some(laid) => assert_eq!(length.as_ref(), Some(laid), "{told}"),
        None if exchange.response.streamed => assert_eq!(length, None, "{told}"),
        None => assert!(length.is_none_or(|length| length == exchange.response.body.len().to_string()), "{told}"),
    }
    let trailers = collected.trailers().cloned().unwrap_or_default();
    assert_eq!(fields(&trailers, &[]), fields(&exchange.response.trailer_map(), &[]), "{told}: down");
    let body = collected.to_bytes();
    assert!(body == exchange.response.body, "{told}: {} bytes came", body.len());
}

#[tokio::test]
async fn messages_pass_unchanged_in_all_protocol_combinations() {
    for backend_version in [Version::HTTP_11, Version::HTTP_2] {
        let (table, backend, gateway) = Table::served(backend_version).await;
        let pair = gateway.issue("alice", "bears:keep").await;
        for (number, client_version) in [Version::HTTP_11, Version::HTTP_2].into_iter().enumerate() {
            let mut connection = HttpConnection::of(client_version, gateway.address()).await;
            for exchange in exchanges() {
                let told = format!("{} ({client_version:?} to {backend_version:?})", exchange.name);
                tell(&exchange, &mut connection, &pair.access, &table, backend_version, &told).await;
            }
            assert!(backend.connections() <= number + 1, "one connection is enough for all of them");
        }
        let lines = gateway.log_lines(2 * exchanges().len()).await;
        let cut: Vec<_> = lines.iter().filter(|line| line["complete"] == false).collect();
        assert!(cut.is_empty(), "{cut:?}");
    }
}
