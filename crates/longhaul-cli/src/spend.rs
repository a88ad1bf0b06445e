//! `longhaul spend`: shows the usage that spend caps (limits per day, week or month) have counted,
//! and raises a cap until its current window ends.

use clap::Subcommand;
use longhaul_api::operations::{LIST_SPEND, RAISE_CAP};
use longhaul_api::path::CapParam;
use longhaul_api::spend::{RaiseCapBody, SpendCapUsageView, SpendCapView};

use crate::client::connect::{with_client_if_any, with_client_or_new_store};
use crate::table::{self, JsonArgs, ListOr, TableCell};
use crate::{environment, output};

pub(crate) const EXAMPLES: &str = "Examples:
  longhaul spend                                     what each cap has counted
  longhaul spend raise day-usd-all --usd 80          until the current window ends
  longhaul spend raise day-usd-key --for key:ops --usd 80

Caps are set in longhaul.toml:
  [[caps]]
  window = \"day\"        # day, week or month
  usd = 50.0            # or tokens, or runs
  per = \"key\"           # all, key, actor, agent or model";

/// Arguments of `longhaul spend`.
pub(crate) type SpendCommand = ListOr<JsonArgs, SpendSubcommand>;

#[derive(Debug, Subcommand)]
pub(crate) enum SpendSubcommand {
    /// Shows what each cap has counted in its current window
    Ls(JsonArgs),
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
            None => show_caps(&self.list),
            Some(SpendSubcommand::Ls(list)) => show_caps(list),
            Some(SpendSubcommand::Raise { cap, subject, usd, tokens, runs, json }) => {
                let (usd, tokens, runs) = (*usd, *tokens, *runs);
                let subject = subject.clone();
                raise_cap(cap, &RaiseCapBody { usd, tokens, runs, subject }, *json)
            }
        }
    }
}

fn show_caps(output: &JsonArgs) -> anyhow::Result<()> {
    let caps = with_client_if_any(async |client| client.send(LIST_SPEND.at(())).await)?;
    let has_store = caps.is_some();
    let caps = caps.map(|list| list.data).unwrap_or_default();
    if output.json {
        return output::print_json_list(&caps);
    }
    if !caps.is_empty() {
        return print_caps(&caps);
    }
    let has_caps = || {
        let env = environment::current_process_env()?;
        anyhow::Ok(!environment::load_config_quietly(&env)?.spend_caps().is_empty())
    };
    output::eprint_line(match has_store || !has_caps()? {
        true => "No caps are set.   Set one: [[caps]] in longhaul.toml",
        false => "Nothing was counted yet.   Submit a task: longhaul submit AGENT TEXT",
    });
    Ok(())
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
