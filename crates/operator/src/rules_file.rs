//! The rules in a configuration file: their text, and other rules in their place.

use std::path::{Path, PathBuf};

use crate::edit::section::{Section, section, with_section};
use crate::rewrite::{Lock, rewrite};

/// Section of the rules.
const SECTION: &str = "governance";
/// Key of the only secret that can stand among them.
const SECRET: &str = "http_token";

/// The rules in a configuration file, as they were read.
#[derive(Debug)]
pub struct RulesFile {
    path: PathBuf,
    whole: String,
    section: Section,
}

impl RulesFile {
    /// Reads the rules in the file at `path`.
    ///
    /// # Errors
    ///
    /// The reason why they cannot be read, or not be edited apart from all else.
    pub fn read(path: &Path) -> Result<Self, String> {
        let shown = path.display();
        let unreadable = |error| format!("{shown} cannot be read: {error}");
        let path = path.canonicalize().map_err(unreadable)?;
        let whole = regular_file::read_text(&path, regular_file::MAX_BYTES).map_err(unreadable)?;
        let section = section(&whole, SECTION).map_err(|why| format!("{shown}: {why}"))?;
        if has_secret(&section.text) || redaction::without_known(&section.text) != section.text {
            return Err(format!(
                "a secret stands among the rules in {shown}: write a reference in its place, such as `${{HTTP_TOKEN}}`"
            ));
        }
        Ok(Self {
            path,
            whole,
            section,
        })
    }

    /// Path of the file, without links.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The rules: the lines below `governance`, with their comments, without their indentation.
    #[must_use]
    pub fn rules(&self) -> &str {
        &self.section.text
    }

    /// Place of a line and a column of the file (from 1) in the rules; `None` for one that is elsewhere.
    #[must_use]
    pub fn within(&self, line: usize, column: usize) -> Option<(usize, usize)> {
        let Section {
            first_line,
            column: indentation,
            text,
        } = &self.section;
        let at = (line + 1).checked_sub(*first_line)?;
        let is_there = (1..=text.lines().count()).contains(&at);
        is_there.then(|| (at, column.saturating_sub(*indentation).max(1)))
    }

    /// The same file with other rules. It is not written.
    ///
    /// # Errors
    ///
    /// The reason why they cannot be put in the place of those that are there.
    pub fn with(&self, rules: &str) -> Result<Self, String> {
        let whole = with_section(&self.whole, SECTION, rules)?;
        let section = section(&whole, SECTION)?;
        if has_secret(&section.text) {
            return Err(format!(
                "`{SECRET}` would be written out: write a reference to a variable, such as `${{HTTP_TOKEN}}`"
            ));
        }
        Ok(Self {
            path: self.path.clone(),
            whole,
            section,
        })
    }

    /// Text of the whole file.
    #[must_use]
    pub fn whole(&self) -> &str {
        &self.whole
    }

    /// Puts this text in the place of `before` on the disk, whole or not at all.
    ///
    /// # Errors
    ///
    /// The reason why it is not written: among others, the file is not as `before` was read.
    pub fn replace(&self, before: &Self) -> Result<(), String> {
        let name = self.path.display().to_string();
        let lock = Lock::of(&name, &self.path)?;
        rewrite(&lock, &name, &self.path, &before.whole, &self.whole)
    }
}

/// True if a token may be written out: if what stands behind its key is no reference to a value elsewhere.
fn has_secret(rules: &str) -> bool {
    let is_reference = |rest: &str| {
        let rest = rest.trim_start_matches(['"', '\'', ' ']);
        let Some(rest) = rest.strip_prefix(':') else {
            return false;
        };
        let rest = rest.trim_start_matches(['"', '\'', ' ']);
        let name = rest.strip_prefix("${").and_then(|it| it.split_once('}'));
        let is_plain = |it: char| it.is_ascii_alphanumeric() || "_.:/".contains(it);
        name.is_some_and(|(name, rest)| {
            let ends = rest.trim_start_matches(['"', '\'']).trim_start();
            let is_end = ends.is_empty() || ends.starts_with(['#', ',', '}']);
            is_end && !name.is_empty() && name.chars().all(is_plain)
        })
    };
    rules
        .lines()
        .flat_map(|line| line.split(SECRET).skip(1))
        .any(|rest| !is_reference(rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_that_is_written_out_is_found() {
        for rules in [
            "approvals:\n  http_token: 0123456789abcdef\n",
            "approvals: {http_token: abc}",
            "approvals:\n  http_token:\n    abc\n",
            "approvals:\n  \"http_token\" : ${A:-abc}\n",
            "approvals:\n  http_token: ${A}abc\n",
            "approvals:\n  http_token: *known # ${A}\n",
        ] {
            assert!(has_secret(rules), "{rules}");
        }
        for rules in [
            "confirm: []\n",
            "approvals:\n  http_token: ${HTTP_TOKEN}  # mine\n",
            "approvals: {http_token: \"${vault:token}\", expire_seconds: 1}",
        ] {
            assert!(!has_secret(rules), "{rules}");
        }
    }

    #[test]
    fn a_file_that_has_changed_meanwhile_is_left_as_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("mcp-server.yaml");
        let text = "mcp_server:\n  governance:\n    confirm: [a] # kept\n";
        std::fs::write(&path, text).unwrap();
        let before = RulesFile::read(&path).unwrap();
        let after = before.with("confirm: [b] # kept\n").unwrap();
        assert_eq!(after.within(3, 14), Some((1, 10)));
        assert_eq!((after.within(2, 1), after.within(4, 1)), (None, None));
        std::fs::write(&path, "mcp_server: {}\n").unwrap();
        assert!(after.replace(&before).unwrap_err().contains("changed"));
        std::fs::write(&path, text).unwrap();
        after.replace(&before).unwrap();
        let now = std::fs::read_to_string(&path).unwrap();
        assert_eq!(now, text.replace("[a]", "[b]"));
    }
}
