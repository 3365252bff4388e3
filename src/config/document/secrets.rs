//! The parts of a file that may be a secret. Errors end up in logs, and must not quote them.
//!
//! The text is searched, and not the values: a value may have the wrong type, and a line may be no TOML at all.

use std::collections::{BTreeSet, HashSet};
use std::ops::Range;

use crate::config::document::tokens::{Kind, Token, tokens};

/// Keys of which only a URL is shown, and of it no password.
const CONFIDENTIAL: [&str; 1] = ["store.postgres"];
/// Parameters of a PostgreSQL URL that say nothing secret. Errors are about their values.
const HARMLESS: [&str; 9] = [
    "sslmode",
    "connect_timeout",
    "application_name",
    "target_session_attrs",
    "channel_binding",
    "host",
    "port",
    "user",
    "dbname",
];
/// A name with one of these parts has a secret.
const SECRET_NAMES: [&str; 7] = ["pass", "pwd", "secret", "token", "key", "auth", "cred"];
/// What may precede a colon and an address with `@`.
const ADDRESSES: [&str; 8] = ["mailto", "email", "acct", "sip", "dns", "uri", "ip", "user"];
/// Keys of a table that names a value outside of the file.
const OUTSIDE: [&str; 3] = ["env", "credential", "default"];

/// Passwords and user names, queries and fragments of URLs, and what other forms of a connection string call a secret.
pub(super) fn in_text(text: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let strings = tokens(text).into_iter().filter(|token| token.kind == Kind::String);
    strings.for_each(|token| in_string(text, token.span, &mut found));
    // In comments, and where the quotes are missing.
    for (at, _) in text.match_indices("://") {
        let is_end = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '`');
        let rest = text.get(at..).unwrap_or_default();
        in_url(text, at, at + rest.find(is_end).unwrap_or(rest.len()), &mut found);
    }
    found.retain(|span| !span.is_empty());
    found.sort_unstable_by_key(|span| (span.start, span.end));
    found.dedup();
    found
}

/// Texts that messages must not have.
pub(super) struct Unwanted {
    texts: HashSet<String>,
    lengths: BTreeSet<usize>,
}

impl Unwanted {
    pub(super) fn new(texts: HashSet<String>) -> Self {
        let lengths = texts.iter().map(String::len).collect();
        Unwanted { texts, lengths }
    }

    /// The message without these texts. Its time does not depend on how many there are: a file may have thousands of
    /// errors and of secrets.
    pub(super) fn take_out(&self, message: &str) -> String {
        let mut kept = String::with_capacity(message.len());
        let mut rest = message;
        while let Some(first) = rest.chars().next() {
            // The longest: one may be the beginning of another.
            let begins = |len: &&usize| rest.get(..**len).is_some_and(|begin| self.texts.contains(begin));
            let skipped = match self.lengths.iter().rev().find(begins) {
                Some(len) => {
                    kept.push_str("***");
                    *len
                }
                None => {
                    kept.push(first);
                    first.len_utf8()
                }
            };
            rest = &rest[skipped..];
        }
        kept
    }
}

fn in_string(text: &str, span: Range<usize>, found: &mut Vec<Range<usize>>) {
    let string = text.get(span.clone()).unwrap_or_default();
    match string.find("://") {
        Some(at) => in_url(text, span.start + at, span.end, found),
        None => {
            in_authority(string, span.start, found);
            if let Some(at) = string.find('?').filter(|at| string[*at..].contains('=')) {
                in_query(text, span.start + at + 1, span.end, found);
            }
        }
    }
    in_assignments(string, span.start, found);
}

