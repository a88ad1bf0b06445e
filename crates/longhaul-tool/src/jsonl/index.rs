//! A hash index from keys to line offsets, in a file beside the JSON lines.
//!
//! The index is a cache: one that does not match its file is made again. Its slots
//! lie in segments, each twice as large as the one before, so it grows without a
//! pause in which everything is moved.
//!
//! Invariant: a slot is on disk before `covered` passes the line it points to.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};

use rustix::fs::{Mode, OFlags};

use longhaul_core::raw::Hash;

use crate::openat::{is_regular, open_file};

const MAGIC: u64 = u64::from_le_bytes(*b"lhindex1");
const HEADER_BYTES: u64 = 64;
const SLOT_BYTES: u64 = 16;
/// Slots of the first segment. Each segment is filled by half.
const FIRST_SLOTS: u64 = 4096;
/// Maximum number of segments; the last one alone points to 2^35 lines.
const SEGMENTS_MAX: u64 = 25;
/// Bytes before `covered` by which a file is known again.
const CHECK_BYTES: u64 = 256;

/// The open index of one file. The caller holds the lock of that file.
#[derive(Debug)]
pub(super) struct Index<'a> {
    slots: File,
    lines: &'a File,
    header: Header,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Header {
    device: u64,
    inode: u64,
    /// Bytes of the file whose lines are in the index.
    covered: u64,
    /// Hash of the bytes before `covered`.
    check: u64,
    /// Segment that is being filled.
    segment: u64,
    /// Number of slots in use in that segment.
    used: u64,
}

