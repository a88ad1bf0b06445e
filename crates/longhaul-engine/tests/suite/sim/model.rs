//! A model that plays the script of the run that asks.
//!
//! Never: state. It finds the script in what it is asked.

use std::sync::Arc;

use async_trait::async_trait;
use longhaul_core::failure::Failure;
use longhaul_core::message::{Message, Part};
use longhaul_core::port::model::{Answered, Ask, Ear, Model, Quote};
use longhaul_core::raw::RawJson;
use longhaul_core::usage::Hold;
use longhaul_engine::ports::{Found, Models, NoModel};
use longhaul_run::next::check_conversation;
use longhaul_testkit::sim::outside::Asked;
use longhaul_testkit::sim::script::{Script, TARIFF};

use crate::suite::sim::world::World;

/// The one model there is, under every name.
#[derive(Debug)]
pub(super) struct OneModel(Arc<SimModel>);

impl OneModel {
    pub(super) fn new(world: &World) -> Self {
        Self(Arc::new(SimModel(world.clone())))
    }
}

impl Models for OneModel {
    fn find(&self, _name: Option<&str>) -> Result<Found, NoModel> {
        let name = "scripted/sim".to_owned();
        let model = self.0.clone();
        Ok(Found { name, model })
    }
}

#[derive(Debug)]
struct SimModel(World);

#[async_trait]
impl Model for SimModel {
    fn quote(&self, _ask: &Ask) -> Quote {
        Quote {
            hold: Hold::default(),
            tariff: TARIFF,
        }
    }

    async fn reply(&self, ask: &Ask, ear: &dyn Ear) -> Result<Answered, Failure> {
        let world = &self.0;
        world.begins(ask.run, "a question", None).await;
        if let Err(bad) = check_conversation(&ask.messages) {
            world.outside.wrong(format!("{}: {bad}", ask.run));
        }
        world.outside.ask(Asked {
            run: ask.run,
            turn: ask.turn,
            attempt: ask.attempt,
        });
        world.luck.some_waits().await;
        ear.words("I was about to");
        world.luck.some_waits().await;
        script(ask).reply(ask)
    }
}

/// The script that the task carries: the first words of the conversation.
fn script(ask: &Ask) -> Script {
    let words = match ask.messages.first().map(|first| &**first) {
        Some(Message::User(parts)) => parts.first(),
        Some(Message::Assistant(_) | Message::Results(_)) | None => None,
    };
    let Some(Part::Text(text)) = words else {
        panic!("{} asks without a task", ask.run);
    };
    Script::of(&RawJson::parse(text.to_string()).unwrap())
}
