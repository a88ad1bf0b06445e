//! Files and trees as tar archives, in which the engine copies them into a container and out of it.
//!
//! The engine resolves symbolic links inside of the container. The archives are hostile: a command
//! in the container may have made any file in them.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use bollard::query_parameters::{
    DownloadFromContainerOptionsBuilder, UploadToContainerOptionsBuilder,
};
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use longhaul_core::port::sandbox::{SandboxEntry, SandboxEntryKind, SandboxError};
use tar::{Archive, Builder, EntryType, Header};
use tokio::sync::mpsc::{self, Receiver, Sender};

use super::container::User;
use super::engine::{Engine, answer, error_of, is_not_found, shorten};
use super::exec::random_number;
use super::host_files::{ENTRIES_MAX, file_error, too_large};

/// Number of pieces of an archive on their way to the other thread.
const PIECES: usize = 8;
const PIECE_BYTES: usize = 64 << 10;
/// Maximum number of bytes of an archive that is only listed.
const LIST_BYTES_MAX: u64 = 256 << 20;

/// The files of a container, through the engine.
#[derive(Debug)]
pub(super) struct ContainerFiles<'a> {
    pub(super) engine: &'a Engine,
    pub(super) container: &'a str,
    /// Owner of new files.
    pub(super) user: User,
}

