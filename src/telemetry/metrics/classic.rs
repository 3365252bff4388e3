//! The text format that scrapers read which did not ask for OpenMetrics: version 0.0.4 of Prometheus.
//!
//! It differs in what this gateway uses as follows: comments name a counter by its sample, with `_total`; there are no
//! units and no end mark.

use std::collections::HashSet;

/// From the text in the OpenMetrics format.
pub(super) fn from_openmetrics(page: &str) -> String {
    let is_counter = |line: &'_ str| line.strip_prefix("# TYPE ")?.strip_suffix(" counter").map(str::to_owned);
    let counters: HashSet<String> = page.lines().filter_map(is_counter).collect();
    let mut classic = String::with_capacity(page.len());
    for line in page.lines().filter(|line| !line.starts_with("# UNIT ") && *line != "# EOF") {
        match comment(line).filter(|(_, name, _)| counters.contains(*name)) {
            Some((keyword, name, rest)) => classic.extend([keyword, name, "_total", rest]),
            None => classic.push_str(line),
        }
        classic.push('\n');
    }
    classic
}

/// `# HELP ` or `# TYPE `, the name, and the rest with its space.
fn comment(line: &str) -> Option<(&str, &str, &str)> {
    let keyword = ["# HELP ", "# TYPE "].into_iter().find(|keyword| line.starts_with(keyword))?;
    let (name, _) = line[keyword.len()..].split_once(' ')?;
    Some((keyword, name, &line[keyword.len() + name.len()..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_comments_of_counters_and_the_end_differ() {
        let page = "# HELP a A counter.\n# TYPE a counter\na_total{b=\"# TYPE a counter\"} 1\n\
                    # HELP a_b A gauge.\n# TYPE a_b gauge\n# UNIT a_b seconds\na_b 2\n# EOF\n";
        let classic = "# HELP a_total A counter.\n# TYPE a_total counter\na_total{b=\"# TYPE a counter\"} 1\n\
                       # HELP a_b A gauge.\n# TYPE a_b gauge\na_b 2\n";
        assert_eq!(from_openmetrics(page), classic);
    }
}
