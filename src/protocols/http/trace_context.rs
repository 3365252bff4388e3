//! The trace that a request belongs to: `traceparent` and `tracestate` (W3C Trace Context). Pure.

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::types::ids::write_hex;

pub const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
pub const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// Bytes of a `traceparent` of version 00.
const LEN: usize = 55;
/// A longer `tracestate` is removed: a participant must pass on 512 bytes (section 3.3.1.5).
const MAX_STATE: usize = 512;
const SAMPLED: u8 = 1;
/// The last 7 bytes of the trace id are random (level 2). All other flags are reserved.
const RANDOM: u8 = 2;

/// What a trusted proxy says about the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parent {
    pub trace_id: [u8; 16],
    pub span_id: u64,
    pub is_sampled: bool,
    pub is_random: bool,
}

impl Parent {
    /// `None` without a valid `traceparent`, or with several.
    pub fn of(headers: &HeaderMap) -> Option<Self> {
        let mut values = headers.get_all(TRACEPARENT).iter();
        let value = values.next()?;
        if values.next().is_some() {
            return None;
        }
        Self::parse(value.as_bytes())
    }

    /// Section 3.2. A later version may append fields (section 3.2.4).
    fn parse(text: &[u8]) -> Option<Self> {
        let (known, rest) = text.split_at_checked(LEN)?;
        let [version] = hex(&known[..2])?;
        let is_complete = if version == 0 { rest.is_empty() } else { rest.first().is_none_or(|next| *next == b'-') };
        let has_dashes = [2, 35, 52].iter().all(|at| known[*at] == b'-');
        if version == 0xff || !is_complete || !has_dashes {
            return None;
        }
        let trace_id = hex::<16>(&known[3..35])?;
        let span_id = u64::from_be_bytes(hex(&known[36..52])?);
        let [flags] = hex(&known[53..])?;
        let is_sampled = flags & SAMPLED != 0;
        let is_random = flags & RANDOM != 0;
        (trace_id != [0; 16] && span_id != 0).then_some(Parent { trace_id, span_id, is_sampled, is_random })
    }
}

/// Lower case only, as the standard says.
fn hex<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

/// The trace of one request.
#[derive(Clone, Copy, Debug)]
pub struct TraceContext {
    pub trace_id: [u8; 16],
    /// The span of a trusted proxy.
    pub parent: Option<u64>,
    /// The span of the request.
    pub span_id: u64,
    /// The span of the first attempt. Those of further ones follow it.
    pub first_attempt: u64,
    pub is_sampled: bool,
    /// As the trusted proxy says. True for a trace that the gateway began.
    pub is_random: bool,
}

impl TraceContext {
    /// The span of the attempt after this many retries. Never zero.
    pub fn attempt_span(&self, retries: usize) -> u64 {
        self.first_attempt.wrapping_add(retries as u64).max(1)
    }

    /// What the server gets of the attempt after this many retries.
    pub fn attempted(&self, retries: usize) -> Attempted {
        Attempted { trace_id: self.trace_id, span_id: self.attempt_span(retries), flags: self.flags() }
    }

    /// The trace flags. A participant that continues a trace must not change the random one (level 2).
    pub fn flags(&self) -> u8 {
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        flag(self.is_sampled, SAMPLED) | flag(self.is_random, RANDOM)
    }

    /// Sets the fields for the first attempt. `tracestate` belongs to the trace of the trusted proxy.
    pub fn set_fields(&self, headers: &mut HeaderMap) {
        let size: usize = headers.get_all(TRACESTATE).iter().map(|state| state.len() + 1).sum();
        if size > 0 && (self.parent.is_none() || size > MAX_STATE + 1) {
            headers.remove(TRACESTATE);
        }
        self.attempted(0).set_field(headers);
    }
}

/// Removes the fields of a client that is not trusted: it must not decide what backends store (section 6.2).
pub fn remove_fields(headers: &mut HeaderMap) {
    headers.remove(TRACEPARENT);
    headers.remove(TRACESTATE);
}

