//! The temporary project of a chaos test: a copy of the user's project or the built-in project,
//! with a store of its own.
//!
//! Invariants: the user's store is never used, and nothing is copied from outside the project.

use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::path::{Component, Path, PathBuf};

use anyhow::Context as _;
use longhaul::assemble::{ProjectRuntime, open_runtime};
use longhaul::config::load;
use longhaul::config::process_env::{CONFIG_FILE_NAME, DATA_FOLDER_NAME, ProcessEnv};
use longhaul::config::settings::{CRASH_PROBE_FILE_VAR, Config};
use longhaul::read_project_file;
use longhaul::trust::TRUST_VAR;
use longhaul_store::OpenMode;
use longhaul_tool::FileLocation;
use rustix::io::Errno;
use tempfile::TempDir;

use crate::chaos::built_in;
use crate::child_process::ChildProcess;
use crate::error::CliError;
use crate::exit::Exit;
use crate::store_access::store_open_options;
use crate::trust::confirm;
use crate::{environment, output, project_files};

/// Maximum nesting depth of the folders that are copied.
const DEPTH_MAX: u32 = 8;

/// Maximum size of a copied file, in bytes.
const FILE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Name of the file in the temporary project that receives the stderr output of the workers.
const WORKER_LOG_FILE: &str = "worker.log";

/// Folders of the user's project that are copied for a chaos test.
const COPIED_FOLDERS: &[&str] =
    &["agents", ".claude/agents", "skills", ".claude/skills", "scripts"];

/// The temporary project of a chaos test. The project's folder is removed when this value is
/// dropped.
#[derive(Debug)]
pub(crate) struct ScratchProject {
    folder: TempDir,
    /// Current folder, home folder and environment variables of the project's workers.
    pub(crate) process_env: ProcessEnv,
    /// Configuration of the temporary project.
    pub(crate) config: Config,
}

impl ScratchProject {
    /// Creates the built-in project, isolated from the user's settings.
    pub(crate) fn create_built_in_project() -> anyhow::Result<Self> {
        let folder = create_temp_folder()?;
        project_files::write_project_files(folder.path(), built_in::FILES)?;
        let mut process_env = environment::current_process_env()?;
        process_env.env.retain(|name, _| !name.starts_with("LONGHAUL_"));
        process_env.env.insert("XDG_CONFIG_HOME".to_owned(), utf8_path_text(folder.path())?);
        Self::prepare_scratch_folder(folder, process_env)
    }

    /// Copies the project of the current folder, for a chaos test of this agent. What the user
    /// trusts in the project is trusted in the copy too, because the content is the same.
    pub(crate) fn copy_current_project(agent: &str) -> anyhow::Result<Self> {
        let mut process_env = environment::current_process_env()?;
        let project = environment::load_config(&process_env)?;
        let untrusted = confirm::ask_for_trust_before_run(
            (&project, &environment::load_agents(&project)?),
            Some(agent),
            false,
        )?;
        if !untrusted.is_empty() {
            return Err(untrusted_items_error(agent, &untrusted));
        }
        process_env.env.insert(TRUST_VAR.to_owned(), "1".to_owned());
        let folder = create_temp_folder()?;
        let copy = ProjectCopier { from: &project.root, to: folder.path() };
        for name in COPIED_FOLDERS {
            copy.copy_folder(Path::new(name), 0)?;
        }
        for file in files_used_by_agents(&project)? {
            copy.copy_file(&file)?;
        }
        match &project.project_file {
            Some(_) => copy.copy_settings_file()?,
            None => fs::write(folder.path().join(CONFIG_FILE_NAME), "")?,
        }
        Self::prepare_scratch_folder(folder, process_env)
    }

    fn prepare_scratch_folder(
        folder: TempDir,
        mut process_env: ProcessEnv,
    ) -> anyhow::Result<Self> {
        // On some systems the folder for temporary files is a symlink.
        let root = folder.path().canonicalize()?;
        let data = root.join(DATA_FOLDER_NAME);
        fs::create_dir_all(&data)?;
        let store = format!("sqlite:{}", utf8_path_text(&data.join("longhaul.db"))?);
        process_env.env.insert("LONGHAUL_DATA".to_owned(), utf8_path_text(&data)?);
        process_env.env.insert("LONGHAUL_STORE".to_owned(), store);
        process_env.env.insert(CRASH_PROBE_FILE_VAR.to_owned(), "crash_probe.jsonl".to_owned());
        // The workers are killed from outside, repeatedly at the same event, which must not count
        // as crashes of the run.
        let limit = ("LONGHAUL_WORKER_CRASH_LIMIT".to_owned(), "0".to_owned());
        process_env.env.extend([limit]);
        process_env.cwd = root;
        let config = load::load(&process_env, &[])?;
        Ok(Self { folder, process_env, config })
    }

    /// Opens the temporary project and its store without driving runs.
    pub(crate) fn open_runtime(&self) -> anyhow::Result<ProjectRuntime> {
        Ok(open_runtime(self.config.clone(), store_open_options(OpenMode::Outsider))?)
    }

    /// Starts a worker of the project in a separate process.
    pub(crate) fn start_worker(&self) -> anyhow::Result<ChildProcess> {
        let args = ["worker", "--quiet", "--until-eof"];
        let mut command = ChildProcess::build_longhaul_command(
            &args,
            self.project_folder(),
            &self.process_env.env,
        )?;
        let log_file = self.project_folder().join(WORKER_LOG_FILE);
        let log = File::options().create(true).append(true).open(log_file)?;
        // Ctrl-C at the terminal is for this process, which kills the worker itself.
        ChildProcess::start(command.stderr(log).process_group(0))
    }

