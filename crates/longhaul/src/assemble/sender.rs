//! The tool that sends messages, as the project's settings have it.
//!
//! Never: hands a message to a program of a stranger's, or writes outside the
//! project because the project says so.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use longhaul_core::port::tool::{Stay, Tool};
use longhaul_core::time::Clock;
use longhaul_engine::agent::Agent;
use longhaul_engine::ports::Supplies;
use longhaul_engine::toolbox::Equipped;
use longhaul_tool::message::{Deliver, Messages, SendMessage};
use longhaul_tool::outbound::Guarded;

use crate::assemble::supplies::Served;
use crate::config::key::DELIVER;
use crate::config::settings::Config;
use crate::trust::decisions::Decisions;
use crate::trust::item::Item;
use crate::trust::items::{self, SENDER, SHELL};
use crate::trust::sends;

/// Where deliveries are written down, in the data folder.
const RECORD: &str = "deliveries.jsonl";

/// Where messages go without a word, in the data folder.
const OUTBOX: &str = "outbox.jsonl";

/// The tool, and what has to be trusted before it is used.
#[derive(Debug, Clone)]
pub struct Sender {
    /// The tool.
    pub tool: Arc<dyn Tool>,
    /// Where the project's own file would have messages go.
    pub deliver: Option<Deliver>,
}

/// The tool that this project's settings describe. The error says what does not fit.
pub(crate) fn sender(
    config: &Config,
    clock: &Arc<dyn Clock>,
    out: &Arc<Guarded>,
) -> Result<Sender, String> {
    let data = config.data_location();
    let set = config.tool(SENDER).remove("deliver");
    let deliver = match set.as_ref().map(serde_json::Value::as_str) {
        None => Deliver::File(data.join(OUTBOX)),
        Some(Some(text)) => match text.parse().map_err(|bad| format!("`{DELIVER}`: {bad}"))? {
            Deliver::File(file) => Deliver::File(config.location(&file.path())),
            other @ (Deliver::Command(_) | Deliver::Webhook(_)) => other,
        },
        Some(None) => return Err(format!("`{DELIVER}` is no text: write `file:PATH`")),
    };
    let messages = Messages {
        deliver,
        record: data.join(RECORD),
        root: config.root.clone(),
        allow_private: false,
    };
    let tool = SendMessage::new(messages, Arc::clone(clock), Arc::clone(out));
    Ok(Sender {
        tool: Arc::new(tool.map_err(|bad| bad.to_string())?),
        deliver: sends::deliver(config),
    })
}

/// The servers' tools, the one that runs commands, and the sender where it waits
/// for trust.
#[derive(Debug)]
pub struct Withheld {
    served: Arc<Served>,
    sender: Sender,
    shell: Arc<dyn Tool>,
    root: PathBuf,
    decisions: Decisions,
}

impl Withheld {
    /// What is handed out only to those who may have it.
    pub fn new(config: &Config, served: Arc<Served>, sender: Sender, shell: Arc<dyn Tool>) -> Self {
        Self {
            served,
            sender,
            shell,
            root: config.root.clone(),
            decisions: Decisions::new(config),
        }
    }

    /// What this tool waits for, as it stands now; none: it is not withheld.
    fn held(&self, name: &str, asks: Option<&Agent>) -> Option<(&Arc<dyn Tool>, Item)> {
        match name {
            // Only to an agent: it is what a person has looked at.
            SHELL => Some((&self.shell, items::shell(asks?))),
            SENDER => {
                let deliver = self.sender.deliver.as_ref()?;
                let item = sends::delivery(&self.root, deliver)?;
                Some((&self.sender.tool, item))
            }
            _ => None,
        }
    }
}

impl Withheld {
    /// The tool, if what it waits for is trusted.
    fn handed(&self, (tool, item): (&Arc<dyn Tool>, Item)) -> Result<Vec<Equipped>, String> {
        self.decisions.check(&item)?;
        let tool = Equipped::new(Arc::clone(tool)).map_err(|bad| bad.to_string())?;
        Ok(vec![tool])
    }
}

#[async_trait]
impl Supplies for Withheld {
    async fn find(&self, name: &str, stay: Stay) -> Option<Result<Vec<Equipped>, String>> {
        match self.held(name, None) {
            Some(held) => Some(self.handed(held)),
            None => Supplies::find(&*self.served, name, stay).await,
        }
    }

    async fn find_for(
        &self,
        agent: &Agent,
        name: &str,
        stay: Stay,
    ) -> Option<Result<Vec<Equipped>, String>> {
        match self.held(name, Some(agent)) {
            Some(held) => Some(self.handed(held)),
            None => Supplies::find(&*self.served, name, stay).await,
        }
    }

    async fn let_go(&self, stay: Stay) {
        self.served.let_go(stay).await;
    }
}
