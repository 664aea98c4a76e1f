//! Prompts from Markdown files, with versions, arguments and sandboxed templates.
//!
//! | file | prompt |
//! |---|---|
//! | `greeting.md` | `greeting`, of one version |
//! | `email.reply/1.0.md`, `email.reply/1.1.md` | `email.reply`, of which the highest version is in force |
//! | `email.reply/current` | the version of `email.reply` that is in force instead, on one line |
//! | `_tone.md`, `_parts/sign.md` | no prompts: what `{% include "_tone.md" %}` puts in |
//!
//! ```
//! use adapter_prompts::{PromptCatalog, PromptOptions};
//! use std::collections::BTreeMap;
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir()?;
//! # let root = directory.path();
//! std::fs::write(
//!     root.join("greeting.md"),
//!     "---\ndescription: Greets.\narguments:\n  - {name: who, required: true}\n---\nHello {{ who }}!\n",
//! )?;
//!
//! let catalog = PromptCatalog::scan(&PromptOptions::new(root));
//! let version = catalog.version("greeting").ok_or("no such prompt")?;
//! let version = version.map_err(Clone::clone)?;
//! let arguments = BTreeMap::from([("who".to_owned(), "{{ you }}".to_owned())]);
//! assert_eq!(version.render(&arguments)?[0].text, "Hello {{ you }}!");
//! # Ok(())
//! # }
//! ```
//!
//! # What holds
//!
//! * **Arguments are never template code.** A template is compiled when its file is read; what a client sends
//!   is a value in it.
//! * **A template reaches nothing** but its arguments and the files that it includes by a name in quotes, all
//!   of them read beforehand, from below the directory. Time and memory of a rendering are bounded.
//! * **A file that cannot be used holds its prompt.** It is listed with the reason, and every use is refused;
//!   no older version takes its place unless [`Broken::LastGood`] says so.
//! * **A digest names what was filled in**: of the file, and of all that it includes.
//!
//! Scanning blocks on the disk. [`PromptWatch`] has a thread of its own for it.
//!
//! Deliberately absent: MCP's types, permissions, and rendering that reads files.

mod argument;
mod catalog;
mod front;
mod history;
mod lines;
mod problem;
mod template;
mod version;
mod watch;

pub use crate::{
    argument::{Argument, Kind},
    catalog::{Broken, PromptCatalog, PromptEntry, PromptOptions},
    front::{MAX_FILE_BYTES, Role},
    history::{HistoryError, put_in_force},
    problem::Problem,
    template::{MAX_OUTPUT_BYTES, Message, PromptVersion, RenderError},
    version::compare,
    watch::PromptWatch,
};
pub use documents::{WatchError, WatchOptions};
