//! The tool that sends messages, as the project's settings have it.
//!
//! Never: hands a message to a program of a stranger's, or writes outside the
//! project because the project says so.

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use longhaul_core::port::tool::Stay;
use longhaul_core::port::tool::Tool;
use longhaul_core::time::Clock;
use longhaul_engine::ports::Supplies;
use longhaul_engine::toolbox::Equipped;
use longhaul_tool::message::{Deliver, Messages, SendMessage};
use longhaul_tool::outbound::Guarded;

use crate::assemble::supplies::Served;
use crate::config::key::DELIVER;
use crate::config::settings::Config;
use crate::config::value::Origin;
use crate::trust::found::{SENDER, stranger_s_deliver};
use crate::trust::thing::{Kind, Thing};
use crate::trust::warden::Warden;

/// Where deliveries are written down, in the data folder.
const RECORD: &str = "deliveries.jsonl";

/// Where messages go without a word, in the data folder.
const OUTBOX: &str = "outbox.jsonl";

/// The tool, and what has to be trusted before it is used.
#[derive(Debug, Clone)]
pub struct Sender {
    /// The tool.
    pub tool: Arc<dyn Tool>,
    /// The program of the project's that messages would be handed to.
    pub program: Option<Vec<String>>,
}

/// The tool that this project's settings describe. The error says what does not fit.
pub(crate) fn sender(
    config: &Config,
    clock: &Arc<dyn Clock>,
    out: &Arc<Guarded>,
) -> Result<Sender, String> {
    let data = config.data();
    let set = config.tool(SENDER).remove("deliver");
    let deliver = match set.as_ref().map(serde_json::Value::as_str) {
        None => Deliver::File(data.join(OUTBOX)),
        Some(Some(text)) => text.parse().map_err(|bad| format!("`{DELIVER}`: {bad}"))?,
        Some(None) => return Err(format!("`{DELIVER}` is no text: write `file:PATH`")),
    };
    if let Deliver::File(file) = &deliver
        && set.is_some()
        && is_the_project_s(config)
        && leaves(&config.root, file)
    {
        return Err(format!(
            "`{DELIVER}` leads out of the project, which only your own settings may: {}",
            file.display()
        ));
    }
    let messages = Messages {
        deliver,
        record: data.join(RECORD),
        root: config.root.clone(),
        allow_private: false,
    };
    let tool = SendMessage::new(messages, Arc::clone(clock), Arc::clone(out));
    Ok(Sender {
        tool: Arc::new(tool.map_err(|bad| bad.to_string())?),
        program: stranger_s_deliver(config),
    })
}

fn is_the_project_s(config: &Config) -> bool {
    let setting = config.settings.get(DELIVER);
    setting.is_some_and(|setting| matches!(setting.origin, Origin::ProjectFile(..)))
}

/// Whether a path as it is written lies outside this folder.
pub(crate) fn leaves(root: &Path, file: &Path) -> bool {
    let whole = root.join(file);
    let up = |part: Component<'_>| part == Component::ParentDir;
    !whole.starts_with(root) || whole.components().any(up)
}

/// The servers' tools, and the sender where it waits for trust.
#[derive(Debug)]
pub struct Withheld {
    served: Arc<Served>,
    sender: Option<(Arc<dyn Tool>, Vec<String>)>,
    root: PathBuf,
    warden: Warden,
}

impl Withheld {
    /// What is handed out only to those who may have it.
    pub fn new(config: &Config, served: Arc<Served>, sender: &Sender) -> Self {
        let program = sender.program.clone();
        Self {
            served,
            sender: program.map(|program| (Arc::clone(&sender.tool), program)),
            root: config.root.clone(),
            warden: Warden::of(config),
        }
    }
}

#[async_trait]
impl Supplies for Withheld {
    async fn find(&self, name: &str, stay: Stay) -> Option<Result<Vec<Equipped>, String>> {
        let Some((tool, program)) = self.sender.as_ref().filter(|_| name == SENDER) else {
            return Supplies::find(&*self.served, name, stay).await;
        };
        let thing = Thing::command(Kind::Deliver, &self.root, program);
        let verdict = self.warden.may(&thing);
        Some(match verdict.allows() {
            true => Equipped::new(Arc::clone(tool))
                .map(|tool| vec![tool])
                .map_err(|bad| bad.to_string()),
            false => Err(verdict.sentence(&thing)),
        })
    }

    async fn let_go(&self, stay: Stay) {
        self.served.let_go(stay).await;
    }
}
