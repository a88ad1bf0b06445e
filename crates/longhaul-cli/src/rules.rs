//! `longhaul rules`: lists and revokes approvals that are remembered for a run, an agent or the
//! project.

use clap::{Args, Subcommand};
use longhaul_api::gate::RuleView;
use longhaul_api::operations::{LIST_RULES, REVOKE_RULE};
use longhaul_api::query::RulesQuery;
use longhaul_core::policy::gate::AnswerScope;

use crate::client::connect::{with_client, with_client_if_any};
use crate::event_printer::format_date_time;
use crate::format::rule_pattern_text;
use crate::style::TextTone;
use crate::table::{self, ListOr, TableCell};
use crate::{output, resolve};

/// Maximum number of remembered approvals that are listed.
const ROWS_MAX: usize = 10_000;

pub(crate) const EXAMPLES: &str = "Examples:
  longhaul approve gate_01k3rzc --for agent      remembers the approval: the agent does not ask again
  longhaul rules                                 who allowed what, and how often it was used
  longhaul rules --all                           also revoked ones and those of ended runs
  longhaul rules rm rule_01k3s0yq8w7v2m4n6p8r0t2v4x";

/// Arguments of `longhaul rules`.
pub(crate) type RulesCommand = ListOr<ListRulesCommand, RulesSubcommand>;

#[derive(Debug, Subcommand)]
pub(crate) enum RulesSubcommand {
    /// Lists the remembered approvals, newest first
    Ls(ListRulesCommand),
    /// Revokes a remembered approval: later calls ask again
    #[command(visible_alias = "revoke")]
    Rm {
        /// Id of the remembered approval, as `longhaul rules` lists it, or four or more of its first or
        /// last characters
        rule: String,
        /// Print the revoked approval as one JSON object
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct ListRulesCommand {
    /// Also list revoked approvals and approvals of ended runs
    #[arg(long)]
    all: bool,
    /// Print the remembered approvals as one JSON object
    #[arg(long)]
    json: bool,
}

impl RulesCommand {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        match &self.command {
            None => self.list.run(),
            Some(RulesSubcommand::Ls(list)) => list.run(),
            Some(RulesSubcommand::Rm { rule, json }) => revoke_rule(rule, *json),
        }
    }
}

impl ListRulesCommand {
    fn run(&self) -> anyhow::Result<()> {
        let query = RulesQuery { all: self.all, ..RulesQuery::default() };
        let rules =
            with_client_if_any(async |client| client.list(LIST_RULES, query, ROWS_MAX).await)?;
        let titles = ["RULE", "FOR", "ALLOWS", "BY", "WHEN", "USED", "LAST USED"];
        let note = "No approval is remembered.   longhaul approve GATE --for agent";
        table::show_list(self.json, &rules.unwrap_or_default(), (&titles, note), rule_row)
    }
}

fn revoke_rule(id: &str, json: bool) -> anyhow::Result<()> {
    let rule = with_client(async |client| {
        let rule = resolve::resolve_rule_id(client, id).await?;
        client.send(REVOKE_RULE.at(rule)).await
    })?;
    output::show_text(json, &rule, |rule| {
        let allowed = rule_pattern_text(&rule.pattern);
        let id = rule.id;
        format!(
            "Revoked: {allowed} asks again, unless another remembered approval covers it   {id}"
        )
    })
}

fn rule_row(rule: &RuleView) -> Vec<TableCell> {
    let last_use = match (&rule.revoked, rule.last_used_at) {
        (Some(revoked), _) => {
            format!("revoked by {}, {}", revoked.by, format_date_time(revoked.at))
        }
        (None, Some(at)) => format_date_time(at),
        (None, None) => "-".to_owned(),
    };
    table::row(&[
        &TableCell::toned(rule.id, TextTone::Dim),
        &rule_scope_text(rule),
        &rule_pattern_text(&rule.pattern),
        &rule.by,
        &format_date_time(rule.at),
        &rule.used,
        &last_use,
    ])
}

fn rule_scope_text(rule: &RuleView) -> String {
    match (rule.scope, &rule.agent) {
        (AnswerScope::Agent, Some(agent)) => format!("agent {agent}"),
        (AnswerScope::Run | AnswerScope::Once, _) => rule.run.to_string(),
        (AnswerScope::Agent | AnswerScope::Project, _) => "project".to_owned(),
    }
}
