//! The combined format of Apache and nginx, which programs such as goaccess and fail2ban read, with the request id and
//! the seconds that the request took at the end.
//!
//! `ADDRESS - SUBJECT [TIME] "REQUEST" STATUS BYTES "-" "USER-AGENT" ID SECONDS`. The field of the Referer is always
//! empty, because a Referer can contain a token.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr};

use super::field::cut_bytes;
use super::record::Record;

const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// What nginx writes if the client disconnected before the response: programs reject a status below 100.
const CLIENT_CLOSED: u16 = 499;

/// `time` as in [`Timestamps::format`](super::timestamp::Timestamps::format).
pub(super) fn write_combined(record: &Record, time: &str, path: &str, max_field: usize, page: &mut Vec<u8>) {
    let client = record.client.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |address| address.to_canonical());
    let subject = record.token().map_or("", |token| &*token.subject);
    let agent = record.user_agent.as_ref().map_or(&b""[..], |agent| agent.as_bytes());
    let mut line = Line { page, max_field };
    // Writing to memory does not fail.
    let _ = write!(line.page, "{client} - ");
    line.field(subject.as_bytes(), b' ');
    line.time(time);
    line.page.extend_from_slice(b" \"");
    line.field(record.method.as_str().as_bytes(), b' ');
    line.page.push(b' ');
    line.field(path.as_bytes(), b' ');
    let status = if record.status == 0 { CLIENT_CLOSED } else { record.status };
    let _ = write!(line.page, " {}\" {status} {} \"-\" \"", record.protocol(), record.sent);
    line.field(agent, b'"');
    line.page.extend_from_slice(b"\" ");
    line.page.extend_from_slice(&record.request_id.as_hex());
    let _ = write!(line.page, " {}.{:06}", record.duration.as_secs(), record.duration.subsec_micros());
}

struct Line<'p> {
    page: &'p mut Vec<u8>,
    max_field: usize,
}

impl Line<'_> {
    /// Escapes as nginx does: what is not printable ASCII, quotes and backslashes become `\xHH`. So do spaces if the
    /// field ends with one. A field without a value is `-`.
    fn field(&mut self, value: &[u8], end: u8) {
        if value.is_empty() {
            return self.page.push(b'-');
        }
        for byte in cut_bytes(value, self.max_field).bytes() {
            let is_plain = byte == b' ' || byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\');
            if is_plain && byte != end {
                self.page.push(byte);
            } else {
                let _ = write!(self.page, "\\x{byte:02X}");
            }
        }
    }

    /// From `2026-11-20T23:05:21.042Z` to ` [20/Nov/2026:23:05:21 +0000]`.
    fn time(&mut self, time: &str) {
        let part = |range| time.get(range).unwrap_or("00");
        let month = part(5..7).parse().unwrap_or(1_usize);
        let month = MONTHS.get(month.wrapping_sub(1)).copied().unwrap_or("Jan");
        let day = part(8..10);
        let year = part(0..4);
        let clock = part(11..19);
        let _ = write!(self.page, " [{day}/{month}/{year}:{clock} +0000]");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::tokens::jwt::VerifiedToken;

    const TIME: &str = "2026-11-20T23:05:21.042Z";

    fn written(record: &Record, path: &str, max_field: usize) -> String {
        let mut page = Vec::new();
        write_combined(record, TIME, path, max_field, &mut page);
        String::from_utf8(page).expect("a line is text")
    }

    #[test]
    fn a_line_has_the_form_of_apache() {
        let record = Record {
            client: "192.0.2.7".parse().ok(),
            caller: Some(Arc::new(VerifiedToken::with_subject("alice smith".into()))),
            user_agent: Some(http::HeaderValue::from_static("curl/8.5.0")),
            status: 200,
            sent: 2326,
            duration: Duration::from_micros(1_002_034),
            ..Record::default()
        };
        let id = String::from_utf8_lossy(&record.request_id.as_hex()).into_owned();
        let expected = format!(
            "192.0.2.7 - alice\\x20smith [20/Nov/2026:23:05:21 +0000] \"GET /a?b HTTP/1.1\" 200 2326 \"-\" \
             \"curl/8.5.0\" {id} 1.002034"
        );
        assert_eq!(written(&record, "/a?b", 256), expected);
    }

    #[test]
    fn a_client_cannot_end_a_field_or_a_line() {
        let agent = b"\"x\" 200 1 \\ \t\xc3\xa9\xff";
        let record = Record { user_agent: http::HeaderValue::from_bytes(agent).ok(), ..Record::default() };
        let line = written(&record, "/\"\\ \u{e9}\n", 256);
        let shown = "\\x22x\\x22 200 1 \\x5C \\x09";
        assert!(line.contains(shown) && line.contains("/\\x22\\x5C\\x20\\xC3\\xA9\\x0A "), "{line}");
        assert!(line.contains("\\xC3\\xA9\\xEF\\xBF\\xBD\""), "{line}");
        assert_eq!((line.matches('"').count(), line.bytes().all(|byte| (b' '..=b'~').contains(&byte))), (6, true));
        assert!(line.starts_with("0.0.0.0 - - [") && line.contains("\" 499 0 "), "{line}");
    }

    #[test]
    fn a_long_field_is_cut() {
        let record = Record { user_agent: http::HeaderValue::from_bytes(&[b'"'; 5000]).ok(), ..Record::default() };
        let line = written(&record, &"/".repeat(5000), 256);
        assert!(line.len() < 256 * 5 + 200 && line.contains("\\xE2\\x80\\xA6\""), "{} bytes: {line}", line.len());
    }
}
