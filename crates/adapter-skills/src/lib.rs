//! `SKILL.md` files as `skill://` resources.
//!
//! A *skill* is a directory with a `SKILL.md` in it: front matter in YAML that names and governs it,
//! then Markdown for a model to read. [`SkillCatalog::scan`] finds those below one directory, at any
//! depth, and gives each a URI, `skill://<category>/<name>`, from its place:
//!
//! | file | URI |
//! |---|---|
//! | `capabilities/ecommerce/order-cancel/SKILL.md` | `skill://ecommerce/order-cancel` |
//! | `capabilities/a/b/c/SKILL.md` | `skill://a/b/c`, of category `a/b` |
//! | `capabilities/entry-monitor/SKILL.md` | `skill://capabilities/entry-monitor`, configurable |
//! | `capabilities/a/b/references/x.md` | `skill://a/b/references/x.md`, if `a/b` is a skill |
//!
//! ```
//! use adapter_skills::{ScanOptions, SkillCatalog, SkillFilter};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir()?;
//! # let root = directory.path();
//! std::fs::create_dir_all(root.join("ecommerce/order-cancel"))?;
//! std::fs::write(
//!     root.join("ecommerce/order-cancel/SKILL.md"),
//!     "---\nname: order-cancel\ndescription: Cancels an order.\n---\n# When to cancel\n",
//! )?;
//!
//! let (catalog, problems) = SkillCatalog::scan(&ScanOptions::new(root));
//! assert!(problems.is_empty());
//!
//! let found = catalog.resolve("skill://ecommerce/order-cancel")?;
//! assert_eq!(found.skill.description(), "Cancels an order.");
//! assert!(found.read()?.bytes.ends_with(b"# When to cancel\n"));
//!
//! let filter = SkillFilter {
//!     uri: Some("skill://ecommerce/*".parse()?),
//!     ..SkillFilter::default()
//! };
//! assert_eq!(catalog.matching(&filter).count(), 1);
//! # Ok(())
//! # }
//! ```
//!
//! # What holds
//!
//! * **No string of a client becomes a path.** A [`SkillUri`] cannot hold `..` or a separator, and
//!   is looked up all the same ([`SkillCatalog::resolve`]). Files whose name starts with a dot are
//!   never served, nor is anything outside of the directory, whatever links there are.
//! * **Content is what is on disk**, byte for byte, at the time of reading. A catalogue knows sizes
//!   and digests as of its scan; a [`Content`] has its own.
//! * **A scan is total.** One bad file is a [`Problem`] with a place and a hint, and the others are
//!   served. Everything is bounded ([`Limits`]).
//! * **A file that cannot be used never frees its tool.** [`SkillCatalog::hold_of`] says which tools
//!   such a file was about: by its `name:`, by its directory, and by what it was before. What was
//!   known of a tool stays known ([`SkillCatalog::rules`]), also when its file is deleted, until
//!   [`WatchGuard::forget`]; another process holds back the tools whose skills have gone meanwhile
//!   ([`SkillMemory`]). A value that governs and cannot be read is taken as the strictest
//!   ([`OwlclawBlock`]), and holds the tool back.
//!
//! Reading and scanning block on the disk. [`watch`](fn@watch) has a thread of its own for it.
//!
//! Deliberately absent: MCP's types, permissions, and OwlClaw's guessing of triggers from prose.

mod catalog;
mod content;
mod filter;
mod frontmatter;
mod hold;
mod host;
mod limits;
mod media;
mod memory;
mod problem;
mod scan;
mod skill;
mod uri;
mod watch;

pub use crate::{
    catalog::{ResolveError, Resolved, SkillCatalog},
    content::{ByteRange, Content, Part, RangeError},
    filter::{SkillFilter, SkillPattern},
    frontmatter::{
        BadField, Constraints, Frontmatter, FrontmatterError, MAX_NAME_BYTES, OwlclawBlock,
        Prerequisites, RiskLevel, TaskHint, ToolDeclaration, ToolHints, rule_meant,
    },
    hold::Hold,
    host::{ASKING, Host, Interpreter, Unmet},
    limits::Limits,
    media::media_type,
    memory::{MemoryError, SkillMemory},
    problem::{Problem, ProblemKind, Severity},
    scan::{FALLBACK_CATEGORY, ScanOptions},
    skill::{MAX_KEPT_BODY_BYTES, Skill, SkillFile},
    uri::{
        BadSegment, MAX_URI_BYTES, MAX_URI_SEGMENTS, PathUriError, SCHEME, SKILL_FILE_NAME,
        SkillUri, SkillUriError,
    },
    watch::{WatchOptions, watch},
};
pub use documents::{
    Document, Excerpt, MAX_FRONTMATTER_BYTES, MAX_VALUE_BYTES, MAX_YAML_ALIASES, MAX_YAML_DEPTH,
    MAX_YAML_NODES, ReadError, SplitError, WatchError, WatchGuard, YamlError, excerpt_at_line,
};
