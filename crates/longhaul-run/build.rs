//! Computes the hash of the source code that folds journals. A checkpoint with another hash is
//! discarded.
//!
//! Invariant: the same sources give the same hash; it does not depend on time or paths.

use std::path::{Path, PathBuf};

fn main() {
    let here = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let mut sources = Vec::new();
    for dir in ["src", "../longhaul-core/src"] {
        println!("cargo::rerun-if-changed={dir}");
        collect(&here.join(dir), &mut sources);
    }
    sources.sort();
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in sources.iter().flat_map(|path| std::fs::read(path).unwrap_or_default()) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    let version = std::env::var("CARGO_PKG_VERSION").unwrap_or_default();
    println!("cargo::rustc-env=LONGHAUL_FOLD_HASH={version}-{hash:016x}");
}

fn collect(dir: &Path, sources: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(dir) else {
        return;
    };
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            collect(&path, sources);
        } else if path.extension().is_some_and(|end| end == "rs") {
            sources.push(path);
        }
    }
}
