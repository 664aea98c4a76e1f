//! Directories of Markdown documents with front matter: listed, read and watched within bounds.
//!
//! ```
//! use documents::{Document, Walk, list, parse_yaml};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir()?;
//! # let root = directory.path();
//! std::fs::write(root.join("greeting.md"), "---\ntitle: Greeting\n---\nHello!\n")?;
//!
//! let walk = Walk { max_depth: 1, max_entries: 100, document: None };
//! let mut problems = Vec::new();
//! let listing = list(root, &walk, &mut problems);
//! let (path, entry) = listing.first_key_value().ok_or("nothing is listed")?;
//! let read = entry.place(root, path, 1024).read()?;
//! let text = String::from_utf8(read.bytes)?;
//! let document = Document::split(&text)?;
//! assert_eq!(parse_yaml(document.frontmatter)?["title"], "Greeting");
//! assert_eq!(document.body, "Hello!\n");
//! # Ok(())
//! # }
//! ```
//!
//! [`list`] leaves out what is hidden and whatever a link leads to outside of the directory;
//! [`Place::read`] notices a file that was swapped after it was listed; [`watch`](fn@watch) reads again
//! when something has changed, also where the system does not announce changes.

mod document;
mod nearest;
mod place;
mod walk;
mod watch;
mod yaml;

pub use crate::{
    document::{Document, Excerpt, SplitError, excerpt_at_line},
    nearest::{nearest, nearest_of},
    place::{Place, RawContent, ReadError},
    walk::{Entry, Listing, Problem, Walk, WalkProblem, list},
    watch::{Follow, WatchError, WatchGuard, WatchOptions, watch},
    yaml::{
        MAX_FRONTMATTER_BYTES, MAX_VALUE_BYTES, MAX_YAML_ALIASES, MAX_YAML_DEPTH, MAX_YAML_NODES,
        YamlError, parse_yaml,
    },
};