impl Header {
    fn to_bytes(self) -> [u8; HEADER_BYTES as usize] {
        let words =
            [MAGIC, self.device, self.inode, self.covered, self.check, self.segment, self.used];
        let mut bytes = [0; HEADER_BYTES as usize];
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        let sum = hash(&bytes[..56]);
        bytes[56..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// `None` if the bytes are not a whole header of this version.
    fn from_bytes(bytes: [u8; HEADER_BYTES as usize]) -> Option<Self> {
        let word =
            |at: usize| u64::from_le_bytes(bytes[at * 8..][..8].try_into().unwrap_or_default());
        let header = Self {
            device: word(1),
            inode: word(2),
            covered: word(3),
            check: word(4),
            segment: word(5),
            used: word(6),
        };
        let is_whole = header.to_bytes() == bytes && header.segment < SEGMENTS_MAX;
        is_whole.then_some(header)
    }
}

impl<'a> Index<'a> {
    /// Opens the index `name` in `folder`, empty unless it belongs to what is in `lines` now.
    pub(super) fn open((folder, name): (&OwnedFd, &OsStr), lines: &'a File) -> io::Result<Self> {
        let flags = OFlags::RDWR | OFlags::CREATE;
        let (handle, found) = open_file(folder, name, flags, Mode::from_raw_mode(0o600))?;
        if !is_regular(&found) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut index = Self { slots: File::from(handle), lines, header: Header::default() };
        match index.load_header()? {
            Some(header) => index.header = header,
            None => {
                let found = lines.metadata()?;
                index.header.device = found.dev();
                index.header.inode = found.ino();
                index.slots.set_len(0)?;
                index.slots.set_len(end_of(0))?;
            }
        }
        Ok(index)
    }

    /// The header on disk, if it describes this file.
    fn load_header(&self) -> io::Result<Option<Header>> {
        let length = self.slots.metadata()?.len();
        if length < end_of(0) {
            return Ok(None);
        }
        let mut bytes = [0; HEADER_BYTES as usize];
        self.slots.read_exact_at(&mut bytes, 0)?;
        let Some(header) = Header::from_bytes(bytes) else {
            return Ok(None);
        };
        let found = self.lines.metadata()?;
        let is_same = (header.device, header.inode) == (found.dev(), found.ino())
            && header.covered <= found.len()
            && length >= end_of(header.segment)
            && header.check == self.checksum(header.covered)?;
        Ok(is_same.then_some(header))
    }

    /// Number of bytes of the file, from its start, whose lines are in the index.
    pub(super) fn covered(&self) -> u64 {
        self.header.covered
    }

    /// Where lines with this key may begin, in the file's order.
    pub(super) fn find(&self, key: &str) -> io::Result<Vec<u64>> {
        let wanted = hash(key.as_bytes());
        let mut offsets = Vec::new();
        for segment in 0..=self.header.segment {
            self.probe(segment, wanted, |_, slot| {
                if let Some((found, offset)) = slot
                    && found == wanted
                {
                    offsets.push(offset);
                }
                false
            })?;
        }
        offsets.sort_unstable();
        offsets.dedup();
        Ok(offsets)
    }

    /// Adds a line, which counts once [`Self::cover`] has passed it.
    pub(super) fn add(&mut self, key: &str, offset: u64) -> io::Result<()> {
        if self.header.used >= slots_of(self.header.segment) / 2 {
            self.header.segment += 1;
            self.header.used = 0;
            if self.header.segment == SEGMENTS_MAX {
                return Err(io::ErrorKind::FileTooLarge.into());
            }
            self.slots.set_len(end_of(self.header.segment))?;
        }
        let hash = hash(key.as_bytes());
        let mut place = None;
        self.probe(self.header.segment, hash, |at, slot| {
            // What a crash left here before it was covered is counted, but not added twice.
            let is_there = slot == Some((hash, offset));
            if is_there || slot.is_none() {
                place = Some((at, is_there));
            }
            is_there
        })?;
        let Some((at, is_there)) = place else {
            return Err(io::Error::other("no slot of the segment is free"));
        };
        if !is_there {
            let mut bytes = [0; SLOT_BYTES as usize];
            bytes[..8].copy_from_slice(&hash.to_le_bytes());
            bytes[8..].copy_from_slice(&(offset + 1).to_le_bytes());
            self.slots.write_all_at(&bytes, at)?;
        }
        self.header.used += 1;
        Ok(())
    }

    /// States that every line before `covered` is in the index.
    pub(super) fn cover(&mut self, covered: u64) -> io::Result<()> {
        self.slots.sync_data()?;
        self.header.covered = covered;
        self.header.check = self.checksum(covered)?;
        self.slots.write_all_at(&self.header.to_bytes(), 0)
    }

    /// Shows the slots where `hash` may be until `seen` is content, the first empty
    /// one included.
    fn probe(
        &self,
        segment: u64,
        hash: u64,
        mut seen: impl FnMut(u64, Option<(u64, u64)>) -> bool,
    ) -> io::Result<()> {
        let slots = slots_of(segment);
        for step in 0..slots {
            let at = end_of(segment) - SLOT_BYTES * (slots - (hash.wrapping_add(step) % slots));
            let mut bytes = [0; SLOT_BYTES as usize];
            self.slots.read_exact_at(&mut bytes, at)?;
            let word = |half: usize| {
                u64::from_le_bytes(bytes[half * 8..][..8].try_into().unwrap_or_default())
            };
            let slot = word(1).checked_sub(1).map(|offset| (word(0), offset));
            if seen(at, slot) || slot.is_none() {
                return Ok(());
            }
        }
        Ok(())
    }

    fn checksum(&self, covered: u64) -> io::Result<u64> {
        let start = covered.saturating_sub(CHECK_BYTES);
        let mut bytes = vec![0; usize::try_from(covered - start).unwrap_or_default()];
        self.lines.read_exact_at(&mut bytes, start)?;
        Ok(hash(&bytes))
    }
}

const fn slots_of(segment: u64) -> u64 {
    FIRST_SLOTS << segment
}

/// Where a segment ends in the index file.
const fn end_of(segment: u64) -> u64 {
    HEADER_BYTES + SLOT_BYTES * FIRST_SLOTS * ((2 << segment) - 1)
}

fn hash(bytes: &[u8]) -> u64 {
    let bytes = *Hash::digest(bytes).bytes();
    u64::from_le_bytes(bytes[..8].try_into().unwrap_or_default())
}
