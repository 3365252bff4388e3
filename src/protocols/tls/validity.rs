//! The times in certificates and revocation lists.

use std::ops::RangeInclusive;
use std::path::Path;

use jiff::Unit;
use jiff::civil::{Date, date};
use rustls::pki_types::CertificateDer;

use super::description::validity;
use crate::types::clock::UnixTime;

const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// Returns true if an element with this tag is a time.
pub(super) fn is_time(tag: u8) -> bool {
    matches!(tag, UTC_TIME | GENERALIZED_TIME)
}

/// `Time` in the only form that RFC 5280 section 4.1.2.5 allows: to the second, in UTC.
pub(super) fn time(tag: u8, content: &[u8]) -> Option<UnixTime> {
    let text = std::str::from_utf8(content).ok()?.strip_suffix('Z')?;
    let (year, rest) = match tag {
        UTC_TIME if text.len() == 12 => {
            let year = number(&text[..2])?;
            (if year < 50 { 2000 + year } else { 1900 + year }, &text[2..])
        }
        GENERALIZED_TIME if text.len() == 14 => (100 * number(&text[..2])? + number(&text[2..4])?, &text[4..]),
        _ => return None,
    };
    let part = |place: usize| number(rest.get(place..place + 2)?);
    let hour = part(4)?;
    let minute = part(6)?;
    let second = part(8)?;
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let day = Date::new(year, i8::try_from(part(0)?).ok()?, i8::try_from(part(2)?).ok()?).ok()?;
    let days = date(1970, 1, 1).until((Unit::Day, day)).ok()?.get_days();
    let seconds = i64::from(days) * 86_400 + i64::from(hour) * 3_600 + i64::from(minute) * 60 + i64::from(second);
    // Before 1970: as early as possible.
    Some(UnixTime::from_secs(u64::try_from(seconds).unwrap_or(0)))
}

/// When a certificate is valid: its first and its last second (RFC 5280 section 4.1.2.5).
pub fn validity_of(certificate: &CertificateDer<'_>) -> Option<RangeInclusive<UnixTime>> {
    let mut times = validity(certificate).map(|(tag, content)| time(tag, content));
    let first = times.next()??;
    let last = times.next()??;
    Some(first..=last)
}

/// What is wrong with the certificate of a file that is valid in this time. `None` if it is valid now.
pub fn validity_problem(file: &Path, valid: &RangeInclusive<UnixTime>, now: UnixTime) -> Option<String> {
    let now = UnixTime::from_secs(now.as_secs());
    if valid.contains(&now) {
        return None;
    }
    let shown = file.display();
    Some(if now < *valid.start() {
        format!("the certificate in {shown} begins at {}", valid.start())
    } else {
        format!("the certificate in {shown} ended at {}", valid.end())
    })
}

fn number(digits: &str) -> Option<i16> {
    if digits.bytes().all(|byte| byte.is_ascii_digit()) { digits.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_one_form() {
        for (tag, text, expected) in [
            (UTC_TIME, "700101000000Z", Some(0)),
            (UTC_TIME, "000229235959Z", Some(951_868_799)),
            (UTC_TIME, "491231235959Z", Some(2_524_607_999)),
            (UTC_TIME, "500101000000Z", Some(0)),
            (GENERALIZED_TIME, "20500101000000Z", Some(2_524_608_000)),
            (GENERALIZED_TIME, "99991231235959Z", Some(253_402_300_799)),
            (UTC_TIME, "010229000000Z", None),
            (UTC_TIME, "000101240000Z", None),
            (UTC_TIME, "000101000060Z", None),
            (UTC_TIME, "0001010000Z", None),
            (UTC_TIME, "000101000000", None),
            (UTC_TIME, "000101000000+0000", None),
            (UTC_TIME, "00010100000+Z", None),
            (GENERALIZED_TIME, "700101000000Z", None),
            (GENERALIZED_TIME, "19700101000000.0Z", None),
            (0x0c, "700101000000Z", None),
        ] {
            assert_eq!(time(tag, text.as_bytes()), expected.map(UnixTime::from_secs), "{text}");
        }
    }
}
