//! A hash index from keys to line offsets, in a file next to the JSON lines file.
//!
//! The index is a cache: it is rebuilt if it does not match its JSON lines file. Its slots are in
//! segments, each twice as large as the one before, so that it grows without moving everything at
//! once.
//!
//! Invariant: a slot is on disk before the header's `covered` passes the line it points to.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};

use rustix::fs::{Mode, OFlags};

use longhaul_core::raw::Hash;

use crate::openat::{is_regular_file, open_file};

const MAGIC: u64 = u64::from_le_bytes(*b"lhindex1");
const HEADER_BYTES: u64 = 64;
const SLOT_BYTES: u64 = 16;
/// Number of slots in the first segment of the index. A segment counts as full when half of its
/// slots are used.
const FIRST_SLOTS: u64 = 4096;
/// Maximum number of segments; the last segment alone can point to 2^35 lines.
const SEGMENTS_MAX: u64 = 25;
/// Number of bytes at the end of the indexed part of the JSON lines file that are hashed, to detect
/// that the file was replaced.
const CHECK_BYTES: u64 = 256;

/// The open index of one JSON lines file. The caller holds the lock of that file.
#[derive(Debug)]
pub(super) struct LineKeyIndex<'a> {
    slots: File,
    lines: &'a File,
    header: IndexHeader,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct IndexHeader {
    device: u64,
    inode: u64,
    /// Number of bytes of the JSON lines file whose lines are in the index.
    covered: u64,
    /// Hash of the last bytes before the offset `covered`. If it no longer matches, the file was
    /// replaced and the index is rebuilt.
    check_hash: u64,
    /// Number of the segment that is being filled.
    segment: u64,
    /// Number of slots in use in the segment that is being filled.
    used_slots: u64,
}