/// The context that one server gets.
#[derive(Clone, Copy, Debug)]
pub struct Attempted {
    trace_id: [u8; 16],
    span_id: u64,
    flags: u8,
}

impl Attempted {
    pub fn set_field(&self, headers: &mut HeaderMap) {
        let mut text = *b"00-00000000000000000000000000000000-0000000000000000-00";
        write_hex(&self.trace_id, &mut text[3..35]);
        write_hex(&self.span_id.to_be_bytes(), &mut text[36..52]);
        text[54] += self.flags;
        // Hexadecimal digits are always a valid value.
        if let Ok(value) = HeaderValue::from_bytes(&text) {
            headers.insert(TRACEPARENT, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALID: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn parsed(values: &[&str]) -> Option<Parent> {
        let values = values.iter().map(|value| (TRACEPARENT, HeaderValue::from_str(value).expect("a value")));
        Parent::of(&values.collect())
    }

    #[test]
    fn only_a_strictly_valid_traceparent_is_read() {
        let parent = parsed(&[VALID]).expect("the example of the standard");
        assert_eq!((parent.span_id, parent.is_sampled), (0x00f0_67aa_0ba9_02b7, true));
        assert!(!parsed(&[&VALID.replace("-01", "-00")]).expect("valid").is_sampled);
        assert!(parsed(&[&VALID.replace("-01", "-ff")]).expect("other flags are ignored").is_sampled);
        let is_random = |flags| parsed(&[&VALID.replace("-01", flags)]).expect("valid").is_random;
        assert_eq!(["-01", "-02", "-03", "-fd"].map(is_random), [false, true, true, false]);
        let later = VALID.replacen("00-", "cc-", 1);
        assert!(parsed(&[&later]).is_some() && parsed(&[&format!("{later}-what-the-future-is")]).is_some());
        for invalid in [
            &VALID.replacen("00-", "ff-", 1),
            &VALID.to_uppercase(),
            &format!("{VALID}-"),
            &format!("{VALID}0"),
            &format!("{later}0"),
            &VALID[..54].to_owned(),
            &VALID.replacen('-', "_", 1),
            &VALID.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32)),
            &VALID.replace("00f067aa0ba902b7", &"0".repeat(16)),
            &VALID.replace("4bf9", "4bg9"),
            &format!(" {VALID} ")[..55].to_owned(),
            &String::new(),
        ] {
            assert_eq!(parsed(&[invalid]), None, "{invalid:?}");
        }
        assert_eq!(parsed(&[VALID, VALID]), None, "two fields");
    }

    #[test]
    fn each_attempt_has_a_span_of_its_own() {
        let context = TraceContext {
            trace_id: parsed(&[VALID]).expect("valid").trace_id,
            parent: None,
            span_id: 1,
            first_attempt: u64::MAX,
            is_sampled: true,
            is_random: false,
        };
        let mut headers = HeaderMap::from_iter([(TRACESTATE, HeaderValue::from_static("a=1"))]);
        context.set_fields(&mut headers);
        assert_eq!(headers[TRACEPARENT], "00-4bf92f3577b34da6a3ce929d0e0e4736-ffffffffffffffff-01");
        assert!(!headers.contains_key(TRACESTATE), "it belongs to another trace");
        context.attempted(1).set_field(&mut headers);
        assert_eq!(headers[TRACEPARENT], "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000001-01");
    }

    #[test]
    fn the_state_of_a_trusted_trace_has_a_maximum_size() {
        let context = TraceContext {
            trace_id: [1; 16],
            parent: Some(2),
            span_id: 1,
            first_attempt: 3,
            is_sampled: false,
            is_random: true,
        };
        for (len, is_kept) in [(1, true), (512, true), (513, false)] {
            let state = HeaderValue::from_str(&"a".repeat(len)).expect("a value");
            let mut headers = HeaderMap::from_iter([(TRACESTATE, state)]);
            context.set_fields(&mut headers);
            assert_eq!(headers.contains_key(TRACESTATE), is_kept, "{len}");
            assert!(headers[TRACEPARENT].as_bytes().ends_with(b"-02"));
        }
    }
}