    /// Returns the path of the project's temporary folder.
    fn project_folder(&self) -> &Path {
        &self.config.root
    }

    /// Returns the path of the file in which probe tools (tools for crash tests) record their
    /// effects. `None` means that no file is set.
    pub(crate) fn effect_log_path(&self) -> Option<PathBuf> {
        self.config.crash_test_effect_log_path()
    }

    /// Keeps the temporary folder from being removed, and returns its path.
    pub(crate) fn keep_folder(self) -> PathBuf {
        self.folder.keep()
    }
}

/// Returns the error for items of the project that are not trusted. A chaos test can't wait for a
/// person to decide.
fn untrusted_items_error(agent: &str, untrusted: &[String]) -> anyhow::Error {
    let message = format!(
        "`{agent}` needs items that are not trusted in this project, and chaos runs do not ask:\n  {}",
        untrusted.join("\n  ")
    );
    CliError::usage_error(message)
        .with_exit_code(Exit::NotAllowed)
        .with_hint("review the items and decide", "longhaul trust")
        .with_hint("or trust all items once", format!("{TRUST_VAR}=1 longhaul chaos {agent} ..."))
        .into()
}

/// Returns the files inside the project that its agents use besides the copied folders, such as
/// `AGENTS.md`. The paths are relative to the project root.
fn files_used_by_agents(project: &Config) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = environment::load_agents(project)?.files;
    files.push(project.root.join("AGENTS.md"));
    let path_in_project = |file: &PathBuf| {
        let relative_path = file.strip_prefix(&project.root).ok()?;
        let is_normal = |part: Component<'_>| matches!(part, Component::Normal(_));
        (file.is_file() && relative_path.components().all(is_normal))
            .then(|| relative_path.to_path_buf())
    };
    Ok(files.iter().filter_map(path_in_project).collect())
}

fn create_temp_folder() -> anyhow::Result<TempDir> {
    let temp_folder = tempfile::Builder::new().prefix("longhaul-chaos-").tempdir();
    temp_folder.context("a temporary folder can't be created; set another one with TMPDIR")
}

fn utf8_path_text(path: &Path) -> anyhow::Result<String> {
    let text = path.to_str().map(str::to_owned);
    text.with_context(|| format!("{} is not UTF-8; set another folder with TMPDIR", path.display()))
}

/// Copies a user's project to the temporary folder of a chaos test.
struct ProjectCopier<'a> {
    from: &'a Path,
    to: &'a Path,
}

impl ProjectCopier<'_> {
    /// Copies the project's settings file. Fails if the file can't be read.
    fn copy_settings_file(&self) -> anyhow::Result<()> {
        let result = read_project_file(self.from, Path::new(CONFIG_FILE_NAME), FILE_BYTES_MAX);
        let bytes = result
            .map_err(|reason| CliError::usage_error(format!("`{CONFIG_FILE_NAME}`: {reason}")))?;
        fs::write(self.to.join(CONFIG_FILE_NAME), bytes)?;
        Ok(())
    }

    /// Copies a folder, given by its path relative to the project root, if the folder exists.
    /// Symlinked folders are skipped.
    fn copy_folder(&self, relative_path: &Path, depth: u32) -> anyhow::Result<()> {
        if depth > DEPTH_MAX {
            return Ok(());
        }
        let open_result =
            FileLocation::below_root(self.from, relative_path).map(|folder| folder.open_folder());
        match open_result {
            Some(Ok(_)) => {}
            Some(Err(Errno::NOENT)) => return Ok(()),
            Some(Err(_)) | None => {
                print_not_copied_note(
                    relative_path,
                    "the path is a symlink, or not a folder that can be opened",
                );
                return Ok(());
            }
        }
        let from = self.from.join(relative_path);
        fs::create_dir_all(self.to.join(relative_path))?;
        for entry in fs::read_dir(&from).with_context(|| from.display().to_string())? {
            let entry = entry?;
            let relative_path = relative_path.join(entry.file_name());
            match entry.file_type()?.is_dir() {
                true => self.copy_folder(&relative_path, depth + 1)?,
                false => self.copy_file(&relative_path)?,
            }
        }
        Ok(())
    }

    /// Copies a file, given by its path relative to the project root. A file outside the project is
    /// skipped.
    fn copy_file(&self, relative_path: &Path) -> anyhow::Result<()> {
        let bytes = match read_project_file(self.from, relative_path, FILE_BYTES_MAX) {
            Ok(bytes) => bytes,
            Err(reason) => {
                print_not_copied_note(relative_path, &reason);
                return Ok(());
            }
        };
        let to = self.to.join(relative_path);
        fs::create_dir_all(to.parent().unwrap_or(&to))?;
        fs::write(&to, bytes).with_context(|| to.display().to_string())?;
        // Scripts of a skill stay executable.
        let mode = fs::metadata(self.from.join(relative_path))?.permissions();
        fs::set_permissions(&to, mode)?;
        Ok(())
    }
}

fn print_not_copied_note(relative_path: &Path, reason: &str) {
    output::eprint_line(&format!("note: `{}` is not copied: {reason}", relative_path.display()));
}
