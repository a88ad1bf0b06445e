//! The folder in which a storm rages: a copy of the project, with a store of its own.
//!
//! Never: the user's store. Folder, data and store of everything that runs here
//! are named by this file and nobody else. Nothing is copied from outside the project.

use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::path::{Component, Path, PathBuf};

use anyhow::Context as _;
use longhaul::assemble::{ProjectRuntime, open};
use longhaul::config::load;
use longhaul::config::process_env::{CONFIG_FILE_NAME, DATA_FOLDER_NAME, ProcessEnv};
use longhaul::config::settings::{CRASH_PROBE_FILE_VAR, Config};
use longhaul::read_project_file;
use longhaul::trust::TRUST_VAR;
use longhaul_store::OpenMode;
use longhaul_tool::Location;
use rustix::io::Errno;
use tempfile::TempDir;

use crate::chaos::built_in;
use crate::child_process::ChildProcess;
use crate::error::CliError;
use crate::exit::Exit;
use crate::store_access::open_options;
use crate::trust::confirm;
use crate::{environment, output, project_files};

/// So deep may folders of agents and scripts stand in each other.
const DEPTH_MAX: u32 = 8;

/// A file of a project that is longer is not copied.
const FILE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// What the workers say on stderr stands in this file of the folder.
const WORKER_LOG_FILE: &str = "worker.log";

/// What is copied of a project.
const COPIED_FOLDERS: &[&str] =
    &["agents", ".claude/agents", "skills", ".claude/skills", "scripts"];

/// A project to be stormed.
#[derive(Debug)]
pub(crate) struct ScratchProject {
    folder: TempDir,
    /// What its workers find around them.
    pub(crate) process_env: ProcessEnv,
    /// What is set there.
    pub(crate) config: Config,
}

impl ScratchProject {
    /// The built-in project, shielded from what this user has set.
    pub(crate) fn built_in() -> anyhow::Result<Self> {
        let folder = temp_folder()?;
        project_files::write_files(folder.path(), built_in::FILES)?;
        let mut here = environment::process_env()?;
        here.env.retain(|name, _| !name.starts_with("LONGHAUL_"));
        here.env.insert("XDG_CONFIG_HOME".to_owned(), path_text(folder.path())?);
        Self::prepare(folder, here)
    }

    /// A copy of the project that this command was started in, for a storm over this
    /// agent. What a person trusts there is trusted in the copy: it is the same.
    pub(crate) fn copy(agent: &str) -> anyhow::Result<Self> {
        let mut here = environment::process_env()?;
        let project = environment::load_config(&here)?;
        let shut = confirm::ask_before_run(
            (&project, &environment::load_agents(&project)?),
            Some(agent),
            false,
        )?;
        if !shut.is_empty() {
            return Err(untrusted_error(agent, &shut));
        }
        here.env.insert(TRUST_VAR.to_owned(), "1".to_owned());
        let folder = temp_folder()?;
        let copy = ProjectCopy { from: &project.root, to: folder.path() };
        for name in COPIED_FOLDERS {
            copy.copy_folder(Path::new(name), 0)?;
        }
        for file in agent_files(&project)? {
            copy.copy_file(&file)?;
        }
        match &project.project_file {
            Some(_) => copy.copy_settings()?,
            None => fs::write(folder.path().join(CONFIG_FILE_NAME), "")?,
        }
        Self::prepare(folder, here)
    }

    fn prepare(folder: TempDir, mut here: ProcessEnv) -> anyhow::Result<Self> {
        // On some systems the folder for temporary files is a link.
        let root = folder.path().canonicalize()?;
        let data = root.join(DATA_FOLDER_NAME);
        fs::create_dir_all(&data)?;
        let store = format!("sqlite:{}", path_text(&data.join("longhaul.db"))?);
        here.env.insert("LONGHAUL_DATA".to_owned(), path_text(&data)?);
        here.env.insert("LONGHAUL_STORE".to_owned(), store);
        here.env.insert(CRASH_PROBE_FILE_VAR.to_owned(), "crash_probe.jsonl".to_owned());
        // Its workers are killed from outside, at the same place again and again.
        let limit = ("LONGHAUL_WORKER_CRASH_LIMIT".to_owned(), "0".to_owned());
        here.env.extend([limit]);
        here.cwd = root;
        let config = load::load(&here, &[])?;
        Ok(Self { folder, process_env: here, config })
    }

