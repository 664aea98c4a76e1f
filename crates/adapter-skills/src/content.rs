//! Bytes from disk, exactly as they are there.

use std::{ops::Range, time::SystemTime};

use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};

use crate::media::media_type;

/// A file as it was when it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    /// Byte for byte what is on disk.
    pub bytes: Vec<u8>,
    /// The SHA-256 of the bytes, 64 lower-case hexadecimal digits; an HTTP `ETag` once quoted.
    pub etag: String,
    /// Time of the last modification, where the file system records it.
    pub last_modified: Option<SystemTime>,
    /// True if the bytes are UTF-8 without NUL, and may be sent as text.
    pub is_text: bool,
    /// Of this kind.
    pub mime_type: &'static str,
}

/// Some bytes of a content, asked for by a reader.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ByteRange {
    /// The first byte, counted from 0.
    pub offset: u64,
    /// Number of bytes; to the end if absent, or if there are fewer.
    pub length: Option<u64>,
}

/// A range holds no byte of a content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RangeError {
    /// A range that begins at the end or after it.
    #[error("the range starts at byte {offset}, but there are only {size} bytes")]
    OutOfBounds {
        /// As asked for.
        offset: u64,
        /// Size of the file in bytes.
        size: u64,
    },
    /// An empty range.
    #[error("the range has length 0")]
    Empty,
}

/// A part of a content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part<'a> {
    /// The bytes asked for, as far as there are any.
    pub bytes: &'a [u8],
    /// Offset of the first byte.
    pub offset: u64,
    /// The size of the whole, in bytes.
    pub size: u64,
    /// True if these bytes alone may be sent as text. A range can cut a character in two.
    pub is_text: bool,
}

impl ByteRange {
    /// The indices meant, in a content of `size` bytes. The start of an empty content is in bounds.
    ///
    /// # Errors
    ///
    /// [`RangeError`], if there are none.
    pub fn within(self, size: usize) -> Result<Range<usize>, RangeError> {
        if self.length == Some(0) {
            return Err(RangeError::Empty);
        }
        let out_of_bounds = RangeError::OutOfBounds {
            offset: self.offset,
            size: size as u64,
        };
        let start = usize::try_from(self.offset).map_err(|_| out_of_bounds)?;
        if start >= size && start > 0 {
            return Err(out_of_bounds);
        }
        let left = size - start;
        let length = self.length.map_or(left, |length| {
            usize::try_from(length).map_or(left, |length| length.min(left))
        });
        Ok(start..start + length)
    }
}

impl Content {
    /// Bytes of a file with their digest, of no particular kind.
    #[must_use]
    pub fn new(bytes: Vec<u8>, last_modified: Option<SystemTime>) -> Self {
        let is_text = is_text(&bytes);
        Self {
            etag: digest(&bytes),
            is_text,
            bytes,
            last_modified,
            mime_type: media_type("".as_ref(), is_text),
        }
    }

    /// The size of the whole, in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// A part of it.
    ///
    /// # Errors
    ///
    /// [`RangeError`], if `range` holds no byte of it.
    pub fn part(&self, range: ByteRange) -> Result<Part<'_>, RangeError> {
        let range = range.within(self.bytes.len())?;
        let bytes = &self.bytes[range.clone()];
        Ok(Part {
            bytes,
            offset: range.start as u64,
            size: self.size(),
            is_text: self.is_text && is_text(bytes),
        })
    }
}

/// The SHA-256 in lower-case hexadecimal digits.
pub(crate) fn digest(bytes: &[u8]) -> String {
    HEXLOWER.encode(&Sha256::digest(bytes))
}

pub(crate) fn is_text(bytes: &[u8]) -> bool {
    !bytes.contains(&0) && std::str::from_utf8(bytes).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_cut_at_the_end_and_refused_beyond_it() {
        let out = |offset, size| Err(RangeError::OutOfBounds { offset, size });
        let rows = [
            (0, None, 10, Ok(0..10)),
            (3, Some(4), 10, Ok(3..7)),
            (3, Some(40), 10, Ok(3..10)),
            (9, Some(u64::MAX), 10, Ok(9..10)),
            (10, None, 10, out(10, 10)),
            (u64::MAX, Some(u64::MAX), 10, out(u64::MAX, 10)),
            (0, None, 0, Ok(0..0)),
            (1, None, 0, out(1, 0)),
            (0, Some(0), 10, Err(RangeError::Empty)),
        ];
        for (offset, length, size, expected) in rows {
            let range = ByteRange { offset, length };
            assert_eq!(range.within(size), expected, "{range:?} of {size}");
        }
    }

    #[test]
    fn a_part_that_cuts_a_character_is_no_text() {
        let content = Content {
            bytes: "交易".into(),
            etag: digest("交易".as_bytes()),
            last_modified: None,
            is_text: true,
            mime_type: "text/plain",
        };
        let is_text = |offset, length| {
            let length = Some(length);
            content.part(ByteRange { offset, length }).unwrap().is_text
        };
        assert!(is_text(0, 6) && is_text(3, 3));
        assert!(!is_text(0, 4) && !is_text(1, 5));
    }

    #[test]
    fn digests_are_those_of_sha_256() {
        assert_eq!(
            digest(b"abc"),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }
}
