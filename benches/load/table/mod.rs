//! The table of goals: the gateway compared with its peers or with itself. Each line shows its goal.
//!
//! Compared programs take turns in each round, so that a change of the machine's speed affects all of them. The result
//! is the median of the rounds. A line that cannot be measured shows the reason, and the others continue.

mod alternating;
mod cookie;
mod flood;
mod forward_auth;
mod line;
mod logs;
mod memory;
mod operators;
mod over_plain;
mod proven;
mod refresh;
mod revocations;
mod side_by_side;
mod traces;
mod workers;

use crate::Outcome;
use crate::bench::Bench;
use crate::peers::Kind;

use line::Line;

/// Measures one or more lines of the table.
type Rows = fn(&Bench<'_>, &[Kind]) -> Outcome<Vec<Line>>;

/// The measurements that are not in `side_by_side`, in the order of the table.
const ALONE: [(&str, Rows); 12] = [
    ("logs", logs::lines),
    ("over-plain", over_plain::lines),
    ("proof", proven::lines),
    ("cookie", cookie::lines),
    ("forward-auth", forward_auth::lines),
    ("memory", memory::lines),
    ("revocations", revocations::lines),
    ("operators", operators::lines),
    ("traces", traces::lines),
    ("workers", workers::lines),
    ("refresh", refresh::lines),
    ("flood", flood::lines),
];

/// The names for `--row`.
pub fn names() -> Vec<&'static str> {
    side_by_side::names().into_iter().chain(ALONE.map(|(name, _)| name)).collect()
}

/// Measures and prints the table. Fails if a figure of the gateway is missing.
pub fn measure(bench: &Bench<'_>) -> Outcome<()> {
    let kinds = &bench.flags.peers();
    let mut lines = side_by_side::lines(bench, kinds)?;
    for (name, rows) in ALONE.into_iter().filter(|(name, _)| bench.flags.wants(name)) {
        eprintln!("running {name}");
        match rows(bench, kinds) {
            Ok(more) => lines.extend(more),
            Err(error) => lines.push(Line::not_measured(name, kinds.len(), &error.to_string())),
        }
    }
    print(&lines, kinds);
    match lines.iter().find(|line| line.figures.first().is_some_and(Result::is_err)) {
        Some(line) => Err(format!("{} was not measured", line.name).into()),
        None => Ok(()),
    }
}

/// Prints the table in Markdown.
fn print(lines: &[Line], kinds: &[Kind]) {
    let names = kinds.iter().map(|kind| kind.name());
    let head = ["", "unit", "bearward"].into_iter().chain(names).chain(["spread", "ratio", "goal", ""]);
    let head: Vec<String> = head.map(str::to_owned).collect();
    let rows: Vec<_> = lines.iter().map(Line::cells).collect();
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([head[column].chars().count(), 2]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    // Names and goals are text, aligned left. The other columns are numbers, aligned right.
    let is_number = |column: usize| (2..head.len() - 2).contains(&column);
    let row = |cells: &[String]| {
        let cell = |(column, cell): (usize, &String)| {
            if is_number(column) {
                format!(" {cell:>0$} |", widths[column])
            } else {
                format!(" {cell:<0$} |", widths[column])
            }
        };
        println!("|{}", cells.iter().enumerate().map(cell).collect::<String>());
    };
    row(&head);
    let line = |column: usize| {
        let dashes = "-".repeat(widths[column] + 1);
        if is_number(column) { format!("{dashes}:|") } else { format!("-{dashes}|") }
    };
    println!("|{}", (0..head.len()).map(line).collect::<String>());
    rows.iter().for_each(|cells| row(cells));
    println!();
    let names = ["bearward"].into_iter().chain(kinds.iter().map(|kind| kind.name()));
    names.enumerate().for_each(|(place, name)| print_reasons(lines, place, name));
}

/// Prints why figures are missing in this column, each reason once.
fn print_reasons(lines: &[Line], place: usize, program: &str) {
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    for line in lines {
        let Err(why) = &line.figures[place] else { continue };
        match reasons.iter_mut().find(|(known, _)| known == why) {
            Some((_, names)) => names.push(&line.name),
            None => reasons.push((why, vec![&line.name])),
        }
    }
    // A line of the gateway only has empty reasons for the peers.
    for (why, names) in reasons.iter().filter(|(why, _)| !why.is_empty()) {
        println!("not measured: {program}: {why}: {}", names.join("; "));
    }
}