impl IndexHeader {
    fn to_bytes(self) -> [u8; HEADER_BYTES as usize] {
        let fields = [
            MAGIC,
            self.device,
            self.inode,
            self.covered,
            self.check_hash,
            self.segment,
            self.used_slots,
        ];
        let mut bytes = [0; HEADER_BYTES as usize];
        for (chunk, field) in bytes.chunks_exact_mut(8).zip(fields) {
            chunk.copy_from_slice(&field.to_le_bytes());
        }
        let checksum = hash_bytes(&bytes[..56]);
        bytes[56..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Parses the header of an index file. `None` if the bytes are not a complete header of this
    /// version.
    fn from_bytes(bytes: [u8; HEADER_BYTES as usize]) -> Option<Self> {
        let field_at =
            |at: usize| u64::from_le_bytes(bytes[at * 8..][..8].try_into().unwrap_or_default());
        let header = Self {
            device: field_at(1),
            inode: field_at(2),
            covered: field_at(3),
            check_hash: field_at(4),
            segment: field_at(5),
            used_slots: field_at(6),
        };
        let is_valid = header.to_bytes() == bytes && header.segment < SEGMENTS_MAX;
        is_valid.then_some(header)
    }
}

impl<'a> LineKeyIndex<'a> {
    /// Opens the index file `name` in `folder`. The index is cleared if it does not match the
    /// current content of `lines`.
    pub(super) fn open((folder, name): (&OwnedFd, &OsStr), lines: &'a File) -> io::Result<Self> {
        let flags = OFlags::RDWR | OFlags::CREATE;
        let (handle, stat) = open_file(folder, name, flags, Mode::from_raw_mode(0o600))?;
        if !is_regular_file(&stat) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut index = Self { slots: File::from(handle), lines, header: IndexHeader::default() };
        match index.load_header()? {
            Some(header) => index.header = header,
            None => {
                let metadata = lines.metadata()?;
                index.header.device = metadata.dev();
                index.header.inode = metadata.ino();
                index.slots.set_len(0)?;
                index.slots.set_len(segment_end(0))?;
            }
        }
        Ok(index)
    }

    /// Returns the header of the index file. `None` if the header does not describe this JSON lines
    /// file.
    fn load_header(&self) -> io::Result<Option<IndexHeader>> {
        let length = self.slots.metadata()?.len();
        if length < segment_end(0) {
            return Ok(None);
        }
        let mut bytes = [0; HEADER_BYTES as usize];
        self.slots.read_exact_at(&mut bytes, 0)?;
        let Some(header) = IndexHeader::from_bytes(bytes) else {
            return Ok(None);
        };
        let metadata = self.lines.metadata()?;
        let is_same = (header.device, header.inode) == (metadata.dev(), metadata.ino())
            && header.covered <= metadata.len()
            && length >= segment_end(header.segment)
            && header.check_hash == self.checksum_before_offset(header.covered)?;
        Ok(is_same.then_some(header))
    }

    /// Returns the number of bytes of the JSON lines file, from its start, whose lines are in the
    /// index.
    pub(super) fn indexed_byte_count(&self) -> u64 {
        self.header.covered
    }

    /// Returns the offsets where lines with this key may start, in file order.
    pub(super) fn find_line_offsets(&self, key: &str) -> io::Result<Vec<u64>> {
        let key_hash = hash_bytes(key.as_bytes());
        let mut offsets = Vec::new();
        for segment in 0..=self.header.segment {
            self.visit_slots_of_hash(segment, key_hash, |_, slot| {
                if let Some((slot_hash, offset)) = slot
                    && slot_hash == key_hash
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

    /// Adds the line at this offset of the JSON lines file to the index. The entry counts only
    /// after `set_indexed_byte_count` was called with a number of bytes that includes the line.
    pub(super) fn add_line_offset(&mut self, key: &str, offset: u64) -> io::Result<()> {
        if self.header.used_slots >= slots_of(self.header.segment) / 2 {
            self.header.segment += 1;
            self.header.used_slots = 0;
            if self.header.segment == SEGMENTS_MAX {
                return Err(io::ErrorKind::FileTooLarge.into());
            }
            self.slots.set_len(segment_end(self.header.segment))?;
        }
        let hash = hash_bytes(key.as_bytes());
        let mut found = None;
        self.visit_slots_of_hash(self.header.segment, hash, |at, slot| {
            // A slot that a crash left here before it was covered is counted, but not added twice.
            let is_present = slot == Some((hash, offset));
            if is_present || slot.is_none() {
                found = Some((at, is_present));
            }
            is_present
        })?;
        let Some((at, is_present)) = found else {
            return Err(io::Error::other("no slot of the segment is free"));
        };
        if !is_present {
            let mut bytes = [0; SLOT_BYTES as usize];
            bytes[..8].copy_from_slice(&hash.to_le_bytes());
            bytes[8..].copy_from_slice(&(offset + 1).to_le_bytes());
            self.slots.write_all_at(&bytes, at)?;
        }
        self.header.used_slots += 1;
        Ok(())
    }

    /// Records that the index has every line in the first `byte_count` bytes of the indexed file.
    pub(super) fn set_indexed_byte_count(&mut self, byte_count: u64) -> io::Result<()> {
        self.slots.sync_data()?;
        self.header.covered = byte_count;
        self.header.check_hash = self.checksum_before_offset(byte_count)?;
        self.slots.write_all_at(&self.header.to_bytes(), 0)
    }

    /// Calls `visit` with each slot of the segment where this hash may be, until `visit` returns
    /// `true` or a slot is empty. The arguments are the slot's position in the file and its
    /// content.
    fn visit_slots_of_hash(
        &self,
        segment: u64,
        hash: u64,
        mut visit: impl FnMut(u64, Option<(u64, u64)>) -> bool,
    ) -> io::Result<()> {
        let slots = slots_of(segment);
        for step in 0..slots {
            let at =
                segment_end(segment) - SLOT_BYTES * (slots - (hash.wrapping_add(step) % slots));
            let mut bytes = [0; SLOT_BYTES as usize];
            self.slots.read_exact_at(&mut bytes, at)?;
            let read_u64 = |half: usize| {
                u64::from_le_bytes(bytes[half * 8..][..8].try_into().unwrap_or_default())
            };
            let slot = read_u64(1).checked_sub(1).map(|offset| (read_u64(0), offset));
            if visit(at, slot) || slot.is_none() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Returns the hash of the last `CHECK_BYTES` bytes before the offset `end_offset` of the JSON
    /// lines file.
    fn checksum_before_offset(&self, end_offset: u64) -> io::Result<u64> {
        let start = end_offset.saturating_sub(CHECK_BYTES);
        let mut bytes = vec![0; usize::try_from(end_offset - start).unwrap_or_default()];
        self.lines.read_exact_at(&mut bytes, start)?;
        Ok(hash_bytes(&bytes))
    }
}

const fn slots_of(segment: u64) -> u64 {
    FIRST_SLOTS << segment
}

/// Returns the byte of the index file at which a segment ends.
const fn segment_end(segment: u64) -> u64 {
    HEADER_BYTES + SLOT_BYTES * FIRST_SLOTS * ((2 << segment) - 1)
}

fn hash_bytes(bytes: &[u8]) -> u64 {
    let bytes = *Hash::digest(bytes).bytes();
    u64::from_le_bytes(bytes[..8].try_into().unwrap_or_default())
}