/// `colon`: where `://` is.
fn in_url(text: &str, colon: usize, end: usize, found: &mut Vec<Range<usize>>) {
    let start = colon + "://".len();
    let Some(rest) = text.get(start..end) else { return };
    // The last one: a password may have others that are not escaped.
    let at = rest.rfind('@');
    if let Some(at) = at {
        match rest[..at].find(':') {
            Some(colon) => found.push(start + colon + 1..start + at),
            // A token may stand for the user of a web server. A user of PostgreSQL is in most messages about it.
            None if ["postgres", "postgresql"].iter().any(|scheme| text[..colon].ends_with(scheme)) => {}
            None => found.push(start..start + at),
        }
    }
    let after = at.map_or(0, |at| at + 1);
    let rest = &rest[after..];
    if let Some(fragment) = rest.find('#') {
        found.push(start + after + fragment + 1..end);
    }
    if let Some(query) = rest.find('?') {
        in_query(text, start + after + query + 1, end, found);
    }
}

fn in_query(text: &str, start: usize, end: usize, found: &mut Vec<Range<usize>>) {
    let mut at = start;
    for part in text.get(start..end).unwrap_or_default().split('&') {
        let (name, value) = part.split_once('=').map_or(("", at), |(name, _)| (name, at + name.len() + 1));
        if !HARMLESS.contains(&name) {
            found.push(value..at + part.len());
        }
        at += part.len() + 1;
    }
}

/// `user:password@host`, without a scheme.
fn in_authority(string: &str, start: usize, found: &mut Vec<Range<usize>>) {
    let Some(at) = string.rfind('@') else { return };
    let Some((name, password)) = string[..at].split_once(':') else { return };
    if !ADDRESSES.contains(&name) && !password.contains(char::is_whitespace) {
        found.push(start + name.len() + 1..start + at);
    }
}

/// `password=…`, as libpq, ADO and JDBC write it.
fn in_assignments(string: &str, start: usize, found: &mut Vec<Range<usize>>) {
    for (equals, _) in string.match_indices('=') {
        let before = string[..equals].trim_end();
        let is_of_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-');
        let name = before.rsplit(|c| !is_of_name(c)).next().unwrap_or_default().to_lowercase();
        if !SECRET_NAMES.iter().any(|part| name.contains(part)) {
            continue;
        }
        let rest = &string[equals + 1..];
        let value = rest.trim_start();
        let begin = equals + 1 + rest.len() - value.len();
        let quote = value.chars().next().filter(|first| matches!(first, '"' | '\''));
        let is_end = |c: char| quote.map_or(c.is_whitespace() || matches!(c, ';' | '&' | ','), |quote| c == quote);
        let skipped = quote.map_or(0, char::len_utf8);
        let len = value[skipped..].find(is_end).unwrap_or(value.len() - skipped);
        found.push(start + begin + skipped..start + begin + skipped + len);
    }
}

/// The values of keys that do not exist, and those of confidential keys that are no URL. `is_known`: of a path without
/// indexes, such as `route.path`.
pub(crate) fn of_keys(text: &str, is_known: impl Fn(&str) -> bool) -> Vec<Range<usize>> {
    let mut walk = Walk { text, is_known, header: None, open: Vec::new(), value: None, key: Vec::new() };
    let all = tokens(text);
    let mut hidden = Vec::new();
    let mut is_first = true;
    for (number, token) in all.iter().enumerate() {
        let begins_header =
            is_first && token.kind == Kind::Punctuation('[') && walk.may_begin_header(&all[number + 1..]);
        is_first = token.kind == Kind::LineEnd;
        if begins_header {
            walk.begin_header();
        } else if walk.step(token) {
            hidden.push(token.span.clone());
        }
    }
    hidden
}

/// The value that is being read.
#[derive(Clone)]
struct Current {
    path: String,
    is_hidden: bool,
}

/// A bracket that is not closed yet.
struct Open {
    is_table: bool,
    /// The value that it is a part of.
    of: Option<Current>,
}

struct Walk<'t, K> {
    text: &'t str,
    is_known: K,
    /// The table of the last header. Empty while a header is being read. `None` before the first.
    header: Option<String>,
    open: Vec<Open>,
    value: Option<Current>,
    /// The parts of the key that is being read, or of the header.
    key: Vec<String>,
}

