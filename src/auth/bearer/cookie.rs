//! Cookies of one name (RFC 6265 section 5.4). Names are case-sensitive: `Session` is not `session`.

use http::{HeaderMap, HeaderValue, header};

/// The values of all cookies of this name, from all `Cookie` fields: an HTTP/2 client may send several.
pub(super) fn values<'h>(headers: &'h HeaderMap, name: &str) -> impl Iterator<Item = &'h [u8]> {
    let pairs = headers.get_all(header::COOKIE).iter().flat_map(|field| split(field.as_bytes()));
    pairs.filter(move |pair| name_of(pair) == name.as_bytes()).map(value_of)
}

/// The names and values of all cookies.
pub(super) fn all(headers: &HeaderMap) -> impl Iterator<Item = (&[u8], &[u8])> {
    let pairs = headers.get_all(header::COOKIE).iter().flat_map(|field| split(field.as_bytes()));
    pairs.map(|pair| (name_of(pair), value_of(pair)))
}

/// Removes the cookies of these names and leaves the others unchanged.
pub(super) fn remove(headers: &mut HeaderMap, names: &[impl AsRef<str>]) {
    remove_if(headers, |name| names.iter().any(|removed| removed.as_ref().as_bytes() == name));
}

/// As [`remove`], by the name.
pub(super) fn remove_if(headers: &mut HeaderMap, is_removed: impl Fn(&[u8]) -> bool) {
    let is_named = |pair: &[u8]| is_removed(name_of(pair));
    let fields = || headers.get_all(header::COOKIE).iter().map(HeaderValue::as_bytes);
    if !fields().flat_map(split).any(is_named) {
        return;
    }
    let rest: Vec<HeaderValue> = fields()
        .filter_map(|field| {
            let others: Vec<&[u8]> = split(field).filter(|pair| !is_named(pair)).map(<[u8]>::trim_ascii).collect();
            // Parts of a valid header value are a valid header value.
            HeaderValue::from_bytes(&others.join(&b"; "[..])).ok().filter(|field| !field.is_empty())
        })
        .collect();
    headers.remove(header::COOKIE);
    for field in rest {
        headers.append(header::COOKIE, field);
    }
}

fn split(field: &[u8]) -> impl Iterator<Item = &[u8]> {
    field.split(|byte| *byte == b';')
}

fn name_of(pair: &[u8]) -> &[u8] {
    pair.split(|byte| *byte == b'=').next().unwrap_or_default().trim_ascii()
}

fn value_of(pair: &[u8]) -> &[u8] {
    let sign = pair.iter().position(|byte| *byte == b'=');
    sign.map_or(&[][..], |sign| pair[sign + 1..].trim_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(fields: &[&'static str]) -> HeaderMap {
        fields.iter().map(|field| (header::COOKIE, HeaderValue::from_static(field))).collect()
    }

    #[test]
    fn finds_cookies_by_their_exact_name() {
        for (fields, found) in [
            (&["t=a"][..], &["a"][..]),
            (&["x=1; t=a; y=2"], &["a"]),
            (&["x=1;t = a ;y"], &["a"]),
            (&["t=a; t=b", "t=c"], &["a", "b", "c"]),
            (&["t=a=b"], &["a=b"]),
            (&["t=", "t"], &["", ""]),
            (&["T=a; tt=a; xt=a; x=t=a"], &[]),
        ] {
            let headers = headers(fields);
            let values: Vec<&[u8]> = values(&headers, "t").collect();
            assert_eq!(values, found.iter().map(|value| value.as_bytes()).collect::<Vec<_>>(), "{fields:?}");
        }
    }

    #[test]
    fn removes_only_the_named_cookies() {
        for (fields, rest) in [
            (&["t=a"][..], &[][..]),
            (&["x=1; t=a; y=\"2 3\""], &["x=1; y=\"2 3\""]),
            (&["t=a", "x=1", "t=b; u=c"], &["x=1"]),
            (&["x=1;y=2"], &["x=1;y=2"]),
            (&["tt=a; T=b"], &["tt=a; T=b"]),
        ] {
            let mut headers = headers(fields);
            remove(&mut headers, &["t", "u"]);
            let left: Vec<&[u8]> = headers.get_all(header::COOKIE).iter().map(HeaderValue::as_bytes).collect();
            assert_eq!(left, rest.iter().map(|field| field.as_bytes()).collect::<Vec<_>>(), "{fields:?}");
        }
    }
}
