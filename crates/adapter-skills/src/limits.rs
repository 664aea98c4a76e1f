//! Bounds of a scan.

use documents::Walk;

use crate::uri::SKILL_FILE_NAME;

/// Bounds of a scan. Whatever lies beyond one is a [`Problem`](crate::Problem) and is not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Deepest level of a skill below the skills directory, in directories.
    pub max_depth: usize,
    /// The most files and directories that are looked at.
    pub max_entries: usize,
    /// The most skills.
    pub max_skills: usize,
    /// The most files in a skill's directory and below, `SKILL.md` included.
    pub max_files_per_skill: usize,
    /// The size of a skill's files together, `SKILL.md` included, in bytes.
    pub max_bytes_per_skill: u64,
    /// The size of a `SKILL.md`, in bytes.
    pub max_document_bytes: u64,
}

impl Limits {
    /// The bounds of the listing.
    pub(crate) fn walk(&self) -> Walk {
        Walk {
            max_depth: self.max_depth,
            max_entries: self.max_entries,
            document: Some(SKILL_FILE_NAME),
        }
    }
}

impl Default for Limits {
    /// 512 files and 16 MiB per skill are the bounds that the skills extension sets for servers.
    fn default() -> Self {
        Self {
            max_depth: 16,
            max_entries: 100_000,
            max_skills: 10_000,
            max_files_per_skill: 512,
            max_bytes_per_skill: 16 * 1024 * 1024,
            max_document_bytes: 1024 * 1024,
        }
    }
}
