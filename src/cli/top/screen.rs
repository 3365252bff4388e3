//! The last minute as one screen of 80 columns and 24 lines.

use std::collections::HashMap;
use std::fmt::Write;

use serde_json::Value;

use super::numbers::{count, duration, members, rate};
use crate::cli::terminal::{array_member, text_member};

/// How many reasons and limits are listed.
const LISTED: usize = 6;

const PLOT: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

pub(super) fn of(stats: &Value, is_colored: bool) -> String {
    let style = Style { is_colored };
    let seconds: Vec<&Value> = array_member(stats, "seconds").collect();
    let Some(second) = seconds.first() else { return String::new() };
    let mut screen = style.bold(&format!("bearward top  {}", text_member(second, "time"))) + "\n\n";
    for (label, text) in rows(second, &style) {
        // Writing to a string does not fail.
        let _ = writeln!(screen, "{label:10}  {text}");
    }
    let _ = writeln!(screen, "{:10}  {}", "last 60 s", plot(&seconds));
    let rejections = rejections(&seconds);
    let limits = members(stats, "limitsHit");
    let columns = [("rejected in the last 60 s", rejections), ("limits hit in the last hour", limits)];
    screen.push_str(&side_by_side(&columns, &style));
    screen
}

fn rows(second: &Value, style: &Style) -> [(&'static str, String); 6] {
    let class = |name: &str| format!("{name} {}", count(second, &format!("/requests/{name}")));
    let server = |state: &str| (state.to_owned(), count(second, &format!("/servers/{state}")));
    let bad = |(name, count): (String, u64)| style.red_if(count > 0, &format!("{count} {name}"));
    let ejected = bad(server("ejected"));
    let unhealthy = bad(server("unhealthy"));
    let failed = style.red_if(count(second, "/requests/5xx") > 0, &class("5xx"));
    let at = |pointer| count(second, pointer);
    [
        (
            "requests",
            format!(
                "{}/s  {}  {}  {}  {failed}  client closed {}",
                rate(second),
                class("2xx"),
                class("3xx"),
                class("4xx"),
                at("/requests/clientClosed")
            ),
        ),
        ("duration", format!("p50 {}   p99 {}", duration(second, "p50Seconds"), duration(second, "p99Seconds"))),
        (
            "open",
            format!(
                "{} requests   {} streams   {} connections",
                at("/requestsInFlight"),
                at("/openStreams"),
                at("/openConnections")
            ),
        ),
        ("tokens", format!("{} known", at("/tokensKnown"))),
        (
            "servers",
            format!("{} in   {} returning   {ejected}   {unhealthy}", at("/servers/in"), at("/servers/returning")),
        ),
        ("access log", bad(("lines dropped".to_owned(), at("/logLinesDropped")))),
    ]
}

/// The rates, the oldest first.
fn plot(seconds: &[&Value]) -> String {
    let rates: Vec<u64> = seconds.iter().rev().map(|second| rate(second)).collect();
    let most = rates.iter().copied().max().unwrap_or_default().max(1);
    let bar = |rate: &u64| {
        let height = (*rate as f64 / most as f64 * (PLOT.len() - 1) as f64).ceil() as usize;
        PLOT[height.min(PLOT.len() - 1)]
    };
    rates.iter().map(bar).collect()
}

fn rejections(seconds: &[&Value]) -> Vec<(String, u64)> {
    let mut sums: HashMap<String, u64> = HashMap::new();
    for (reason, count) in seconds.iter().flat_map(|second| members(second, "rejections")) {
        *sums.entry(reason).or_default() += count;
    }
    let mut sums: Vec<_> = sums.into_iter().collect();
    sums.sort_by(|(name, count), (other, than)| than.cmp(count).then(name.cmp(other)));
    sums
}

/// Two lists with their headings, those with most first.
fn side_by_side(columns: &[(&str, Vec<(String, u64)>); 2], style: &Style) -> String {
    let [(left, rejections), (right, limits)] = columns;
    let mut text = format!("\n{}{}\n", style.bold(&format!("{left:38}  ")), style.bold(right));
    let entry = |list: &[(String, u64)], at: usize| match list.get(at) {
        Some((name, count)) if at < LISTED => format!("{count:>10}  {name}"),
        Some(_) => format!("{:>10}  {} more", "", list.len() - LISTED),
        None if at == 0 => format!("{:>10}  none", ""),
        None => String::new(),
    };
    for at in 0..=LISTED.min(rejections.len().max(limits.len()).saturating_sub(1)) {
        let line = format!("{:38}  {}", entry(rejections, at), entry(limits, at));
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

struct Style {
    is_colored: bool,
}

impl Style {
    fn bold(&self, text: &str) -> String {
        self.with("1", text)
    }

    fn red_if(&self, is_bad: bool, text: &str) -> String {
        if is_bad { self.with("31", text) } else { text.to_owned() }
    }

    fn with(&self, code: &str, text: &str) -> String {
        if self.is_colored { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn busy() -> Value {
        let many = |prefix: &str| {
            let names = (0..30).map(|number| (format!("{prefix}_{number:02}"), json!(u32::MAX - number)));
            Value::Object(names.collect())
        };
        let second = json!({
            "time": "2026-11-22T17:00:00.000Z", "interval": 1.0, "p50Seconds": 0.001, "p99Seconds": 0.1,
            "requests": { "1xx": 9_999, "2xx": 99_999, "3xx": 9_999, "4xx": 9_999, "5xx": 9_999, "clientClosed": 999 },
            "rejections": many("upstream_connect_timed"), "requestsInFlight": 10_000, "openStreams": 10_000,
            "openConnections": 10_000, "tokensKnown": 1_000_000, "logLinesDropped": 5,
            "servers": { "in": 100, "returning": 1, "ejected": 2, "unhealthy": 3 },
        });
        json!({ "seconds": vec![second; 60], "limitsHit": many("limits.connections_per") })
    }

    #[test]
    fn a_busy_gateway_fits_on_one_screen() {
        let screen = of(&busy(), false);
        assert!(screen.lines().count() <= 24, "{screen}");
        for line in screen.lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
        assert!(screen.contains("24 more") && screen.contains("2 ejected   3 unhealthy"), "{screen}");
        assert!(!screen.contains('\x1b'));
    }

    #[test]
    fn what_is_bad_is_red() {
        let screen = of(&busy(), true);
        for text in ["\x1b[31m5xx 9999\x1b[0m", "\x1b[31m2 ejected\x1b[0m", "\x1b[31m5 lines dropped\x1b[0m"] {
            assert!(screen.contains(text), "{text}:\n{screen}");
        }
        let calm = of(&json!({ "seconds": [{}] }), true);
        assert!(!calm.contains("\x1b[31m") && calm.contains("p50 -") && calm.contains("none"), "{calm}");
    }

    #[test]
    fn a_response_cannot_write_to_the_terminal() {
        let stats = json!({
            "seconds": [{ "time": "\u{1b}[2J", "rejections": { "\u{1b}]0;x\u{7}": 1 } }],
            "limitsHit": { "\u{9b}5n": 1 },
        });
        let screen = of(&stats, false);
        assert!(screen.chars().all(|c| c == '\n' || !c.is_control()), "{screen:?}");
        assert!(screen.contains("\\u{1b}]0;x\\u{7}"), "{screen}");
    }

    #[test]
    fn the_plot_shows_the_oldest_second_first() {
        let second = |count: u64| json!({ "interval": 1, "requests": { "2xx": count } });
        let newest = second(70);
        let middle = second(10);
        let oldest = second(0);
        assert_eq!(plot(&[&newest, &middle, &oldest]), "▁▂█");
        assert_eq!(plot(&[&oldest]), "▁");
    }
}