    /// The whole program over the storm's store, beside whoever drives it.
    pub(crate) fn open(&self) -> anyhow::Result<ProjectRuntime> {
        Ok(open(self.config.clone(), open_options(OpenMode::Outsider))?)
    }

    /// Starts a worker of the project in a process of its own.
    pub(crate) fn start_worker(&self) -> anyhow::Result<ChildProcess> {
        let args = ["worker", "--quiet", "--until-eof"];
        let mut command = ChildProcess::command(&args, self.root(), &self.process_env.env)?;
        let log =
            File::options().create(true).append(true).open(self.root().join(WORKER_LOG_FILE))?;
        // Ctrl-C at the terminal is for this process, which kills the worker itself.
        ChildProcess::start(command.stderr(log).process_group(0))
    }

    /// The folder.
    fn root(&self) -> &Path {
        &self.config.root
    }

    /// The file in which the witness tools leave their lines, if there are any.
    pub(crate) fn probe_file(&self) -> Option<PathBuf> {
        self.config.crash_probe_file()
    }

    /// Leaves the folder where it is.
    pub(crate) fn keep(self) -> PathBuf {
        self.folder.keep()
    }
}

/// A storm can't wait for a person in the middle.
fn untrusted_error(agent: &str, shut: &[String]) -> anyhow::Error {
    let words = format!(
        "`{agent}` needs what is not trusted in this project, and a storm asks nobody:\n  {}",
        shut.join("\n  ")
    );
    CliError::usage(words)
        .with_exit(Exit::NotAllowed)
        .hint("look at it and decide", "longhaul trust")
        .hint(
            "or trust all of it for this once",
            format!("{TRUST_VAR}=1 longhaul chaos {agent} ..."),
        )
        .into()
}

/// The files that agents are made of beside their own, from the project's top.
fn agent_files(project: &Config) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = environment::load_agents(project)?.files;
    files.push(project.root.join("AGENTS.md"));
    let inward = |file: &PathBuf| {
        let below = file.strip_prefix(&project.root).ok()?;
        let plain = |part: Component<'_>| matches!(part, Component::Normal(_));
        (file.is_file() && below.components().all(plain)).then(|| below.to_path_buf())
    };
    Ok(files.iter().filter_map(inward).collect())
}

fn temp_folder() -> anyhow::Result<TempDir> {
    let made = tempfile::Builder::new().prefix("longhaul-chaos-").tempdir();
    made.context("no temporary folder can be made; name another with TMPDIR")
}

fn path_text(path: &Path) -> anyhow::Result<String> {
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
    fn copy_settings(&self) -> anyhow::Result<()> {
        let read = read_project_file(self.from, Path::new(CONFIG_FILE_NAME), FILE_BYTES_MAX);
        let bytes = read.map_err(|why| CliError::usage(format!("`{CONFIG_FILE_NAME}` {why}")))?;
        fs::write(self.to.join(CONFIG_FILE_NAME), bytes)?;
        Ok(())
    }

    /// Copies a folder of the project, given from its top, if it is there. A linked one is not
    /// entered.
    fn copy_folder(&self, name: &Path, depth: u32) -> anyhow::Result<()> {
        if depth > DEPTH_MAX {
            return Ok(());
        }
        let opened = Location::below(self.from, name).map(|folder| folder.open_folder());
        match opened {
            Some(Ok(_)) => {}
            Some(Err(Errno::NOENT)) => return Ok(()),
            Some(Err(_)) | None => {
                note_not_copied(name, "is a link, or no folder that can be opened");
                return Ok(());
            }
        }
        let from = self.from.join(name);
        fs::create_dir_all(self.to.join(name))?;
        for entry in fs::read_dir(&from).with_context(|| from.display().to_string())? {
            let entry = entry?;
            let name = name.join(entry.file_name());
            match entry.file_type()?.is_dir() {
                true => self.copy_folder(&name, depth + 1)?,
                false => self.copy_file(&name)?,
            }
        }
        Ok(())
    }

    /// Copies a file of the project, given from its top. One that leads out of it is not copied.
    fn copy_file(&self, name: &Path) -> anyhow::Result<()> {
        let bytes = match read_project_file(self.from, name, FILE_BYTES_MAX) {
            Ok(bytes) => bytes,
            Err(why) => {
                note_not_copied(name, &why);
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

fn note_not_copied(name: &Path, why: &str) {
    output::stderr_line(&format!("note: `{}` {why}; it is not copied", name.display()));
}
