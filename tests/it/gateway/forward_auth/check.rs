//! Messages of `envoy.service.auth.v3`, as the authorization service gets and answers them.

use bearward::protocols::protobuf::{Field, Fields, Message, only};

/// Where Envoy calls.
pub(super) const PATH: &str = "/envoy.service.auth.v3.Authorization/Check";

/// What Envoy says about a request.
pub(super) struct Check {
    pub(super) method: &'static str,
    pub(super) target: String,
    pub(super) source: &'static str,
    pub(super) headers: Vec<(String, String)>,
    /// Envoy with `encode_raw_headers`.
    pub(super) is_raw: bool,
    /// A header that has this value as well, in the field that Envoy leaves empty.
    pub(super) doubled: Option<(&'static str, &'static str)>,
}

impl Check {
    pub(super) fn get(target: &str) -> Check {
        let headers = vec![("x-forwarded-proto".to_owned(), "https".to_owned())];
        Check { method: "GET", target: target.to_owned(), source: "198.51.100.7", headers, is_raw: true, doubled: None }
    }

    pub(super) fn header(mut self, name: &str, value: &str) -> Check {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(super) fn bearer(self, token: &str) -> Check {
        self.header("authorization", &format!("Bearer {token}"))
    }

    pub(super) fn message(&self) -> Vec<u8> {
        let mut check = Message::default();
        check.message(1, |attributes| {
            attributes.message(1, |source| {
                source.message(1, |address| address.message(1, |socket| socket.bytes(2, self.source.as_bytes())));
            });
            attributes.message(4, |request| request.message(2, |http| self.write(http)));
        });
        check.0
    }

    fn write(&self, http: &mut Message) {
        for (number, text) in [(2, self.method), (4, self.target.as_str()), (5, "api.example"), (6, "http")] {
            http.bytes(number, text.as_bytes());
        }
        let pseudo = [(":method", self.method), (":path", self.target.as_str()), (":authority", "api.example")];
        let pseudo = pseudo.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let entries = pseudo.iter().chain(&self.headers);
        if self.is_raw {
            http.message(13, |map| entries.for_each(|header| map.message(1, |entry| self.pair(entry, header))));
        } else {
            entries.for_each(|header| http.message(3, |entry| self.pair(entry, header)));
        }
    }

    fn pair(&self, entry: &mut Message, (name, value): &(String, String)) {
        let [number, other] = if self.is_raw { [3, 2] } else { [2, 3] };
        entry.bytes(1, name.as_bytes());
        entry.bytes(number, value.as_bytes());
        if let Some((_, second)) = self.doubled.filter(|(doubled, _)| doubled == name) {
            entry.bytes(other, second.as_bytes());
        }
    }
}

/// What the service answers.
#[derive(Debug)]
pub(super) enum Reply {
    Allowed { set: Vec<(String, String)>, removed: Vec<String> },
    Denied { code: u64, status: u64, headers: Vec<(String, String)>, body: String },
}

impl Reply {
    pub(super) fn of(message: &[u8]) -> Reply {
        let [status, denied, allowed] = only(message, [1, 2, 3]).expect("a CheckResponse");
        match number(status) {
            0 => {
                assert!(denied.is_empty(), "a denial with the code of success");
                let removed = texts(allowed, 5);
                Reply::Allowed { set: options(allowed), removed }
            }
            code => {
                assert!(allowed.is_empty(), "a permit with the code of a failure");
                let [http, body] = only(denied, [1, 3]).expect("a denial");
                let body = String::from_utf8(body.to_vec()).expect("UTF-8");
                Reply::Denied { code, status: number(http), headers: options(denied), body }
            }
        }
    }

    pub(super) fn status(&self) -> u64 {
        match self {
            Reply::Allowed { .. } => 200,
            Reply::Denied { status, .. } => *status,
        }
    }

    /// What Envoy sets, or sends to the client.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let (Reply::Allowed { set: headers, .. } | Reply::Denied { headers, .. }) = self;
        let mut values = headers.iter().filter(|(other, _)| other == name);
        let value = values.next().map(|(_, value)| value.as_str());
        assert!(values.next().is_none(), "{name} twice: {self:?}");
        value
    }

    pub(super) fn removes(&self, name: &str) -> bool {
        matches!(self, Reply::Allowed { removed, .. } if removed.iter().any(|removed| removed == name))
    }
}

fn bytes(message: &[u8], wanted: u32) -> impl Iterator<Item = &[u8]> {
    Fields(message).filter_map(move |field| match field.expect("readable") {
        (number, Field::Bytes(bytes)) if number == wanted => Some(bytes),
        _ => None,
    })
}

fn texts(message: &[u8], wanted: u32) -> Vec<String> {
    bytes(message, wanted).map(|text| String::from_utf8(text.to_vec()).expect("UTF-8")).collect()
}

/// Field 1. Protocol Buffers may omit a zero.
fn number(message: &[u8]) -> u64 {
    let found = Fields(message).map(|field| field.expect("readable")).find(|(number, _)| *number == 1);
    match found {
        None => 0,
        Some((_, Field::Number(number))) => number,
        other => panic!("{other:?}"),
    }
}

fn options(message: &[u8]) -> Vec<(String, String)> {
    let option = |option| {
        let [header] = only(option, [1]).expect("a HeaderValueOption");
        let [name, value] = only(header, [1, 2]).expect("a HeaderValue");
        let action = Fields(option).filter_map(Result::ok).find(|(number, _)| *number == 3);
        assert_eq!(action, Some((3, Field::Number(2))), "OVERWRITE_IF_EXISTS_OR_ADD");
        (String::from_utf8_lossy(name).into_owned(), String::from_utf8(value.to_vec()).expect("UTF-8"))
    };
    bytes(message, 2).map(option).collect()
}