impl<K: Fn(&str) -> bool> Walk<'_, K> {
    /// Returns true if a bracket at the start of a line can be that of a header. A list may be open there by mistake.
    fn may_begin_header(&self, next: &[Token]) -> bool {
        if self.open.is_empty() {
            return true;
        }
        let name = next.iter().find(|token| token.kind != Kind::Punctuation('['));
        let word = name.filter(|name| name.kind == Kind::Word).map(|name| &self.text[name.span.clone()]);
        word.is_some_and(|word| word.starts_with(|c: char| c.is_ascii_lowercase()) && !matches!(word, "true" | "false"))
    }

    fn begin_header(&mut self) {
        self.open.clear();
        self.value = None;
        self.key.clear();
        self.header = Some(String::new());
    }

    /// Returns true if this token is hidden.
    fn step(&mut self, token: &Token) -> bool {
        match token.kind {
            Kind::LineEnd if self.open.is_empty() => {
                self.end_line();
                false
            }
            Kind::Punctuation(mark) => {
                self.mark(mark);
                false
            }
            Kind::Word | Kind::String if self.value.is_none() => {
                let part = self.text[token.span.clone()].trim_matches('.');
                self.key.push(part.to_owned());
                false
            }
            Kind::Word | Kind::String => self.value.as_ref().is_some_and(|value| self.is_hidden(value, token)),
            Kind::LineEnd | Kind::Comment => false,
        }
    }

    fn is_hidden(&self, value: &Current, token: &Token) -> bool {
        let is_confidential = CONFIDENTIAL.iter().any(|key| is_in(&value.path, key));
        let text = &self.text[token.span.clone()];
        let is_url = ["postgres://", "postgresql://"].iter().any(|scheme| text.starts_with(scheme));
        // Of a list where the path of one file is expected, nothing says that it has paths.
        let is_in_list = self.open.last().is_some_and(|open| !open.is_table);
        value.is_hidden || is_confidential && !is_url || is_in_list && names_secret_file(&value.path)
    }

    fn end_line(&mut self) {
        if self.header.as_ref().is_some_and(String::is_empty) {
            self.header = Some(self.key.join("."));
        }
        self.value = None;
        self.key.clear();
    }

    fn mark(&mut self, mark: char) {
        match mark {
            '=' if self.value.is_none() => {
                let parent = self.open.last().and_then(|open| open.of.as_ref());
                let table = parent.map(|parent| parent.path.as_str()).or(self.header.as_deref()).unwrap_or_default();
                let key = self.key.join(".");
                let path = if table.is_empty() { key.clone() } else { format!("{table}.{key}") };
                let is_outside = parent.is_some() && OUTSIDE.contains(&key.as_str());
                let is_hidden = parent.is_some_and(|parent| parent.is_hidden) || !is_outside && !(self.is_known)(&path);
                self.value = Some(Current { path, is_hidden });
                self.key.clear();
            }
            '{' | '[' => {
                let is_table = mark == '{';
                let of = self.value.clone();
                if of.is_some() {
                    self.open.push(Open { is_table, of });
                }
                if is_table {
                    self.value = None;
                }
            }
            '}' | ']' => {
                if let Some(open) = self.open.pop() {
                    self.value = open.of;
                    self.key.clear();
                }
            }
            ',' if self.open.last().is_some_and(|open| open.is_table) => {
                self.value = None;
                self.key.clear();
            }
            _ => {}
        }
    }
}

/// Returns true for `provider.client_secret_file` and others like it.
fn names_secret_file(path: &str) -> bool {
    let is_secret = ["secret", "password", "token", "authorization"].iter().any(|part| path.contains(part));
    is_secret && (path.ends_with("_file") || path.ends_with("_env"))
}

