//! The report of a benchmark: named figures in sections, as text or as one JSON object. A figure
//! whose name ends in a unit has that unit.

use std::io::Write as _;

use serde_json::{Map, Value, json};

/// The report of one benchmark.
#[derive(Debug)]
pub(crate) struct Report {
    lines: Vec<String>,
    fields: Map<String, Value>,
    section: String,
    is_json: bool,
}

impl Report {
    /// Creates a report. Its head names the conditions of the measurement, such as the number of
    /// runs.
    pub(crate) fn new(bench: &str, conditions: &str, is_json: bool) -> Self {
        let cores = core_count();
        let build = match cfg!(debug_assertions) {
            true => "debug build: not comparable",
            false => "release",
        };
        let fields = [
            ("bench", bench.into()),
            ("build", build.into()),
            ("cores", cores.into()),
            ("conditions", conditions.into()),
            ("targets", json!({})),
        ];
        Self {
            lines: vec![format!("bench {bench}: {conditions}, {cores} cores, {build}")],
            fields: fields.map(|(name, value)| (name.to_owned(), value)).into_iter().collect(),
            section: String::new(),
            is_json,
        }
    }

    /// Prints what is measured next, unless the output is JSON.
    pub(crate) fn progress(&self, text: &str) {
        if !self.is_json {
            _ = writeln!(std::io::stderr(), "{text} ...");
        }
    }

    /// Begins a section, to which the following figures belong.
    pub(crate) fn section(&mut self, name: impl Into<String>) -> &mut Self {
        self.section = name.into();
        self.lines.push(format!("\n{}", self.section));
        self
    }

    /// Adds a figure.
    pub(crate) fn figure(&mut self, name: &str, value: f64) -> &mut Self {
        self.add(name, value, "")
    }

    /// Adds a figure that must not be above its target.
    pub(crate) fn at_most(&mut self, name: &str, value: f64, target: f64) -> &mut Self {
        self.add_with_target(name, value, ("at most", target, value <= target))
    }

    /// Adds a figure that must not be below its target.
    pub(crate) fn at_least(&mut self, name: &str, value: f64, target: f64) -> &mut Self {
        self.add_with_target(name, value, ("at least", target, value >= target))
    }

    fn add_with_target(
        &mut self,
        name: &str,
        value: f64,
        (bound, target, is_met): (&str, f64, bool),
    ) -> &mut Self {
        let key = format!("{}.{name}", self.section);
        self.fields["targets"][key] = json!({ bound.replace(' ', "_"): target, "met": is_met });
        let verdict = if is_met { "met" } else { "missed" };
        self.add(name, value, &format!("   target {bound} {}: {verdict}", format_figure(target)))
    }

    fn add(&mut self, name: &str, value: f64, suffix: &str) -> &mut Self {
        let section = self.fields.entry(self.section.clone()).or_insert_with(|| json!({}));
        section[name] = json!(value);
        self.lines.push(format!("  {name:<36} {:>12}{suffix}", format_figure(value)));
        self
    }

    /// Prints the report.
    pub(crate) fn print(self) -> anyhow::Result<()> {
        let text = match self.is_json {
            true => Value::Object(self.fields).to_string(),
            false => self.lines.join("\n"),
        };
        Ok(writeln!(std::io::stdout(), "{text}")?)
    }
}

/// Returns the number of CPU cores of this machine.
pub(crate) fn core_count() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Formats a figure with about three significant digits.
fn format_figure(value: f64) -> String {
    match value.abs() {
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        1.0.. => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_in_the_text_and_in_the_json_with_its_target() {
        let mut report = Report::new("x", "two runs", true);
        report.section("part").figure("runs", 2.0).at_most("cpu_us", 310.4, 300.0);
        assert_eq!(report.fields["part"], json!({ "runs": 2.0, "cpu_us": 310.4 }));
        let target = json!({ "at_most": 300.0, "met": false });
        assert_eq!(report.fields["targets"]["part.cpu_us"], target);
        let line = report.lines.last().cloned().unwrap_or_default();
        assert!(line.ends_with("310   target at most 300: missed"), "{line}");
    }
}
