//! One text in a JSON object that may be broken elsewhere: a duplicate member, `NaN`, bytes that are not UTF-8, or a
//! missing end.

/// Where in the outermost object the reader is.
#[derive(Clone, Copy, PartialEq)]
enum At {
    /// Before the name of a member.
    Member,
    /// After the name that is searched.
    Name,
    /// Before the value of that name.
    Value,
    Elsewhere,
}

struct Reader<'b> {
    rest: &'b [u8],
    at: At,
    /// Of objects and arrays that are open.
    depth: usize,
    found: Option<String>,
}

/// Returns the last text that the outermost object has under `name`: most readers of JSON keep the last of several
/// members, and a provider was tried with such readers. Texts inside other members do not count, because users may
/// have chosen them.
pub(super) fn last_text(body: &[u8], name: &str) -> Option<String> {
    let rest = body.trim_ascii_start().strip_prefix(b"{")?;
    let mut reader = Reader { rest, at: At::Member, depth: 1, found: None };
    while reader.step(name).is_some() {}
    reader.found
}

impl Reader<'_> {
    /// Reads one text, or one byte beside texts. Returns `None` at the end of the object or of the body.
    fn step(&mut self, name: &str) -> Option<()> {
        let (&byte, after) = self.rest.split_first()?;
        self.rest = after;
        match byte {
            b'"' => return self.read_text(name),
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => self.depth = self.depth.checked_sub(1).filter(|depth| *depth > 0)?,
            _ => {}
        }
        self.at = match byte {
            b' ' | b'\t' | b'\r' | b'\n' => self.at,
            b',' if self.depth == 1 => At::Member,
            b':' if self.at == At::Name => At::Value,
            _ => At::Elsewhere,
        };
        Some(())
    }

    fn read_text(&mut self, name: &str) -> Option<()> {
        let (text, after) = split_text(self.rest)?;
        self.rest = after;
        match std::mem::replace(&mut self.at, At::Elsewhere) {
            At::Member if text.as_deref() == Some(name) => self.at = At::Name,
            At::Value => self.found = text.or(self.found.take()),
            _ => {}
        }
        Some(())
    }
}

/// Splits after the end of a text, of which the first quote was read. The text is `None` if it is not a text of JSON.
fn split_text(rest: &[u8]) -> Option<(Option<String>, &[u8])> {
    let mut is_escaped = false;
    let end = rest.iter().position(|&byte| {
        let is_end = byte == b'"' && !is_escaped;
        is_escaped = byte == b'\\' && !is_escaped;
        is_end
    })?;
    let text = rest.get(..end)?;
    let after = rest.get(end + 1..)?;
    let quoted = [b"\"", text, b"\""].concat();
    Some((serde_json::from_slice(&quoted).ok(), after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_text_of_the_outermost_object_is_found() {
        for (body, expected) in [
            (r#"{"n":"a"}"#, Some("a")),
            (" {\t\"n\" :\n\"a\"", Some("a")),
            (r#"{"n":"a","n":"b"}"#, Some("b")),
            (r#"{"n":"a","n":null}"#, Some("a")),
            (r#"{"x":NaN,"n":"a"}"#, Some("a")),
            (r#"{"n":"a","x":NaN,"y":1e999}"#, Some("a")),
            (r#"{"x":"\ud800","\u006e":"\"a\\"}"#, Some(r#""a\"#)),
            (r#"{"n":"a"}{"n":"b"}"#, Some("a")),
            (r#"{"n":"a","x":"cut"#, Some("a")),
            (r#"{"n":"cut"#, None),
            (r#"{"n":["a"],"x":{"n":"b"},"y":[{"n":"c"}]}"#, None),
            (r#"{"x":"n","y":"\",\"n\":\"a"}"#, None),
            (r#"{"x":"n":"a"}"#, None),
            (r#"{"n" "a"}"#, None),
            (r#"{"n":1 "a"}"#, None),
            (r#"["n","a"]"#, None),
            (r#"<p>{"n":"a"}"#, None),
            ("{", None),
            ("", None),
        ] {
            assert_eq!(last_text(body.as_bytes(), "n").as_deref(), expected, "{body}");
        }
        assert_eq!(last_text(b"{\"x\":\"M\xfcller\",\"n\":\"a\"}", "n").as_deref(), Some("a"));
        assert_eq!(last_text(b"{\"n\":\"M\xfcller\"}", "n"), None);
    }
}
