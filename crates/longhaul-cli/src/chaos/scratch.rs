//! The folder in which a storm rages: a copy of the project, with a store of its own.
//!
//! Never: the user's store. Folder, data and store of everything that runs here
//! are named by this file and nobody else. Nothing is copied from outside the project.

use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::path::{Component, Path, PathBuf};

use anyhow::Context as _;
use longhaul::assemble::{House, open};
use longhaul::config::load;
use longhaul::config::settings::{Config, WITNESS_FILE};
use longhaul::config::surroundings::{DATA_NAME, FILE_NAME, Surroundings};
use longhaul::read_project_file;
use longhaul::trust::VARIABLE;
use longhaul_store::Role;
use longhaul_tool::Location;
use rustix::io::Errno;
use tempfile::TempDir;

use crate::chaos::built_in;
use crate::error::CliError;
use crate::exit::Exit;
use crate::open::opening;
use crate::own_process::OwnProcess;
use crate::trust::asking;
use crate::{here, project_files, say};

/// So deep may folders of agents and scripts stand in each other.
const DEPTH_MAX: u32 = 8;

/// A file of a project that is longer is not copied.
const FILE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// What the workers say on stderr stands in this file of the folder.
const WORKER_LOG: &str = "worker.log";

/// What is copied of a project.
const COPIED: &[&str] = &[
    "agents",
    ".claude/agents",
    "skills",
    ".claude/skills",
    "scripts",
];

/// A project to be stormed.
#[derive(Debug)]
pub(crate) struct Scratch {
    folder: TempDir,
    /// What its workers find around them.
    pub(crate) here: Surroundings,
    /// What is set there.
    pub(crate) config: Config,
}

impl Scratch {
    /// The built-in project, shielded from what this user has set.
    pub(crate) fn built_in() -> anyhow::Result<Self> {
        let folder = folder()?;
        project_files::write(folder.path(), built_in::FILES)?;
        let mut here = here::surroundings()?;
        here.env.retain(|name, _| !name.starts_with("LONGHAUL_"));
        here.env
            .insert("XDG_CONFIG_HOME".to_owned(), text(folder.path())?);
        Self::furnish(folder, here)
    }

    /// A copy of the project that this command was started in, for a storm over this
    /// agent. What a person trusts there is trusted in the copy: it is the same.
    pub(crate) fn copy(agent: &str) -> anyhow::Result<Self> {
        let mut here = here::surroundings()?;
        let project = here::config(&here)?;
        let shut = asking::before((&project, &here::agents(&project)?), Some(agent), false)?;
        if !shut.is_empty() {
            return Err(untrusted(agent, &shut));
        }
        here.env.insert(VARIABLE.to_owned(), "1".to_owned());
        let folder = folder()?;
        let copy = ProjectCopy {
            from: &project.root,
            to: folder.path(),
        };
        for name in COPIED {
            copy.folder(Path::new(name), 0)?;
        }
        for file in named(&project)? {
            copy.file(&file)?;
        }
        match &project.project_file {
            Some(_) => copy.settings()?,
            None => fs::write(folder.path().join(FILE_NAME), "")?,
        }
        Self::furnish(folder, here)
    }

    fn furnish(folder: TempDir, mut here: Surroundings) -> anyhow::Result<Self> {
        // On some systems the folder for temporary files is a link.
        let root = folder.path().canonicalize()?;
        let data = root.join(DATA_NAME);
        fs::create_dir_all(&data)?;
        let store = format!("sqlite:{}", text(&data.join("longhaul.db"))?);
        here.env.insert("LONGHAUL_DATA".to_owned(), text(&data)?);
        here.env.insert("LONGHAUL_STORE".to_owned(), store);
        here.env
            .insert(WITNESS_FILE.to_owned(), "witness.jsonl".to_owned());
        // Its workers are killed from outside, at the same place again and again.
        let limit = ("LONGHAUL_WORKER_CRASH_LIMIT".to_owned(), "0".to_owned());
        here.env.extend([limit]);
        here.cwd = root;
        let config = load::load(&here, &[])?;
        Ok(Self {
            folder,
            here,
            config,
        })
    }

    /// The whole program over the storm's store, beside whoever drives it.
    pub(crate) fn open(&self) -> anyhow::Result<House> {
        Ok(open(self.config.clone(), opening(Role::Outsider))?)
    }