impl ContainerFiles<'_> {
    /// Returns the content of a file.
    pub(super) async fn read(&self, path: &str, max_bytes: u64) -> Result<Vec<u8>, SandboxError> {
        let name = path.to_owned();
        let read = move |archive: &mut Archive<PieceReader>| {
            let Some(entry) = archive.entries()?.next() else {
                return Ok(file_error(&name, &"the engine has sent nothing"));
            };
            let entry = entry?;
            if entry.header().entry_type() != EntryType::Regular {
                return Ok(file_error(&name, &"it is no regular file"));
            }
            if entry.size() > max_bytes {
                return Ok(file_error(&name, &too_large(max_bytes)));
            }
            let mut content = Vec::new();
            entry.take(max_bytes).read_to_end(&mut content)?;
            Ok(Ok(content))
        };
        self.receive(path, read).await
    }

    /// Lists the entries of a folder. The engine sends the whole tree below it.
    pub(super) async fn list(&self, path: &str) -> Result<Vec<SandboxEntry>, SandboxError> {
        let name = path.to_owned();
        let list = move |archive: &mut Archive<PieceReader>| {
            let mut entries = BTreeMap::new();
            for (index, entry) in archive.entries()?.enumerate() {
                let entry = entry?;
                let kind = entry_kind(entry.header().entry_type());
                if index == 0 && kind != SandboxEntryKind::Dir {
                    return Ok(file_error(&name, &"it is no folder"));
                }
                if entries.len() == ENTRIES_MAX || entry.raw_file_position() > LIST_BYTES_MAX {
                    return Ok(file_error(&name, &"it is too large; list it with a command"));
                }
                let entry_path = entry.path()?;
                // The first part is the name of the folder itself.
                let mut parts = entry_path.components().skip(1);
                let (Some(part), None) = (parts.next(), parts.next()) else { continue };
                let Some(name) = part.as_os_str().to_str().map(str::to_owned) else { continue };
                let size = if kind == SandboxEntryKind::File { entry.size() } else { 0 };
                entries.insert(name.clone(), SandboxEntry { name, kind, size });
            }
            Ok(Ok(entries.into_values().collect()))
        };
        self.receive(path, list).await
    }

    /// Copies a file or a tree to this machine. `to` must not exist.
    pub(super) async fn download(&self, path: &str, to: &Path) -> Result<(), SandboxError> {
        if path == "/" {
            return file_error(path, &"only a folder below it can be copied");
        }
        if fs::symlink_metadata(to).is_ok() {
            return file_error(&to.to_string_lossy(), &"it exists already; choose a new path");
        }
        let (name, to) = (path.to_owned(), to.to_owned());
        let part = to.with_file_name(format!(".longhaul-{:032x}.part", random_number()?));
        let download = move |archive: &mut Archive<PieceReader>| {
            fs::create_dir(&part)?;
            let unpacked = unpack(archive, &part).and_then(|first| match first {
                Some(first) => fs::rename(part.join(first), &to).map(|()| Ok(())),
                None => Ok(file_error(&name, &"it is neither a file, a folder nor a link")),
            });
            // The error of the copy says more than one of this clean-up.
            _ = fs::remove_dir_all(&part);
            unpacked
        };
        self.receive(path, download).await
    }

    /// Creates or replaces a file.
    pub(super) async fn write(&self, path: &str, content: &[u8]) -> Result<(), SandboxError> {
        let (name, user, content) = (archive_path(path), self.user, content.to_vec());
        let pack = move |builder: &mut Builder<PieceWriter>| {
            let mut header = header(EntryType::Regular, 0o644, user);
            header.set_size(content.len() as u64);
            builder.append_data(&mut header, name, &content[..])
        };
        self.send(path, pack).await
    }

    /// Copies a file or a tree of this machine into the container.
    pub(super) async fn upload(&self, from: &Path, path: &str) -> Result<(), SandboxError> {
        if let Err(error) = fs::symlink_metadata(from) {
            return file_error(&from.to_string_lossy(), &error);
        }
        let (name, user, from) = (archive_path(path), self.user, from.to_owned());
        self.send(path, move |builder| append_tree(builder, (from, name), user)).await
    }

    /// Makes the user of the container the owner of a folder.
    pub(super) async fn own_folder(&self, path: &str) -> Result<(), SandboxError> {
        let (name, user) = (archive_path(path), self.user);
        let pack = move |builder: &mut Builder<PieceWriter>| {
            let mut header = header(EntryType::Directory, 0o755, user);
            builder.append_data(&mut header, name, io::empty())
        };
        self.send(path, pack).await
    }

    /// Requests the archive of a path and reads it in a thread that may block.
    async fn receive<T: Send + 'static>(
        &self,
        path: &str,
        read: impl FnOnce(&mut Archive<PieceReader>) -> io::Result<Result<T, SandboxError>>
        + Send
        + 'static,
    ) -> Result<T, SandboxError> {
        let options = DownloadFromContainerOptionsBuilder::new().path(path).build();
        let client = self.engine.client().await?;
        let mut pieces = Box::pin(client.download_from_container(self.container, Some(options)));
        let (sender, receiver) = mpsc::channel(PIECES);
        let reader = PieceReader { receiver, piece: Bytes::new() };
        let reading = tokio::task::spawn_blocking(move || read(&mut Archive::new(reader)));
        while let Some(piece) = pieces.next().await {
            let piece = piece.map_err(|error| copy_error(path, &error))?;
            // The reader has what it needs.
            if sender.send(piece).await.is_err() {
                break;
            }
        }
        drop((sender, pieces));
        match reading.await {
            Ok(Ok(result)) => result,
            Ok(Err(error)) => file_error(path, &error),
            Err(error) => file_error(path, &error),
        }
    }

    /// Sends an archive that is packed in a thread that may block. Its paths begin at the root of
    /// the container.
    async fn send(
        &self,
        path: &str,
        pack: impl FnOnce(&mut Builder<PieceWriter>) -> io::Result<()> + Send + 'static,
    ) -> Result<(), SandboxError> {
        let (sender, receiver) = mpsc::channel(PIECES);
        let packing = tokio::task::spawn_blocking(move || {
            let mut builder =
                Builder::new(PieceWriter { sender: sender.clone(), piece: Vec::new() });
            let packed = pack(&mut builder).and_then(|()| builder.into_inner()?.flush());
            if let Err(error) = &packed {
                // Ends the request, so that the engine does not take the archive as complete.
                _ = sender.blocking_send(Err(io::Error::new(error.kind(), error.to_string())));
            }
            packed
        });
        let pieces = stream::unfold(receiver, async |mut receiver: Receiver<_>| {
            receiver.recv().await.map(|piece| (piece, receiver))
        });
        let options =
            UploadToContainerOptionsBuilder::new().path("/").no_overwrite_dir_non_dir("1");
        let client = self.engine.client().await?;
        let body = bollard::body_try_stream(pieces);
        let sent = client.upload_to_container(self.container, Some(options.build()), body).await;
        match (packing.await, sent) {
            (_, Err(error)) if answer(&error).is_some() => Err(copy_error(path, &error)),
            (Ok(Err(error)), _) => file_error(path, &error),
            (Err(error), _) => file_error(path, &error),
            (Ok(Ok(())), sent) => sent.map_err(|error| copy_error(path, &error)),
        }
    }
}

