//! The cassettes of a project: where they lie, and what must not be on them.
//!
//! Never: a cassette outside of their folder.

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longhaul_core::raw::Hash;
use longhaul_engine::services::{ModelError, ModelResolver, ResolvedModel};
use longhaul_model::cassette::{Cassette, CassetteModel, Recorder};

use crate::assemble::redactor::build_redactor;
use crate::config::built_in_providers::CASSETTE_PROVIDER;
use crate::config::settings::Config;

/// What stands behind a cassette's name where any question is answered.
const LOOSE_SUFFIX: &str = "+loose";

/// The longest name of a cassette.
const NAME_MAX: usize = 100;

/// So many letters of a hash tell two files of the same name apart.
const HASH_CHARS: usize = 8;

/// Where the cassette of this name lies.
///
/// # Errors
/// The name can't be one of a cassette.
pub fn cassette_file(config: &Config, name: &str) -> Result<PathBuf, String> {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    let fits = (1..=NAME_MAX).contains(&name.len()) && !name.starts_with('.');
    if !fits || !name.chars().all(plain) {
        let name: String = name.chars().take(NAME_MAX).collect();
        return Err(format!(
            "`{name}` is no name of a cassette: it has letters, digits, `-`, `_` and `.`, \
             {NAME_MAX} at most."
        ));
    }
    Ok(cassette_folder(config).join(format!("{name}.jsonl")))
}

/// The model that replays what `said` names: a cassette of this project, or a file,
/// which is then copied to them, so that the run can go on without it.
///
/// # Errors
/// There is no such cassette or file, or the file can't be copied.
pub fn replay_model_name(config: &Config, said: &str, loose: bool) -> Result<String, String> {
    let suffix = if loose { LOOSE_SUFFIX } else { "" };
    if let Ok(path) = cassette_file(config, said)
        && path.exists()
    {
        return Ok(format!("{CASSETTE_PROVIDER}/{said}{suffix}"));
    }
    let file = Path::new(said);
    if !file.exists() {
        return Err(format!(
            "There is no cassette `{said}`, neither as a file nor in {}. Record one: \
             longhaul run AGENT ... --record={said}",
            cassette_folder(config).display()
        ));
    }
    // What is no tape is not taken in.
    Cassette::load(file).map_err(|bad| bad.to_string())?;
    let unreadable = |why: std::io::Error| format!("{said} can't be copied: {why}");
    let bytes = std::fs::read(file).map_err(unreadable)?;
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    let stem: String = stem
        .chars()
        .take(NAME_MAX / 2)
        .filter(|letter| letter.is_ascii_alphanumeric() || "-_".contains(*letter))
        .collect();
    let hash = Hash::digest(&bytes).to_string();
    let name = format!("{stem}-{}", &hash[..HASH_CHARS]);
    let path = cassette_file(config, &name)?;
    reject_symlinks(config, &path).map_err(unreadable)?;
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let written = options.open(&path).and_then(|mut file| file.write_all(&bytes));
    written.map_err(unreadable)?;
    Ok(format!("{CASSETTE_PROVIDER}/{name}{suffix}"))
}

/// The model that plays a cassette.
pub(crate) fn open(config: &Config, said: &str) -> Result<CassetteModel, String> {
    let (name, loose) = split_model_name(said);
    let path = cassette_file(config, name)?;
    reject_symlinks(config, &path)
        .map_err(|why| format!("The cassette can't be played: {why}."))?;
    let tape =
        Cassette::load(&path).map_err(|bad| format!("The cassette can't be played: {bad}."))?;
    let model =
        CassetteModel::new(format!("{CASSETTE_PROVIDER}/{name}"), tape, build_redactor(config));
    Ok(if loose { model.lenient() } else { model })
}

/// Makes the folder of cassettes, and checks that neither it nor this cassette is a link that
/// came with the project.
fn reject_symlinks(config: &Config, file: &Path) -> std::io::Result<()> {
    config.data_location().join("cassettes").make_folder()?;
    match std::fs::symlink_metadata(file) {
        Ok(found) if !found.is_file() => {
            let words = format!("{} is a link or no file", file.display());
            Err(std::io::Error::other(words))
        }
        Ok(_) | Err(_) => Ok(()),
    }
}

/// The file of a cassette as a model names it.
pub(crate) fn file_for_model(config: &Config, said: &str) -> Option<PathBuf> {
    cassette_file(config, split_model_name(said).0).ok()
}

/// The name, and whether any question is answered.
fn split_model_name(said: &str) -> (&str, bool) {
    match said.strip_suffix(LOOSE_SUFFIX) {
        Some(name) => (name, true),
        None => (said, false),
    }
}

/// Where they lie.
pub fn cassette_folder(config: &Config) -> PathBuf {
    config.data_folder().join("cassettes")
}

/// Models that are listened to.
#[derive(Debug)]
pub(crate) struct RecordingModels {
    pub(crate) models: Arc<dyn ModelResolver>,
    pub(crate) recorder: Arc<Recorder>,
}

impl ModelResolver for RecordingModels {
    fn resolve(&self, name: Option<&str>) -> Result<ResolvedModel, ModelError> {
        let ResolvedModel { name, model } = self.models.resolve(name)?;
        let model = Arc::new(self.recorder.wrap(model));
        Ok(ResolvedModel { name, model })
    }

    fn idle_model(&self) -> Option<String> {
        self.models.idle_model()
    }
}
