//! The cassettes of a project: files with recorded model responses, which are replayed instead of
//! calling the model. Invariant: every cassette that is played is in the cassette folder.

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longhaul_core::raw::Hash;
use longhaul_engine::services::{ModelResolver, ResolveModelError, ResolvedModel};
use longhaul_model::cassette::{Cassette, CassetteModel, CassetteRecorder};

use crate::assemble::redactor::build_redactor;
use crate::config::settings::Config;
use longhaul_model::providers::built_in::CASSETTE_PROVIDER;

/// Suffix of a cassette name that makes the replay accept requests that differ from the recorded
/// ones.
const LOOSE_SUFFIX: &str = "+loose";

/// Maximum length in characters of the name of a cassette (a file with recorded model responses).
const NAME_CHARS_MAX: usize = 100;

/// Number of hash characters in the name of a copied cassette file. They distinguish files with the
/// same name.
const HASH_CHARS: usize = 8;

/// Returns the path of the cassette (a file with recorded model responses) that has this name.
///
/// # Errors
/// The name is not valid.
pub fn cassette_file_path(config: &Config, name: &str) -> Result<PathBuf, String> {
    let is_name_char = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let has_valid_length = (1..=NAME_CHARS_MAX).contains(&name.len()) && !name.starts_with('.');
    if !has_valid_length || !name.chars().all(is_name_char) {
        let name: String = name.chars().take(NAME_CHARS_MAX).collect();
        return Err(format!(
            "`{name}` is not a valid cassette name: use letters, digits, `-`, `_` and `.`, \
             {NAME_CHARS_MAX} at most."
        ));
    }
    Ok(cassette_folder(config).join(format!("{name}.jsonl")))
}

/// Returns the name of the model that replays a cassette (recorded model responses), given by its
/// name in this project or by the path of a file. A file is copied into the cassette folder, so
/// that the run can continue if the original file is deleted.
///
/// # Errors
/// There is no such cassette or file, or the file can't be copied.
pub fn prepare_cassette_replay_model(
    config: &Config,
    cassette_or_path: &str,
    is_loose: bool,
) -> Result<String, String> {
    let loose_replay_suffix = if is_loose { LOOSE_SUFFIX } else { "" };
    if let Ok(path) = cassette_file_path(config, cassette_or_path)
        && path.exists()
    {
        return Ok(format!("{CASSETTE_PROVIDER}/{cassette_or_path}{loose_replay_suffix}"));
    }
    let file = Path::new(cassette_or_path);
    if !file.exists() {
        return Err(format!(
            "There is no cassette `{cassette_or_path}`, neither as a file nor in {}. Record one: \
             longhaul run AGENT ... --record={cassette_or_path}",
            cassette_folder(config).display()
        ));
    }
    // A file that is not a valid cassette is not copied.
    Cassette::load(file).map_err(|error| error.to_string())?;
    let copy_error = |error: std::io::Error| format!("{cassette_or_path} can't be copied: {error}");
    let bytes = std::fs::read(file).map_err(copy_error)?;
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    let stem: String = stem
        .chars()
        .take(NAME_CHARS_MAX / 2)
        .filter(|c| c.is_ascii_alphanumeric() || "-_".contains(*c))
        .collect();
    let hash = Hash::digest(&bytes).to_string();
    let name = format!("{stem}-{}", &hash[..HASH_CHARS]);
    let path = cassette_file_path(config, &name)?;
    prepare_cassette_folder(config, &path).map_err(copy_error)?;
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let result = options.open(&path).and_then(|mut file| file.write_all(&bytes));
    result.map_err(copy_error)?;
    Ok(format!("{CASSETTE_PROVIDER}/{name}{loose_replay_suffix}"))
}

/// Opens the model that replays the cassette (recorded responses) to which `model_name` refers.
pub(crate) fn open_cassette(config: &Config, model_name: &str) -> Result<CassetteModel, String> {
    let (name, is_loose) = split_loose_suffix(model_name);
    let path = cassette_file_path(config, name)?;
    prepare_cassette_folder(config, &path)
        .map_err(|error| format!("The cassette can't be played: {error}."))?;
    let cassette =
        Cassette::load(&path).map_err(|error| format!("The cassette can't be played: {error}."))?;
    let model =
        CassetteModel::new(format!("{CASSETTE_PROVIDER}/{name}"), cassette, build_redactor(config));
    Ok(if is_loose { model.with_lenient_matching() } else { model })
}

/// Creates the cassette folder without following symbolic links of the project, and checks that the
/// cassette file, if it exists, is a regular file.
fn prepare_cassette_folder(config: &Config, file: &Path) -> std::io::Result<()> {
    config.data_folder_location().join("cassettes").create_and_open_folder()?;
    match std::fs::symlink_metadata(file) {
        Ok(metadata) if !metadata.is_file() => {
            let message = format!("{} is not a regular file", file.display());
            Err(std::io::Error::other(message))
        }
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Returns the path of the cassette (a file with recorded model responses) that a model name refers
/// to. The error says that the name is invalid.
pub(crate) fn path_of_model(config: &Config, model_name: &str) -> Result<PathBuf, String> {
    cassette_file_path(config, split_loose_suffix(model_name).0)
}

/// Returns why the cassette that a model name refers to can't be played. `None` means that it can.
pub(crate) fn unplayable_cassette_reason(config: &Config, model_name: &str) -> Option<String> {
    let path = match path_of_model(config, model_name) {
        Ok(path) => path,
        Err(reason) => return Some(reason),
    };
    match std::fs::symlink_metadata(&path) {
        Ok(metadata) if metadata.is_file() => {
            Cassette::load(&path).err().map(|error| error.to_string())
        }
        Ok(_) | Err(_) => Some(format!(
            "there is no cassette {}: record one with `longhaul run AGENT ... --record=NAME`",
            path.display()
        )),
    }
}

/// Splits a model name into the cassette name and whether the suffix `+loose` allows requests that
/// differ from the recorded ones.
fn split_loose_suffix(model_name: &str) -> (&str, bool) {
    match model_name.strip_suffix(LOOSE_SUFFIX) {
        Some(name) => (name, true),
        None => (model_name, false),
    }
}

/// Returns the folder of a project's cassettes (files with recorded model responses).
pub fn cassette_folder(config: &Config) -> PathBuf {
    config.data_folder().join("cassettes")
}

/// A model resolver that records the requests and responses of all its models.
#[derive(Debug)]
pub struct RecordingModelResolver {
    /// The recorded models.
    pub models: Arc<dyn ModelResolver>,
    /// Writes the cassette.
    pub recorder: Arc<CassetteRecorder>,
}

impl ModelResolver for RecordingModelResolver {
    fn resolve_model_name(&self, name: Option<&str>) -> Result<ResolvedModel, ResolveModelError> {
        let ResolvedModel { name, model } = self.models.resolve_model_name(name)?;
        let model = Arc::new(self.recorder.wrap_model(model));
        Ok(ResolvedModel { name, model })
    }

    fn idle_tick_model_override(&self) -> Option<String> {
        self.models.idle_tick_model_override()
    }

    fn idle_tick_model_of_same_provider(&self, model_name: Option<&str>) -> Option<String> {
        self.models.idle_tick_model_of_same_provider(model_name)
    }
}