    /// Starts a worker of the project in a process of its own.
    pub(crate) fn start_worker(&self) -> anyhow::Result<OwnProcess> {
        let args = ["worker", "--quiet", "--until-eof"];
        let mut command = OwnProcess::command(&args, self.root(), &self.here.env)?;
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.root().join(WORKER_LOG))?;
        // Ctrl-C at the terminal is for this process, which kills the worker itself.
        OwnProcess::start(command.stderr(log).process_group(0))
    }

    /// The folder.
    fn root(&self) -> &Path {
        &self.config.root
    }

    /// The file in which the witness tools leave their lines, if there are any.
    pub(crate) fn witness(&self) -> Option<PathBuf> {
        self.config.witness_file()
    }

    /// Leaves the folder where it is.
    pub(crate) fn keep(self) -> PathBuf {
        self.folder.keep()
    }
}

/// A storm can't wait for a person in the middle.
fn untrusted(agent: &str, shut: &[String]) -> anyhow::Error {
    let words = format!(
        "`{agent}` needs what is not trusted in this project, and a storm asks nobody:\n  {}",
        shut.join("\n  ")
    );
    CliError::usage(words)
        .exit(Exit::NotAllowed)
        .hint("look at it and decide", "longhaul trust")
        .hint(
            "or trust all of it for this once",
            format!("{VARIABLE}=1 longhaul chaos {agent} ..."),
        )
        .into()
}

/// The files that agents are made of beside their own, from the project's top.
fn named(project: &Config) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = here::agents(project)?.files;
    files.push(project.root.join("AGENTS.md"));
    let inward = |file: &PathBuf| {
        let below = file.strip_prefix(&project.root).ok()?;
        let plain = |part: Component<'_>| matches!(part, Component::Normal(_));
        (file.is_file() && below.components().all(plain)).then(|| below.to_path_buf())
    };
    Ok(files.iter().filter_map(inward).collect())
}

fn folder() -> anyhow::Result<TempDir> {
    let made = tempfile::Builder::new().prefix("longhaul-chaos-").tempdir();
    made.context("no temporary folder can be made; name another with TMPDIR")
}

fn text(path: &Path) -> anyhow::Result<String> {
    let text = path.to_str().map(str::to_owned);
    text.with_context(|| format!("{} is not UTF-8; name another with TMPDIR", path.display()))
}

/// A project and the folder that it is copied to.
struct ProjectCopy<'a> {
    from: &'a Path,
    to: &'a Path,
}

impl ProjectCopy<'_> {
    /// Copies the project's settings, without which nothing would be the same.
    fn settings(&self) -> anyhow::Result<()> {
        let read = read_project_file(self.from, Path::new(FILE_NAME), FILE_BYTES_MAX);
        let bytes = read.map_err(|why| CliError::usage(format!("`{FILE_NAME}` {why}")))?;
        fs::write(self.to.join(FILE_NAME), bytes)?;
        Ok(())
    }

    /// Copies a folder of the project, given from its top, if it is there. A linked one is not
    /// entered.
    fn folder(&self, name: &Path, depth: u32) -> anyhow::Result<()> {
        if depth > DEPTH_MAX {
            return Ok(());
        }
        let opened = Location::below(self.from, name).map(|folder| folder.open_folder());
        match opened {
            Some(Ok(_)) => {}
            Some(Err(Errno::NOENT)) => return Ok(()),
            Some(Err(_)) | None => {
                not_copied(name, "is a link, or no folder that can be opened");
                return Ok(());
            }
        }
        let from = self.from.join(name);
        fs::create_dir_all(self.to.join(name))?;
        for entry in fs::read_dir(&from).with_context(|| from.display().to_string())? {
            let entry = entry?;
            let name = name.join(entry.file_name());
            match entry.file_type()?.is_dir() {
                true => self.folder(&name, depth + 1)?,
                false => self.file(&name)?,
            }
        }
        Ok(())
    }

    /// Copies a file of the project, given from its top. One that leads out of it is not copied.
    fn file(&self, name: &Path) -> anyhow::Result<()> {
        let bytes = match read_project_file(self.from, name, FILE_BYTES_MAX) {
            Ok(bytes) => bytes,
            Err(why) => {
                not_copied(name, &why);
                return Ok(());
            }
        };
        let to = self.to.join(name);
        fs::create_dir_all(to.parent().unwrap_or(&to))?;
        fs::write(&to, bytes).with_context(|| to.display().to_string())?;
        // Scripts of a skill stay executable.
        let mode = fs::metadata(self.from.join(name))?.permissions();
        fs::set_permissions(&to, mode)?;
        Ok(())
    }
}

fn not_copied(name: &Path, why: &str) {
    say::talk(&format!(
        "note: `{}` {why}; it is not copied",
        name.display()
    ));
}
