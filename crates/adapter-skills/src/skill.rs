//! One skill, and the files beside its `SKILL.md`.

use std::{path::Path, time::SystemTime};

use documents::{Excerpt, Place, ReadError, excerpt_at_line};

use crate::{
    content::{Content, digest, is_text},
    frontmatter::Frontmatter,
    media::MARKDOWN,
    uri::{SKILL_FILE_NAME, SkillUri},
};

/// Most bytes of a skill's body that a catalogue keeps. The rest is on disk.
pub const MAX_KEPT_BODY_BYTES: usize = 16 * 1024;

/// The longest name that the Agent Skills specification allows, in bytes.
const MAX_STANDARD_NAME_BYTES: usize = 64;

/// One skill as it was when it was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Skill {
    pub(crate) uri: SkillUri,
    pub(crate) frontmatter: Frontmatter,
    pub(crate) body: String,
    pub(crate) body_is_cut: bool,
    pub(crate) facts: Facts,
    pub(crate) files: Vec<SkillFile>,
    pub(crate) place: Place,
}

/// A file in a skill's directory other than its `SKILL.md`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkillFile {
    pub(crate) uri: SkillUri,
    pub(crate) mime_type: &'static str,
    pub(crate) facts: Facts,
    pub(crate) place: Place,
}

/// Facts about a file's content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) size: u64,
    pub(crate) etag: String,
    pub(crate) last_modified: Option<SystemTime>,
    pub(crate) is_text: bool,
}

impl Facts {
    pub(crate) fn of(bytes: &[u8], last_modified: Option<SystemTime>) -> Self {
        Self {
            size: bytes.len() as u64,
            etag: digest(bytes),
            last_modified,
            is_text: is_text(bytes),
        }
    }
}

impl Skill {
    /// URI of the skill.
    #[must_use]
    pub fn uri(&self) -> &SkillUri {
        &self.uri
    }

    /// The URI of its `SKILL.md` as one file among others. The same content as at
    /// [`uri`](Self::uri).
    #[must_use]
    pub fn document_uri(&self) -> SkillUri {
        self.uri
            .join(Path::new(SKILL_FILE_NAME))
            .expect("a scan takes only skills where this fits")
    }

    /// Name in the front matter, unique in a catalogue, and that of the tool it belongs to.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.frontmatter.name
    }

    /// Returns true if hosts of skills can know it by its name: the one in the front matter,
    /// verbatim, is that of the directory, and one by the Agent Skills specification, which is 1 to
    /// 64 lower-case letters, digits and single hyphens, none of them at an end.
    ///
    /// Letters are those of ASCII. The specification can be read to allow others, but in a URI those
    /// would be encoded, and hosts compare the name with the URI's last segment as it is written.
    #[must_use]
    pub fn has_standard_name(&self) -> bool {
        let name = self.uri.name();
        let verbatim = self.frontmatter.raw.get("name");
        verbatim.and_then(|it| it.as_str()) == Some(name)
            && name.len() <= MAX_STANDARD_NAME_BYTES
            && name.split('-').all(|word| {
                let mut bytes = word.bytes();
                !word.is_empty() && bytes.all(|it| matches!(it, b'a'..=b'z' | b'0'..=b'9'))
            })
    }

    /// Description: the purpose of the skill.
    #[must_use]
    pub fn description(&self) -> &str {
        &self.frontmatter.description
    }

    /// A title for people, if it has one.
    #[must_use]
    pub fn title(&self) -> Option<&str> {
        self.frontmatter.title.as_deref()
    }

    /// The category in its URI.
    #[must_use]
    pub fn category(&self) -> String {
        self.uri.category()
    }

    /// Tags, in the file's order.
    #[must_use]
    pub fn tags(&self) -> &[String] {
        &self.frontmatter.tags
    }

    /// `text/markdown`.
    #[must_use]
    pub fn mime_type(&self) -> &'static str {
        MARKDOWN
    }

    /// The size of `SKILL.md`, in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.facts.size
    }

    /// Time of the last modification of `SKILL.md`, where the file system records it.
    #[must_use]
    pub fn last_modified(&self) -> Option<SystemTime> {
        self.facts.last_modified
    }

    /// The SHA-256 of `SKILL.md`, 64 lower-case hexadecimal digits.
    #[must_use]
    pub fn etag(&self) -> &str {
        &self.facts.etag
    }

    /// Complete front matter.
    #[must_use]
    pub fn frontmatter(&self) -> &Frontmatter {
        &self.frontmatter
    }

    /// The other files of its directory and those below, nested skills included, in the order of
    /// their paths.
    #[must_use]
    pub fn files(&self) -> &[SkillFile] {
        &self.files
    }

    /// Path of its `SKILL.md`. For logs and operators, never for clients.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.place.path
    }

    /// The text after the front matter without blank lines at its start: as many whole lines of
    /// it as fit into `max_bytes` and into [`MAX_KEPT_BODY_BYTES`].
    #[must_use]
    pub fn excerpt_at_line(&self, max_bytes: usize) -> Excerpt<'_> {
        let excerpt = excerpt_at_line(&self.body, max_bytes);
        Excerpt {
            is_cut: excerpt.is_cut || self.body_is_cut,
            ..excerpt
        }
    }

    /// Reads `SKILL.md` as it is now, which may be newer than the catalogue. Blocks on the disk.
    ///
    /// # Errors
    ///
    /// [`ReadError`], if the file is gone, was replaced, or cannot be read.
    pub fn read(&self) -> Result<Content, ReadError> {
        read(&self.place, MARKDOWN)
    }
}

impl SkillFile {
    /// URI of the file: that of the skill, followed by the path in the skill's directory.
    #[must_use]
    pub fn uri(&self) -> &SkillUri {
        &self.uri
    }

    /// The media type that its name suggests.
    #[must_use]
    pub fn mime_type(&self) -> &'static str {
        self.mime_type
    }

    /// Size in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.facts.size
    }

    /// Time of the last modification, where the file system records it.
    #[must_use]
    pub fn last_modified(&self) -> Option<SystemTime> {
        self.facts.last_modified
    }

    /// SHA-256, 64 lower-case hexadecimal digits.
    #[must_use]
    pub fn etag(&self) -> &str {
        &self.facts.etag
    }

    /// Returns true if the file is UTF-8 without NUL.
    #[must_use]
    pub fn is_text(&self) -> bool {
        self.facts.is_text
    }

    /// Path of the file. For logs and operators, never for clients.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.place.path
    }

    /// Reads it as it is now. Blocks on the disk.
    ///
    /// # Errors
    ///
    /// [`ReadError`], if the file is gone, was replaced, or cannot be read.
    pub fn read(&self) -> Result<Content, ReadError> {
        read(&self.place, self.mime_type)
    }
}

fn read(place: &Place, mime_type: &'static str) -> Result<Content, ReadError> {
    let raw = place.read()?;
    Ok(Content {
        mime_type,
        ..Content::new(raw.bytes, raw.last_modified)
    })
}
