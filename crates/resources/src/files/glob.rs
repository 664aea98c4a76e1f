//! Patterns of paths.

/// A pattern of paths: `*` stands for any part of a name, `?` for one character, `**` as a whole name for any number of
/// directories. A pattern without a slash is one of names, at any depth.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Glob(Vec<String>);

/// Longest pattern, in bytes.
const MAX_PATTERN_BYTES: usize = 1_024;
/// The most `**` of a pattern, which bounds the time of a comparison.
const MAX_ANY: usize = 4;

impl Glob {
    /// Reads a pattern.
    ///
    /// # Errors
    ///
    /// The mistake in it.
    pub(crate) fn new(pattern: &str) -> Result<Self, String> {
        if pattern.is_empty() || MAX_PATTERN_BYTES < pattern.len() {
            return Err(format!(
                "a pattern has 1 to {MAX_PATTERN_BYTES} bytes, this one has {}",
                pattern.len()
            ));
        }
        if pattern.starts_with('/') || pattern.ends_with('/') || pattern.contains("//") {
            return Err(format!(
                "`{pattern}` is no pattern of paths below a root: it has an empty name; for all in a directory, \
                 write `directory/**`"
            ));
        }
        if pattern.contains('\\') {
            return Err(format!(
                "`{pattern}`: no path has a backslash; names are separated by `/`, and nothing needs to be escaped"
            ));
        }
        if pattern.starts_with('!') || pattern.contains(['[', ']', '{', '}']) {
            return Err(format!(
                "`{pattern}`: only `*`, `?` and `**` stand for others; write a pattern for each alternative, and `?` for a \
                 bracket or `!` of a name"
            ));
        }
        let mut names: Vec<_> = pattern.split('/').map(str::to_owned).collect();
        if names.iter().any(|it| it == "." || it == "..") {
            return Err(format!(
                "`{pattern}` leads nowhere: paths have neither `.` nor `..`"
            ));
        }
        if names.iter().any(|it| it.contains("**") && it != "**") {
            return Err(format!(
                "`{pattern}`: `**` stands for directories, and is a name by itself"
            ));
        }
        if MAX_ANY < names.iter().filter(|it| *it == "**").count() {
            return Err(format!("`{pattern}` has more than {MAX_ANY} `**`"));
        }
        if names.len() == 1 && names[0] != "**" {
            names.insert(0, "**".to_owned());
        }
        Ok(Self(names))
    }

    /// True of a pattern of what begins with a dot, which is never served.
    pub(crate) fn is_of_hidden(&self) -> bool {
        self.0.iter().any(|it| it.starts_with('.'))
    }

    /// Tests if it stands for a path.
    pub(crate) fn matches(&self, path: &str) -> bool {
        let names: Vec<_> = path.split('/').collect();
        all_match(&self.0, &names)
    }
}

fn all_match(pattern: &[String], names: &[&str]) -> bool {
    match (pattern.split_first(), names.split_first()) {
        (None, None) => true,
        (Some((any, rest)), _) if any == "**" => {
            // At the end it stands for what is in a directory, which is at least one name.
            if rest.is_empty() {
                return !names.is_empty();
            }
            (0..=names.len()).any(|skipped| all_match(rest, &names[skipped..]))
        }
        (Some((one, rest)), Some((name, names))) => {
            name_matches(one.as_bytes(), name) && all_match(rest, names)
        }
        _ => false,
    }
}

/// Compares in time proportional to both lengths: on a mismatch only the last `*` takes more.
fn name_matches(pattern: &[u8], name: &str) -> bool {
    let pattern: Vec<char> = String::from_utf8_lossy(pattern).chars().collect();
    let name: Vec<char> = name.chars().collect();
    let (mut p, mut n) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(&it) if it == '?' || it == name[n] => {
                p += 1;
                n += 1;
            }
            _ => match star {
                Some((at, taken)) => {
                    star = Some((at, taken + 1));
                    p = at + 1;
                    n = taken + 1;
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|it| *it == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_stand_for_paths() {
        for (pattern, path, expected) in [
            ("*.md", "a.md", true),
            ("*.md", "deep/er/a.md", true),
            ("*.md", "a.mdx", false),
            ("reports/*.csv", "reports/may.csv", true),
            ("reports/*.csv", "reports/2026/may.csv", false),
            ("reports/**", "reports/2026/may.csv", true),
            ("reports/**", "reports", false),
            ("reports/**/may.csv", "reports/may.csv", true),
            ("reports/**/may.csv", "reports/a/b/may.csv", true),
            ("**", "anything/at/all", true),
            ("**/private/**", "a/private/b", true),
            ("**/private/**", "private/b", true),
            ("**/private/**", "a/privately/b", false),
            ("report-??.txt", "report-05.txt", true),
            ("report-??.txt", "report-5.txt", false),
            ("a*b*c", "axxbxxc", true),
            ("a*b*c", "axxbxx", false),
            ("交*", "交易", true),
        ] {
            let glob = Glob::new(pattern).unwrap();
            assert_eq!(glob.matches(path), expected, "{pattern} and {path}");
        }
    }

    #[test]
    fn patterns_that_can_match_nothing_are_mistakes() {
        for pattern in [
            "",
            "/etc/*",
            "a//b",
            "../*",
            "a/./b",
            "reports/",
            "a**",
            "**/**/**/**/**",
            "priv\\*",
            "[ab].txt",
            "{a,b}.txt",
            "!a.txt",
        ] {
            assert!(Glob::new(pattern).is_err(), "{pattern}");
        }
    }

    #[test]
    fn a_hostile_pattern_takes_no_time() {
        let glob = Glob::new(&"*a".repeat(200)).unwrap();
        assert!(!glob.matches(&"a".repeat(199)));
    }
}
