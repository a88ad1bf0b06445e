//! `longhaul spend`: shows what model calls have cost by day, agent and model, and what spend caps
//! (limits per day, week or month) have counted; and raises a cap until its current window ends.

use clap::{Args, Subcommand};
use longhaul_api::operations::{LIST_SPEND, RAISE_CAP};
use longhaul_api::path::CapParam;
use longhaul_api::query::SpendQuery;
use longhaul_api::spend::{RaiseCapBody, SpendCapUsageView, SpendCapView, SpendView, UsageSumView};

use crate::client::connect::{with_client_if_any, with_client_or_new_store};
use crate::fitted_table::{self, FittedColumn};
use crate::format::{count_with_noun, format_usd};
use crate::point_in_time::PointInTime;
use crate::table::{self, ListOr, TableCell};
use crate::{environment, output};

pub(crate) const EXAMPLES: &str = "Examples:
  longhaul spend                                     what the last 7 days have cost, and the caps
  longhaul spend --since 24h                         what the last day has cost
  longhaul spend raise day-usd-all --usd 80          until the current window ends
  longhaul spend raise day-usd-key --for key:ops --usd 80

Caps are set in longhaul.toml:
  [[caps]]
  window = \"day\"        # day, week or month
  usd = 50.0            # or tokens, or runs
  per = \"key\"           # all, key, actor, agent or model";

const USAGE_COLUMNS: &[FittedColumn] = &[
    FittedColumn { title: "DAY", width_min: 10, drop_rank: 0 },
    FittedColumn { title: "AGENT", width_min: 8, drop_rank: 1 },
    FittedColumn { title: "MODEL", width_min: 8, drop_rank: 2 },
    FittedColumn { title: "CALLS", width_min: 9, drop_rank: 5 },
    FittedColumn { title: "INPUT", width_min: 9, drop_rank: 4 },
    FittedColumn { title: "OUTPUT", width_min: 9, drop_rank: 3 },
    FittedColumn { title: "COST", width_min: 8, drop_rank: 0 },
];

/// Arguments of `longhaul spend`.
pub(crate) type SpendCommand = ListOr<ShowSpendCommand, SpendSubcommand>;

#[derive(Debug, Args)]
pub(crate) struct ShowSpendCommand {
    /// Sum up model calls since then: an age (24h), a date or a time; default: 7 days
    #[arg(long, value_name = "WHEN")]
    since: Option<PointInTime>,
    /// Print the caps and the usage as one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SpendSubcommand {
    /// Shows the cost by day, agent and model, and what each cap has counted
    Ls(ShowSpendCommand),
    /// Raises a cap until its current window ends; runs that wait at it continue
    Raise {
        /// Id of the cap, as `longhaul spend` shows it
        cap: String,
        /// API key or other submitter, actor, agent or model whose limit is raised
        #[arg(long = "for", value_name = "NAME")]
        subject: Option<String>,
        /// New limit in dollars
        #[arg(long, value_name = "DOLLARS")]
        usd: Option<f64>,
        /// New limit in tokens
        #[arg(long, value_name = "COUNT")]
        tokens: Option<u64>,
        /// New limit in runs
        #[arg(long, value_name = "COUNT")]
        runs: Option<u64>,
        /// Print the cap as one JSON object
        #[arg(long)]
        json: bool,
    },
}

impl SpendCommand {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        match &self.command {
            None => self.list.run(),
            Some(SpendSubcommand::Ls(list)) => list.run(),
            Some(SpendSubcommand::Raise { cap, subject, usd, tokens, runs, json }) => {
                let (usd, tokens, runs) = (*usd, *tokens, *runs);
                let subject = subject.clone();
                raise_cap(cap, &RaiseCapBody { usd, tokens, runs, subject }, *json)
            }
        }
    }
}

impl ShowSpendCommand {
    fn run(&self) -> anyhow::Result<()> {
        let spend = with_client_if_any(async |client| {
            let now = client.store_time().await?;
            let since = self.since.map(|since| since.resolve(now));
            client.send(LIST_SPEND.at(()).query(&SpendQuery { since })).await
        })?;
        let has_store = spend.is_some();
        let spend =
            spend.unwrap_or_else(|| SpendView { data: Vec::new(), next: None, usage: Vec::new() });
        if self.json {
            return output::print_json(&spend);
        }
        if !spend.data.is_empty() {
            print_caps(&spend.data)?;
        }
        if !spend.usage.is_empty() {
            return print_usage(&spend.usage);
        }
        let has_caps = || {
            let env = environment::current_process_env()?;
            anyhow::Ok(!environment::load_config_quietly(&env)?.spend_caps().is_empty())
        };
        let hint = match spend.data.is_empty() && (has_store || !has_caps()?) {
            true => {
                "No model was called in this time.   No caps are set.   Set one: [[caps]] in longhaul.toml"
            }
            false => {
                "No model was called in this time.   Submit a task: longhaul submit AGENT TEXT"
            }
        };
        output::eprint_line(hint);
        Ok(())
    }
}