fn entry_kind(entry_type: EntryType) -> SandboxEntryKind {
    match entry_type {
        EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse | EntryType::Link => {
            SandboxEntryKind::File
        }
        EntryType::Directory => SandboxEntryKind::Dir,
        EntryType::Symlink => SandboxEntryKind::Symlink,
        _ => SandboxEntryKind::Other,
    }
}

/// Unpacks files, folders and links into a folder. Returns the name of what the archive contains.
fn unpack(archive: &mut Archive<PieceReader>, folder: &Path) -> io::Result<Option<PathBuf>> {
    let (mut folders, mut first) = (Vec::new(), None);
    for entry in archive.entries()? {
        let mut entry = entry?;
        let kind = entry_kind(entry.header().entry_type());
        if kind == SandboxEntryKind::Other {
            continue;
        }
        first = first.or_else(|| {
            entry.path().ok()?.components().next().map(|part| PathBuf::from(part.as_os_str()))
        });
        if kind == SandboxEntryKind::Dir {
            // Later, because a folder may not be writable.
            folders.push(entry);
        } else {
            entry.unpack_in(folder)?;
        }
    }
    for mut entry in folders.into_iter().rev() {
        entry.unpack_in(folder)?;
    }
    Ok(first)
}

/// Appends a file, a link, or a folder with everything below it. Special files are left out.
fn append_tree(
    builder: &mut Builder<PieceWriter>,
    top: (PathBuf, PathBuf),
    user: User,
) -> io::Result<()> {
    let mut rest = vec![top];
    while let Some((from, name)) = rest.pop() {
        let metadata = fs::symlink_metadata(&from)?;
        let mut header = header(EntryType::Regular, 0, user);
        header.set_metadata(&metadata);
        header.set_uid(user.uid.into());
        header.set_gid(user.gid.into());
        if metadata.is_dir() {
            for entry in fs::read_dir(&from)? {
                let entry = entry?;
                rest.push((entry.path(), name.join(entry.file_name())));
            }
            if name.components().next().is_some() {
                builder.append_data(&mut header, name, io::empty())?;
            }
        } else if metadata.is_symlink() {
            builder.append_link(&mut header, name, fs::read_link(&from)?)?;
        } else if metadata.is_file() {
            // The size of the header binds, although the file may be written meanwhile.
            let content = fs::File::open(&from)?.take(metadata.len());
            builder.append_data(&mut header, name, content)?;
        }
    }
    Ok(())
}

fn header(entry_type: EntryType, mode: u32, user: User) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(entry_type);
    header.set_mode(mode);
    header.set_size(0);
    header.set_mtime(0);
    header.set_uid(user.uid.into());
    header.set_gid(user.gid.into());
    header
}

/// Returns the name in an archive of an absolute path in the container.
fn archive_path(path: &str) -> PathBuf {
    PathBuf::from(path.trim_start_matches('/'))
}

fn copy_error(path: &str, error: &bollard::errors::Error) -> SandboxError {
    let Some((status, message)) = answer(error) else { return error_of("copy files", error) };
    if is_not_found(error) && message.contains("No such container") {
        return SandboxError::NotFound;
    }
    match status {
        409 => error_of("copy files", error),
        _ => file_error::<()>(path, &shorten(message)).err().unwrap_or(SandboxError::NotFound),
    }
}

/// Reads the pieces of an archive that another task receives.
#[derive(Debug)]
struct PieceReader {
    receiver: Receiver<Bytes>,
    piece: Bytes,
}

impl Read for PieceReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() {
            let Some(piece) = self.receiver.blocking_recv() else { return Ok(0) };
            self.piece = piece;
        }
        let piece = self.piece.split_to(buffer.len().min(self.piece.len()));
        buffer[..piece.len()].copy_from_slice(&piece);
        Ok(piece.len())
    }
}

/// Passes the pieces of an archive to another task that sends them.
#[derive(Debug)]
struct PieceWriter {
    sender: Sender<io::Result<Bytes>>,
    piece: Vec<u8>,
}

impl Write for PieceWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.piece.extend_from_slice(bytes);
        if self.piece.len() >= PIECE_BYTES {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let piece = Bytes::from(std::mem::take(&mut self.piece));
        self.sender.blocking_send(Ok(piece)).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}