/// Returns true if `path` is this key, or in a table that is its value.
fn is_in(path: &str, key: &str) -> bool {
    path.strip_prefix(key).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each found part as asterisks.
    fn masked(text: &str, found: Vec<Range<usize>>) -> String {
        let mut text = text.to_owned();
        for span in found {
            let asterisks = "*".repeat(span.len());
            text.replace_range(span, &asterisks);
        }
        text
    }

    #[test]
    fn of_a_connection_string_only_the_secret_is_hidden() {
        for (text, expected) in [
            ("\"postgres://b:se cret@h/d\"", "\"postgres://b:*******@h/d\""),
            ("\"postgres://b:a@b/c?d#e@h/d\"", "\"postgres://b:*********@h/d\""),
            ("\"https://token@h/d\"", "\"https://*****@h/d\""),
            ("\"postgres://user@h/d?host=/run\"", "\"postgres://user@h/d?host=/run\""),
            ("a = https://u:pw@h/d # x", "a = https://u:**@h/d # x"),
            ("\"https://h/d?a=bc&d\"", "\"https://h/d?a=**&*\""),
            ("\"postgres://h/d?sslmode=disable&passwort=ab\"", "\"postgres://h/d?sslmode=disable&passwort=**\""),
            ("\"https://h/d#abc\"", "\"https://h/d#***\""),
            ("\"h/d?token=abc\"", "\"h/d?token=***\""),
            ("\"u:abc@h/d\"", "\"u:***@h/d\""),
            ("\"mailto:a@b.example\"", "\"mailto:a@b.example\""),
            ("\"host=h password = ab dbname=d\"", "\"host=h password = ** dbname=d\""),
            ("\"Server=h;Password=ab;x\"", "\"Server=h;Password=**;x\""),
            ("\"password='a b' x=y\"", "\"password='***' x=y\""),
            ("secret_file = \"a/b.secret\"", "secret_file = \"a/b.secret\""),
            ("servers = [\"http://127.0.0.1:1\"]", "servers = [\"http://127.0.0.1:1\"]"),
        ] {
            assert_eq!(masked(text, in_text(text)), expected);
        }
    }

    #[test]
    fn the_longest_text_is_taken_out() {
        let unwanted = Unwanted::new(["hunter", "hunter2", "s\u{e9}cret"].map(str::to_owned).into());
        for (text, expected) in [
            ("hunter2 and hunter, hunter22", "*** and ***, ***2"),
            ("as\u{e9}cret\u{e9}", "a***\u{e9}"),
            ("hunte", "hunte"),
            ("", ""),
        ] {
            assert_eq!(unwanted.take_out(text), expected);
        }
    }

    #[test]
    fn the_value_of_a_key_that_does_not_exist_is_hidden() {
        let known = ["a", "store", "store.path", "store.postgres", "s_secret_file", "t", "t.k", "t.l", "t.l.m"];
        for (text, expected) in [
            ("a = \"b\"\nx = \"cd\"\na = 1", "a = \"b\"\nx = \"**\"\na = 1"),
            ("[t]\nk = 1\na = \"bc", "[t]\nk = 1\na = \"**"),
            ("[[t]]\nl = { m = 1, n = 'o', m = 2 }", "[[t]]\nl = { m = 1, n = '*', m = 2 }"),
            ("[[t]]\nl = [{ m = 1 }, { n = 'o' }]\nk = 2", "[[t]]\nl = [{ m = 1 }, { n = '*' }]\nk = 2"),
            ("x = [\n \"a\",\n # b\n \"c\"\n]\na = 1", "x = [\n \"*\",\n # b\n \"*\"\n]\na = 1"),
            ("x = [\n \"a\"\n[t]\nk = 1", "x = [\n \"*\"\n[t]\nk = 1"),
            ("x = { y = 'z' }\nx.y = 1", "x = { y = '*' }\nx.y = *"),
            ("x = '''\na\nb = c\n'''\na = 1", "x = '''*********'''\na = 1"),
            ("a = { env = \"B\", default = \"c\" }", "a = { env = \"B\", default = \"c\" }"),
            ("[store]\npostgres = \"postgres://a\"", "[store]\npostgres = \"postgres://a\""),
            ("[store]\npostgres = \"a/b\"", "[store]\npostgres = \"***\""),
            ("s_secret_file = 'a'\ns_secret_file = ['a']", "s_secret_file = 'a'\ns_secret_file = ['*']"),
            ("store = { postgres = ['a', 1], path = 'b' }", "store = { postgres = ['*', *], path = 'b' }"),
        ] {
            assert_eq!(masked(text, of_keys(text, |path| known.contains(&path))), expected);
        }
    }
}
