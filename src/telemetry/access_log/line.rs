//! Writes a record as one line, in the configured format.

use super::combined::write_combined;
use super::json::write_json;
use super::record::Record;
use super::redact::without_tokens;
use super::settings::Format;
use super::text::write_text;
use super::timestamp::Timestamps;

pub(super) struct LineWriter {
    format: Format,
    /// `access_log.max_field_size`
    max_field: usize,
    timestamps: Timestamps,
}

impl LineWriter {
    pub(super) fn new(format: Format, max_field: usize) -> Self {
        LineWriter { format, max_field, timestamps: Timestamps::default() }
    }

    /// Appends the line of one record to the page.
    pub(super) fn write(&mut self, record: &Record, page: &mut Vec<u8>) {
        let path = without_tokens(record.path());
        let time = self.timestamps.format(record.time);
        match self.format {
            Format::Json => write_json(record, time, &path, self.max_field, page),
            Format::Text => write_text(record, time, &path, self.max_field, page),
            Format::Combined => write_combined(record, time, &path, self.max_field, page),
        }
        page.push(b'\n');
    }
}

#[cfg(test)]
mod tests {
    use http::uri::Scheme;

    use super::super::attempts::UpstreamNames;
    use super::*;
    use crate::tokens::jwt::VerifiedToken;
    use crate::types::clock::UnixTime;
    use crate::types::close_reason::CloseReason;
    use crate::types::reject::{Reason, Reject};

    fn written(format: Format, record: &Record) -> String {
        let mut page = Vec::new();
        LineWriter::new(format, 256).write(record, &mut page);
        String::from_utf8(page).expect("lines are text")
    }

    fn json(record: &Record) -> serde_json::Value {
        serde_json::from_str(&written(Format::Json, record)).expect("a line is JSON")
    }

    fn record() -> Record {
        Record {
            time: UnixTime::from_millis(1_700_000_000_042),
            uri: "/a/bwr1_secret/eyJsecret?secret".parse().expect("a target"),
            user_agent: Some(http::HeaderValue::from_bytes(b"a\"b\xff").expect("a header value")),
            rejected: Some(Reject::new(Reason::BadSignature, "odd\n\"thing\"")),
            ..Record::default()
        }
    }

    #[test]
    fn a_json_line_has_no_token_and_no_query() {
        let line = written(Format::Json, &record());
        let json: serde_json::Value = serde_json::from_str(&line).expect("a line is JSON");
        assert_eq!(json["time"], "2023-11-14T22:13:20.042Z");
        assert_eq!(json["path"], "/a/[token]/[token]");
        assert_eq!(json["detail"], "odd\n\"thing\"");
        assert_eq!(json["complete"], false);
        assert_eq!(json["user_agent"], "a\"b\u{fffd}");
        assert!(!line.contains("secret") && line.matches('\n').count() == 1, "{line}");
    }

    #[test]
    fn writes_addresses_in_canonical_form() {
        for client in ["203.0.113.7", "0.0.0.0", "255.255.255.255", "2001:db8::7", "::1"] {
            let record = Record { client: client.parse().ok(), ..record() };
            assert_eq!(json(&record)["client"], client);
        }
        let mapped = Record { client: "::ffff:203.0.113.7".parse().ok(), ..record() };
        assert!(written(Format::Json, &mapped).contains("\"client\":\"203.0.113.7\""));
    }

    #[test]
    fn a_text_record_is_one_line() {
        let line = written(Format::Text, &record());
        assert!(line.starts_with("2023-11-14T22:13:20.042Z - GET \"-\" \"/a/[token]/[token]\" HTTP/1.1 0 "), "{line}");
        assert!(!line.contains("secret") && line.matches('\n').count() == 1, "{line}");
    }

    #[test]
    fn an_observed_reason_is_not_a_rejection() {
        let observed = std::sync::Arc::new(Reject::new(Reason::Expired, "too late"));
        let record = Record { rejected: None, observed: Some(observed), ..record() };
        let json = json(&record);
        assert_eq!((json["observed"].as_str(), json["detail"].as_str()), (Some("expired"), Some("too late")));
        assert!(json.get("reason").is_none());
        assert!(written(Format::Text, &record).contains(" observed:expired "));
    }

    #[test]
    fn a_stream_that_the_gateway_ended_has_a_reason() {
        let record = Record { ended: Some(CloseReason::Token(Reason::Revoked)), ..record() };
        let json = json(&record);
        assert_eq!((json["ended"].as_str(), json["complete"].as_bool()), (Some("revoked"), Some(false)));
        assert!(written(Format::Text, &record).contains(" revoked \""));
    }

    /// Each text as long as a client can make it, and of what grows most when it is escaped.
    fn longest() -> Record {
        let long = |text: &str| text.repeat(60_000);
        let token = VerifiedToken::with_subject(long("\0"));
        Record {
            client: "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff".parse().ok(),
            method: http::Method::from_bytes(long("M").as_bytes()).expect("a token"),
            uri: "/\"".repeat(30_000).parse().expect("a target"),
            host: http::HeaderValue::from_str(&long("\"")).ok(),
            user_agent: http::HeaderValue::from_bytes(&b"\"\\\t\xff".repeat(10_000)).ok(),
            route: Some(long("r").into()),
            caller: Some(std::sync::Arc::new(token)),
            upstream: Some(UpstreamNames { name: long("u").into(), scheme: Scheme::HTTP, servers: Vec::new() }.into()),
            rejected: Some(Reject::new(Reason::UnknownIssuer, long("\u{7}"))),
            duration: std::time::Duration::MAX,
            sent: u64::MAX,
            ..Record::default()
        }
    }

    #[test]
    fn a_line_has_a_maximum_length() {
        // What a client sent is quoted in a detail, so only quotes and backslashes are escaped once more.
        let without_token = Some(Reject::new(Reason::UnknownIssuer, "\\\"".repeat(10_000)));
        for (format, record, max) in [
            (Format::Json, longest(), 8 * 1024),
            (Format::Json, Record { caller: None, rejected: None, ..longest() }, 3 * 1024),
            (Format::Json, Record { caller: None, rejected: without_token, ..longest() }, 4 * 1024),
            (Format::Text, longest(), 8 * 1024),
            (Format::Combined, longest(), 8 * 1024),
        ] {
            let line = written(format, &record);
            assert!(line.len() <= max, "{} bytes: {line}", line.len());
            assert!((line.contains('…') || format == Format::Combined) && line.matches('\n').count() == 1, "{line}");
        }
        assert!(json(&longest()).is_object());
    }
}
