//! Archives of files on their way to a sandbox and back. They are streamed, so that their size does
//! not matter for the memory.

use std::fs;
use std::io::{self, BufWriter, Read, Write};
use std::path::Path;

use bytes::{Buf as _, Bytes};
use futures_util::stream;
use longhaul_core::port::sandbox::SandboxError;
use reqwest::{Body, Response};
use tar::{Archive, Builder, EntryType, HeaderMode};
use tokio::sync::mpsc;

/// Maximum number of bytes of an archive.
const ARCHIVE_BYTES_MAX: u64 = 4 << 30;

/// Number of chunks that are buffered.
const CHUNKS_BUFFERED: usize = 8;

/// Number of bytes of a chunk.
const CHUNK_BYTES: usize = 64 << 10;

type Chunk = io::Result<Bytes>;

/// Splits an absolute path into its folder and its last name.
pub(super) fn split(path: &str) -> Result<(&str, &str), SandboxError> {
    match path.trim_end_matches('/').rsplit_once('/') {
        Some((dir, name)) if !matches!(name, "." | "..") => {
            Ok((if dir.is_empty() { "/" } else { dir }, name))
        }
        Some(_) | None => {
            Err(SandboxError::File(format!("{path} can't be written: it ends with no name")))
        }
    }
}

/// Returns whether there is a directory at a path of this machine, or else a file or link.
pub(super) fn is_tree(path: &Path) -> Result<bool, SandboxError> {
    let metadata = fs::symlink_metadata(path).map_err(|error| file_error(path, &error))?;
    Ok(metadata.is_dir())
}

/// Checks that nothing exists at a path of this machine.
pub(super) fn check_target(path: &Path) -> Result<(), SandboxError> {
    match fs::symlink_metadata(path) {
        Ok(_) => Err(file_error(path, &io::ErrorKind::AlreadyExists.into())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(file_error(path, &error)),
    }
}

fn file_error(path: &Path, error: &io::Error) -> SandboxError {
    SandboxError::File(format!("{}: {error}", path.display()))
}

/// Packs a tree, or a file or link under this name, into the body of a request. The future returns
/// whether that has succeeded.
pub(super) fn pack(
    from: &Path,
    file_name: Option<String>,
) -> (Body, impl Future<Output = Result<(), SandboxError>>) {
    let (chunks, received) = mpsc::channel::<Chunk>(CHUNKS_BUFFERED);
    let body = stream::unfold(received, |mut received| async {
        received.recv().await.map(|chunk| (chunk, received))
    });
    let from = from.to_owned();
    let packing = tokio::task::spawn_blocking(move || {
        let writer = ChunkWriter { chunks: chunks.clone(), written: 0 };
        let result = write_archive(&from, file_name, BufWriter::with_capacity(CHUNK_BYTES, writer));
        let Err(error) = result else { return Ok(()) };
        // The body must not look complete.
        _ = chunks.blocking_send(Err(error.kind().into()));
        match error.kind() {
            // The request has failed, which has an error of its own.
            io::ErrorKind::BrokenPipe => Ok(()),
            _ => Err(file_error(&from, &error)),
        }
    });
    let packing = async move { packing.await.unwrap_or_else(|_| Err(aborted())) };
    (Body::wrap_stream(body), packing)
}

fn write_archive(
    from: &Path,
    file_name: Option<String>,
    writer: BufWriter<ChunkWriter>,
) -> io::Result<()> {
    let mut archive = Builder::new(writer);
    archive.follow_symlinks(false);
    archive.sparse(false);
    archive.mode(HeaderMode::Deterministic);
    match file_name {
        None => archive.append_dir_all("", from)?,
        Some(name) => archive.append_path_with_name(from, name)?,
    }
    archive.into_inner()?.flush()
}

/// Writer whose content is received by another task.
#[derive(Debug)]
struct ChunkWriter {
    chunks: mpsc::Sender<Chunk>,
    written: u64,
}

impl Write for ChunkWriter {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.written += buffer.len() as u64;
        if self.written > ARCHIVE_BYTES_MAX {
            return Err(too_large());
        }
        let sent = self.chunks.blocking_send(Ok(Bytes::copy_from_slice(buffer)));
        sent.map_err(|_| io::ErrorKind::BrokenPipe)?;
        Ok(buffer.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Unpacks the archive in a response to a path where nothing exists yet.
pub(super) async fn unpack(
    mut response: Response,
    is_tree: bool,
    to: &Path,
) -> Result<(), SandboxError> {
    let (chunks, received) = mpsc::channel::<Chunk>(CHUNKS_BUFFERED);
    let target = to.to_owned();
    let unpacking = tokio::task::spawn_blocking(move || {
        let reader = ChunkReader { received, chunk: Bytes::new(), read: 0 };
        let result = read_archive(reader, is_tree, &target);
        if result.is_err() {
            // Half of the files are no result.
            _ = fs::remove_dir_all(&target).or_else(|_| fs::remove_file(&target));
        }
        result.map_err(|error| file_error(&target, &error))
    });
    loop {
        let chunk = match response.chunk().await {
            Ok(None) => break,
            Ok(Some(chunk)) => Ok(chunk),
            Err(_) => Err(io::ErrorKind::ConnectionAborted.into()),
        };
        // An error means that unpacking has failed.
        let is_last = chunk.is_err();
        if chunks.send(chunk).await.is_err() || is_last {
            break;
        }
    }
    drop(chunks);
    unpacking.await.unwrap_or_else(|_| Err(aborted()))
}

/// Unpacks files, folders and links. `unpack_in` never writes outside of the folder.
fn read_archive(reader: ChunkReader, is_tree: bool, to: &Path) -> io::Result<()> {
    let mut archive = Archive::new(reader);
    let mut unpacked = 0;
    if is_tree {
        fs::create_dir(to)?;
    }
    for entry in archive.entries()? {
        let mut entry = entry?;
        // A sparse file can be larger than the archive.
        unpacked += entry.size();
        if unpacked > ARCHIVE_BYTES_MAX {
            return Err(too_large());
        }
        let kind = entry.header().entry_type();
        let is_copied = kind.is_file()
            || kind.is_symlink()
            || kind.is_dir()
            || kind.is_hard_link()
            || kind == EntryType::GNUSparse;
        match (is_copied, is_tree) {
            (false, _) => {}
            (true, true) => _ = entry.unpack_in(to)?,
            (true, false) if kind.is_dir() || kind.is_hard_link() => {
                return Err(io::ErrorKind::InvalidData.into());
            }
            (true, false) => return entry.unpack(to).map(drop),
        }
    }
    match is_tree {
        true => Ok(()),
        false => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// Reader of chunks that another task sends.
#[derive(Debug)]
struct ChunkReader {
    received: mpsc::Receiver<Chunk>,
    chunk: Bytes,
    read: u64,
}

impl Read for ChunkReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.chunk.is_empty() {
            match self.received.blocking_recv() {
                None => return Ok(0),
                Some(chunk) => self.chunk = chunk?,
            }
        }
        let count = buffer.len().min(self.chunk.len());
        self.chunk.copy_to_slice(&mut buffer[..count]);
        self.read += count as u64;
        if self.read > ARCHIVE_BYTES_MAX {
            return Err(too_large());
        }
        Ok(count)
    }
}

fn too_large() -> io::Error {
    io::Error::new(io::ErrorKind::FileTooLarge, "more than 4 GiB; copy fewer files")
}

fn aborted() -> SandboxError {
    SandboxError::Unavailable("the copy of the files was aborted".to_owned())
}
