//! The tools that skills have governed, for the next process.

use std::{
    collections::BTreeMap,
    fs::DirBuilder,
    io,
    path::{Path, PathBuf},
};

use crate::catalog::SkillCatalog;

/// A file that names each tool a skill has governed, with the path of that skill: a line of JSON for
/// each, `["refund","skills/shop/refund/SKILL.md"]`. A tool that is in it and has no skill any more is
/// held back ([`SkillCatalog::hold_of`]), until the skill is there again or its line is removed.
#[derive(Debug)]
pub struct SkillMemory {
    path: PathBuf,
    known: BTreeMap<String, PathBuf>,
    is_written: bool,
}

/// The file cannot be used. A server that went on without it would free what it guards.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// The file cannot be read.
    #[error("{path}, which says what tools had skills, cannot be read")]
    Read {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// A line is not what is written there.
    #[error(
        "{path}:{line}: it should be a tool and the path of its skill, as [\"refund\",\"SKILL.md\"]; \
         mend or remove the line"
    )]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
    },
}

impl SkillMemory {
    /// Reads the file; where there is none, nothing is remembered yet. Blocks on the disk.
    ///
    /// # Errors
    ///
    /// [`MemoryError`].
    pub fn read(path: PathBuf) -> Result<Self, MemoryError> {
        let text = match regular_file::read_text(&path, u64::MAX) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(source) => return Err(MemoryError::Read { path, source }),
        };
        let mut known = BTreeMap::new();
        for (index, line) in text.lines().enumerate() {
            if line.trim().is_empty() {
                continue;
            }
            let Ok((tool, skill)) = serde_json::from_str::<(String, PathBuf)>(line) else {
                let line = index + 1;
                return Err(MemoryError::Line { path, line });
            };
            known.insert(tool, skill);
        }
        Ok(Self {
            path,
            known,
            is_written: true,
        })
    }

    /// A catalogue without skills that knows of them, for the first scan to follow
    /// ([`SkillCatalog::following`]).
    #[must_use]
    pub fn catalog(&self) -> SkillCatalog {
        SkillCatalog::remembering(self.known.clone())
    }

    /// Remembers the tools that are governed now. What was remembered and that `catalog`, which follows
    /// [`SkillMemory::catalog`], knows nothing of has been forgotten on purpose. `is_tool` knows which
    /// names are those of tools. Blocks on the disk if something has changed.
    ///
    /// # Errors
    ///
    /// The reason why the file cannot be written; the next time is another attempt.
    pub fn keep(
        &mut self,
        catalog: &SkillCatalog,
        is_tool: impl Fn(&str) -> bool,
    ) -> io::Result<()> {
        let governed = catalog
            .rules()
            .map(|(tool, skill)| (tool, skill.path()))
            .chain(catalog.remembered())
            .filter(|(tool, _)| is_tool(tool) || self.known.contains_key(*tool));
        let known = governed
            .map(|(tool, path)| (tool.to_owned(), path.to_owned()))
            .collect();
        if self.known != known {
            self.known = known;
            self.is_written = false;
        }
        if !self.is_written {
            self.write()?;
            self.is_written = true;
        }
        Ok(())
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Replaces the file as a whole, for its owner alone.
    fn write(&self) -> io::Result<()> {
        let mut text = String::new();
        for (tool, path) in &self.known {
            // A path need not be text; it is there to be read by people.
            text.push_str(&serde_json::to_string(&(tool, path.to_string_lossy()))?);
            text.push('\n');
        }
        let mut directory = DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut directory, 0o700);
        let parent = self.path.parent();
        if let Some(parent) = parent.filter(|it| !it.as_os_str().is_empty()) {
            directory.recursive(true).create(parent)?;
        }
        regular_file::replace_private(&self.path, text.as_bytes())
    }
}
