//! The table of the goals: the gateway beside its peers, or beside itself, each line with what it should be.
//!
//! Whatever is compared is measured in turns, round by round, so that a drift of the machine meets all of it alike; the median
//! of the rounds counts. What cannot be measured says why, and the rest goes on.

mod flood;
mod idle;
mod in_turns;
mod over_plain;
mod refresh;
mod revocations;
mod side_by_side;
mod workers;

use crate::Outcome;
use crate::bench::Bench;
use crate::peers::Kind;

/// One of the table. Figures are of the gateway, then of the peers in their order.
pub struct Line {
    pub name: String,
    pub unit: &'static str,
    pub figures: Vec<Figure>,
    /// What the goal is about.
    pub ratio: Option<f64>,
    pub goal: String,
    pub is_met: Option<bool>,
}

/// A figure of each round; or why there is none.
pub type Figure = Result<Vec<f64>, String>;

/// What is measured, in the order of the table.
type Rows = fn(&Bench<'_>, &[Kind]) -> Outcome<Vec<Line>>;

const ALONE: [(&str, Rows); 6] = [
    ("over-plain", over_plain::lines),
    ("idle", idle::lines),
    ("revocations", revocations::lines),
    ("workers", workers::lines),
    ("refresh", refresh::lines),
    ("flood", flood::lines),
];

/// For `--row`.
pub fn names() -> Vec<&'static str> {
    side_by_side::names().into_iter().chain(ALONE.map(|(name, _)| name)).collect()
}

/// Measures and prints it. Fails if something of the gateway's own could not be measured.
pub fn measure(bench: &Bench<'_>) -> Outcome<()> {
    let kinds = &bench.flags.peers();
    let mut lines = side_by_side::lines(bench, kinds)?;
    for (name, rows) in ALONE.into_iter().filter(|(name, _)| bench.flags.wants(name)) {
        eprintln!("{name}");
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

impl Line {
    /// Of the gateway alone.
    pub fn alone(name: &str, unit: &'static str, figures: Vec<f64>, peers: usize) -> Line {
        let theirs = (0..peers).map(|_| Err(String::new()));
        let figures = std::iter::once(Ok(figures)).chain(theirs).collect();
        Line { name: name.into(), unit, figures, ratio: None, goal: "-".into(), is_met: None }
    }

    fn not_measured(name: &str, peers: usize, why: &str) -> Line {
        let mut line = Line::alone(name, "", vec![], peers);
        line.figures[0] = Err(why.into());
        line
    }

    pub fn goal(self, ratio: f64, goal: impl Into<String>, is_met: bool) -> Line {
        Line { ratio: Some(ratio), goal: goal.into(), is_met: Some(is_met), ..self }
    }

    fn cells(&self) -> Vec<String> {
        let figures =
            self.figures.iter().map(|figure| figure.as_deref().map_or("-".into(), |rounds| show(median(rounds))));
        let (name, unit) = (self.name.clone(), self.unit.to_owned());
        let spread = self.figures[0].as_deref().map_or("-".into(), |rounds| format!("{:.0} %", 100.0 * spread(rounds)));
        let ratio = self.ratio.map_or("-".into(), |ratio| format!("{ratio:.2}"));
        let verdict = match self.is_met {
            None => "",
            Some(true) => "met",
            Some(false) => "missed",
        };
        let ends = [spread, ratio, self.goal.clone(), verdict.to_owned()];
        [name, unit].into_iter().chain(figures).chain(ends).collect()
    }
}

/// As a table in Markdown, to be kept as it is.
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
    // Names and goals are words, the rest are numbers.
    let is_number = |column: usize| (2..head.len() - 2).contains(&column);
    let row = |cells: &[String]| {
        let cell = |(column, cell): (usize, &String)| match is_number(column) {
            true => format!(" {cell:>0$} |", widths[column]),
            false => format!(" {cell:<0$} |", widths[column]),
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

/// Why there is no figure of this column, each reason once.
fn print_reasons(lines: &[Line], place: usize, who: &str) {
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    for line in lines {
        let Err(why) = &line.figures[place] else { continue };
        match reasons.iter_mut().find(|(known, _)| known == why) {
            Some((_, names)) => names.push(&line.name),
            None => reasons.push((why, vec![&line.name])),
        }
    }
    // What is of the gateway alone needs none.
    for (why, names) in reasons.iter().filter(|(why, _)| !why.is_empty()) {
        println!("not measured: {who}: {why}: {}", names.join("; "));
    }
}

pub fn median(rounds: &[f64]) -> f64 {
    let mut rounds = rounds.to_vec();
    rounds.sort_by(f64::total_cmp);
    rounds.get(rounds.len() / 2).copied().unwrap_or(f64::NAN)
}

/// How far the rounds lie apart, in parts of the median.
fn spread(rounds: &[f64]) -> f64 {
    if median(rounds) == 0.0 {
        return 0.0;
    }
    let (least, most) = rounds.iter().fold((f64::MAX, f64::MIN), |(least, most), one| (one.min(least), one.max(most)));
    (most - least) / median(rounds)
}

/// As the table shows it: a goal of 0.45 is met by 0.454.
pub fn is_at_most(ratio: f64, goal: f64) -> bool {
    (ratio * 100.0).round() <= (goal * 100.0).round()
}

fn show(figure: f64) -> String {
    if figure >= 1_000.0 { format!("{figure:.0}") } else { format!("{figure:.1}") }
}