/// Prints what each agent has used of each model per day, and the total.
fn print_usage(sums: &[UsageSumView]) -> anyhow::Result<()> {
    let rows = sums.iter().map(|sum| {
        let day = sum.day.to_string();
        let day = day.split('T').next().unwrap_or_default();
        let cached = sum.usage.cached_tokens.saturating_add(sum.usage.cache_write_tokens);
        let input = sum.usage.input_tokens.saturating_add(cached);
        let (output, cost) = (sum.usage.output_tokens, usage_cost_text(sum.cost_usd, sum.unpriced));
        table::row(&[&day, &sum.agent, &sum.model, &sum.calls, &input, &output, &cost])
    });
    fitted_table::print_fitted_table(USAGE_COLUMNS, rows.collect())?;
    let total = sums.iter().map(|sum| sum.cost_usd).sum();
    let unpriced = sums.iter().map(|sum| sum.unpriced).sum();
    let calls: u64 = sums.iter().map(|sum| sum.calls).sum();
    fitted_table::eprint_parts(&[
        format!("Total: {}", usage_cost_text(total, unpriced)),
        count_with_noun(calls, "model call"),
        "days in UTC, open runs included".to_owned(),
    ]);
    Ok(())
}

/// Formats the cost of calls, some of which may have no known price.
fn usage_cost_text(usd: f64, unpriced: u64) -> String {
    match unpriced {
        0 => format_usd(Some(usd)),
        calls => format!("{} + {calls} unpriced", format_usd(Some(usd))),
    }
}

fn raise_cap(id: &str, raise: &RaiseCapBody, json: bool) -> anyhow::Result<()> {
    let subject = raise.subject.as_deref().unwrap_or_default();
    let (waiting, cap) = with_client_or_new_store(async |client| {
        // Waiting runs continue at once, so they are counted before.
        let caps = client.send(LIST_SPEND.at(())).await?.data;
        let counts = caps.iter().filter(|cap| cap.id == id).flat_map(|cap| &cap.counts);
        let count = counts.filter(|count| count.subject == subject).map(|count| count.waiting);
        let request = RAISE_CAP.at(CapParam(id.to_owned())).body(raise);
        Ok((count.sum::<u64>(), client.send(request).await?))
    })?;
    output::show(json, &cap, |cap| {
        print_caps(std::slice::from_ref(cap))?;
        output::eprint_line(&match waiting {
            0 => "No run waited at the cap.".to_owned(),
            1 => "1 run waited at the cap; it continues if the cap covers its next call.".into(),
            runs => format!(
                "{runs} runs waited at the cap; those whose next call the cap covers continue."
            ),
        });
        Ok(())
    })
}

fn print_caps(caps: &[SpendCapView]) -> anyhow::Result<()> {
    let titles = ["CAP", "FOR", "USED", "HELD", "LEFT", "LIMIT", "WAITING", "RESETS"];
    table::print_table(&titles, caps.iter().flat_map(spend_cap_rows))
}

fn spend_cap_rows(cap: &SpendCapView) -> Vec<Vec<TableCell>> {
    // A cap that has not counted anything yet.
    if cap.counts.is_empty() {
        let (id, limit) = (&cap.id, &cap.limit);
        return vec![table::row(&[id, &"-", &"-", &"-", &"-", limit, &0, &cap.resets_at])];
    }
    let usage_row = |usage: &SpendCapUsageView| {
        let subject = match (cap.per.as_str(), usage.subject.as_str()) {
            ("all", _) => "all",
            (_, "") => "-",
            (_, subject) => subject,
        };
        let SpendCapUsageView { used, held, left, limit, waiting, .. } = usage;
        table::row(&[&cap.id, &subject, used, held, left, limit, waiting, &cap.resets_at])
    };
    cap.counts.iter().map(usage_row).collect()
}
