//! One line of the table of goals: its figures, their median and spread, and its goal.

use crate::Outcome;

/// A line of the table. The first figure is that of the gateway, the others are those of the peers in their order.
pub struct Line {
    pub name: String,
    pub unit: &'static str,
    pub figures: Vec<Figure>,
    /// The ratio that the goal limits.
    pub ratio: Option<f64>,
    pub goal: String,
    pub is_met: Option<bool>,
}

/// The figures of all rounds, or the reason why there are none.
pub type Figure = Result<Vec<f64>, String>;

impl Line {
    /// A line with figures of the gateway only.
    pub fn alone(name: &str, unit: &'static str, figures: Vec<f64>, peers: usize) -> Line {
        let theirs = (0..peers).map(|_| Err(String::new()));
        let figures = std::iter::once(Ok(figures)).chain(theirs).collect();
        Line { name: name.into(), unit, figures, ratio: None, goal: "-".into(), is_met: None }
    }

    /// A line with the ratio of the gateway to the best peer. `goal`: its maximum.
    pub fn compared(name: &str, unit: &'static str, figures: Vec<Figure>, goal: Option<f64>) -> Line {
        let best = figures.iter().skip(1).flatten().map(|rounds| median(rounds)).reduce(f64::min);
        let ours = figures.first().and_then(|rounds| rounds.as_deref().ok()).map(median);
        let ratio = ours.zip(best).map(|(ours, best)| ours / best);
        let is_met = ratio.zip(goal).map(|(ratio, goal)| is_at_most(ratio, goal));
        let goal = goal.map_or("-".into(), |goal| format!("{goal:.2}"));
        Line { name: name.into(), unit, figures, ratio, goal, is_met }
    }

    pub fn not_measured(name: &str, peers: usize, why: &str) -> Line {
        let mut line = Line::alone(name, "", vec![], peers);
        line.figures[0] = Err(why.into());
        line
    }

    pub fn goal(self, ratio: f64, goal: impl Into<String>, is_met: bool) -> Line {
        Line { ratio: Some(ratio), goal: goal.into(), is_met: Some(is_met), ..self }
    }

    pub fn cells(&self) -> Vec<String> {
        let figures =
            self.figures.iter().map(|figure| figure.as_deref().map_or("-".into(), |rounds| show(median(rounds))));
        let (name, unit) = (self.name.clone(), self.unit.to_owned());
        let spread = self.figures[0].as_deref().map_or("-".into(), |rounds| format!("{:.0} %", 100.0 * spread(rounds)));
        let ratio = self.ratio.map_or("-".into(), |ratio| format!("{ratio:.2}"));
        let result = match self.is_met {
            None => "",
            Some(true) => "met",
            Some(false) => "missed",
        };
        let ends = [spread, ratio, self.goal.clone(), result.to_owned()];
        [name, unit].into_iter().chain(figures).chain(ends).collect()
    }
}

/// Measures programs in turns, in each round all of them: that at place 0, then the others. A program that failed once
/// is not measured again.
pub fn in_turns(rounds: usize, programs: usize, mut measure: impl FnMut(usize) -> Outcome<f64>) -> Vec<Figure> {
    let mut figures: Vec<Figure> = (0..programs).map(|_| Ok(Vec::new())).collect();
    for _ in 0..rounds {
        for (place, figure) in figures.iter_mut().enumerate() {
            let Ok(rounds) = figure else { continue };
            match measure(place) {
                Ok(measured) => rounds.push(measured),
                Err(error) => *figure = Err(error.to_string()),
            }
        }
    }
    figures
}

pub fn median(rounds: &[f64]) -> f64 {
    let mut rounds = rounds.to_vec();
    rounds.sort_by(f64::total_cmp);
    rounds.get(rounds.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The difference between the highest and the lowest round, divided by the median.
fn spread(rounds: &[f64]) -> f64 {
    if median(rounds) == 0.0 {
        return 0.0;
    }
    let (least, most) = rounds.iter().fold((f64::MAX, f64::MIN), |(least, most), one| (one.min(least), one.max(most)));
    (most - least) / median(rounds)
}

/// Returns true if the ratio, rounded as in the table, is at most the goal: 0.454 meets a goal of 0.45.
pub fn is_at_most(ratio: f64, goal: f64) -> bool {
    (ratio * 100.0).round() <= (goal * 100.0).round()
}

fn show(figure: f64) -> String {
    if figure >= 1_000.0 { format!("{figure:.0}") } else { format!("{figure:.1}") }
}
