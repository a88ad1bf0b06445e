//! Assembles a runtime for a program that uses the library, with a project or without one.

use std::sync::Arc;

use longhaul_core::port::shelves::Shelves;
use longhaul_core::time::Clock;
use longhaul_engine::Longhaul;
use longhaul_engine::agent::Roster;
use longhaul_engine::clock::SystemClock;
use longhaul_engine::ports::{NoEyes, Ports};
use longhaul_engine::toolbox::Toolbox;
use longhaul_store::{Options, Role};

use crate::agents::loaded::Loaded;
use crate::agents::shelf::{Shelf, Unserved};
use crate::assemble::album::Album;
use crate::assemble::clients;
use crate::assemble::models::ModelShelf;
use crate::assemble::redactor::{ProjectRedactor, known_secrets};
use crate::assemble::registered::Registered;
use crate::assemble::supplies::Served;
use crate::assemble::{
    AssembleError, FORGOTTEN, House, Opening, open_at, store_url, with_store_tools,
};
use crate::config;
use crate::config::fault::ConfigError;
use crate::config::load::Flag;
use crate::config::surroundings::Surroundings;
use crate::mcp::file::McpFile;

/// Opens what a program registers and what the files of its project say, over this store or the
/// project's own.
pub(crate) fn open_project(
    here: &Surroundings,
    store: Option<String>,
    registered: Registered,
) -> Result<House, AssembleError> {
    // As a setting, so that the store is closed to agents' tools like a project's own.
    let named = store.as_deref().map(store_flag).transpose()?.flatten();
    let config = config::load::load(here, named.as_slice()).map_err(settings)?;
    let url = match store {
        Some(url) if url == FORGOTTEN => url,
        Some(_) | None => store_url(&config)?,
    };
    let house = open_at(url, config, opening(), registered)?;
    for problem in house.loaded.problems.iter().chain(&house.loaded.lacks) {
        tracing::warn!("{problem}");
    }
    Ok(house)
}

/// The store URL of a program as a setting, or `None` for a store in memory. A relative path is
/// resolved against the program's working directory, not the project's folder.
fn store_flag(url: &str) -> Result<Option<Flag>, AssembleError> {
    let words = match url.strip_prefix("sqlite:") {
        Some(_) if url == FORGOTTEN => return Ok(None),
        Some(file) => {
            let file = file.strip_prefix("//").unwrap_or(file);
            let unnamed = |why| AssembleError::Setting(format!("`{url}` names no file: {why}"));
            let file = std::path::absolute(file).map_err(unnamed)?;
            format!("sqlite:{}", file.display())
        }
        None => url.to_owned(),
    };
    Ok(Some(Flag {
        name: ".store(..)".to_owned(),
        key: "store.url".to_owned(),
        words,
    }))
}

/// Opens what a program registers, and models by the keys in the environment. No file of a
/// project or of the user is read.
pub(crate) fn open_without_project(
    here: &Surroundings,
    store: String,
    registered: Registered,
) -> Result<House, AssembleError> {
    let config = config::load::load_environment(here).map_err(settings)?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let store = Options {
        holder: opening().holder,
        ..Options::new(store, Role::Driver, Arc::clone(&clock))
    };
    let store = Arc::new(longhaul_store::open(store)?);
    let mut registered = registered.with_handlers(&store)?;
    let tools = registered.toolbox(with_store_tools(Toolbox::new([])?, &store)?)?;
    let names: Vec<&str> = tools.all().map(|tool| tool.card().name.as_str()).collect();
    let why = "only a project has servers: name its folder with `.project(..)`";
    registered.check(
        &config,
        &Shelf {
            unserved: Some(Unserved::Broken(why)),
            ..Shelf::bare(&config.root, &names)
        },
    )?;
    let album = Album(Arc::clone(&store) as Arc<dyn Shelves>);
    let shelf = ModelShelf::new(&config, Arc::clone(&clock)).with_pictures(Arc::new(album));
    let models = registered.models(Arc::new(shelf));
    let ports = Ports {
        eyes: registered.context_providers(Arc::new(NoEyes)),
        redact: Arc::new(ProjectRedactor(known_secrets(&config))),
        ..Ports::plain(Arc::clone(&store), Arc::clone(&clock), models, tools)
    };
    let roster = registered.roster(Roster::default());
    let file = McpFile::default();
    let line = clients::line(&config, &file, &clock);
    Ok(House {
        longhaul: Longhaul::new(ports, roster, config.defaults()),
        loaded: Loaded::default(),
        store,
        served: Arc::new(Served::new(&config, file, line)),
        config,
    })
}

fn settings(error: ConfigError) -> AssembleError {
    AssembleError::Setting(format!("the settings can't be used: {error}"))
}

/// How a program opens the store of its own runs.
fn opening() -> Opening {
    let program = std::env::args().next().unwrap_or_default();
    Opening {
        role: Role::Driver,
        holder: format!("the program {program}"),
        fatal: None,
        recorder: None,
    }
}
