//! Addresses of files: `files://ROOT/PATH`, each file with one spelling.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// Scheme of the addresses of files.
pub const SCHEME: &str = "files://";

/// Longest path below a root, in bytes: what `PATH_MAX` of Linux leaves.
const MAX_PATH_BYTES: usize = 4_000;
/// Longest name of a file, in bytes: `NAME_MAX`.
const MAX_NAME_BYTES: usize = 255;
/// The most directories that a path has.
pub(crate) const MAX_DEPTH: usize = 32;

/// All but the unreserved characters of RFC 3986, 2.3, and the slash.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b'/');

/// A path below a root: names that are neither empty nor begin with a dot, joined by slashes.
///
/// It cannot lead upwards, and never names what is hidden (`.git`, `.env`); that nothing on the way is a symbolic
/// link, no string can promise: [`Root`](crate::files::root::Root) sees to that.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Relative(String);

impl Relative {
    /// The path that `text` spells; `None` if it is none of a file that could be served.
    pub(crate) fn new(text: &str) -> Option<Self> {
        let is_name = |name: &str| {
            !name.is_empty()
                && name.len() <= MAX_NAME_BYTES
                && !name.starts_with('.')
                && !name.contains(['\0', '\\'])
        };
        let is_path = text.len() <= MAX_PATH_BYTES
            && text.split('/').all(is_name)
            && text.split('/').count() <= MAX_DEPTH + 1;
        is_path.then(|| Self(text.to_owned()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn names(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.0.split('/')
    }

    pub(crate) fn name(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or(&self.0)
    }

    pub(crate) fn is_below(&self, directory: &Self) -> bool {
        let rest = self.0.strip_prefix(&directory.0);
        rest.is_some_and(|it| it.starts_with('/'))
    }

    /// The path of something in a directory, without one in the root; `None` if its name cannot be served.
    pub(crate) fn child(directory: Option<&Self>, name: &str) -> Option<Self> {
        if name.contains('/') {
            return None;
        }
        match directory {
            Some(directory) => Self::new(&format!("{}/{name}", directory.0)),
            None => Self::new(name),
        }
    }
}

/// The one address of the file at `path` below the root `root`.
pub(crate) fn address(root: &str, path: &Relative) -> String {
    format!("{SCHEME}{root}/{}", utf8_percent_encode(&path.0, ENCODED))
}

/// Name of the root and the path that an address, however spelt, means; `None` if it is no address of a file.
pub(crate) fn parse(uri: &str) -> Option<(&str, Relative)> {
    let scheme = uri.get(..SCHEME.len())?;
    if !scheme.eq_ignore_ascii_case(SCHEME) {
        return None;
    }
    let (root, path) = uri[SCHEME.len()..].split_once('/')?;
    if path.contains(['?', '#']) {
        return None;
    }
    // Each name by itself: an encoded slash would make two of one.
    let mut names = Vec::new();
    for name in path.split('/') {
        let name = percent_decode_str(name).decode_utf8().ok()?;
        if name.contains('/') {
            return None;
        }
        names.push(name.into_owned());
    }
    Some((root, Relative::new(&names.join("/"))?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_escapes_hides_or_is_ambiguous_is_no_address() {
        for uri in [
            "files://notes/",
            "files://notes",
            "files:///etc/passwd",
            "files://notes/../secret",
            "files://notes/a/../../secret",
            "files://notes/%2e%2e/secret",
            "files://notes/%2E%2E%2Fsecret",
            "files://notes/a%2Fb",
            "files://notes/a//b",
            "files://notes//etc/passwd",
            "files://notes/./a",
            "files://notes/a/.",
            "files://notes/a/",
            "files://notes/.env",
            "files://notes/a/.git/config",
            "files://notes/%2eenv",
            "files://notes/a%00.txt",
            "files://notes/a%ff",
            "files://notes/..%5c..%5csecret",
            "files://notes/a\\b",
            "files://notes/a?b",
            "files://notes/a#b",
            "file://notes/a",
            "/etc/passwd",
            "",
        ] {
            assert!(
                parse(uri).is_none_or(|(root, _)| root.is_empty()),
                "{uri} is read as {:?}",
                parse(uri)
            );
        }
        let deep = format!("files://notes/{}x", "d/".repeat(MAX_DEPTH + 1));
        assert!(parse(&deep).is_none());
        let long = format!("files://notes/{}", "x".repeat(MAX_NAME_BYTES + 1));
        assert!(parse(&long).is_none());
    }

    #[test]
    fn every_spelling_of_a_path_has_one_address() {
        for (spelt, expected) in [
            ("files://notes/a b.txt", "files://notes/a%20b.txt"),
            ("FILES://notes/%61%20b.txt", "files://notes/a%20b.txt"),
            ("files://notes/é", "files://notes/%C3%A9"),
            ("files://notes/%c3%a9", "files://notes/%C3%A9"),
            ("files://notes/a*b", "files://notes/a%2Ab"),
            // What is encoded twice is a name with a percent sign.
            ("files://notes/%252e%252e", "files://notes/%252e%252e"),
        ] {
            let (root, path) = parse(spelt).unwrap();
            assert_eq!(address(root, &path), expected, "{spelt}");
        }
    }

    proptest! {
        #[test]
        fn an_address_leads_back_to_its_path(names in prop::collection::vec("[^/.\0\\\\][^/\0\\\\]{0,9}", 1..6)) {
            let path = Relative::new(&names.join("/")).unwrap();
            let uri = address("notes", &path);
            prop_assert!(uri.is_ascii());
            prop_assert_eq!(parse(&uri), Some(("notes", path)));
        }

        #[test]
        fn whatever_is_an_address_leads_below_its_root(text in "(files://)?[a-z]{0,3}/(\\.|%2[eE]|%2[fF]|/|a|\\PC){0,12}") {
            if let Some((_, path)) = parse(&text) {
                prop_assert!(path.names().all(|it| !it.is_empty() && !it.starts_with('.')));
            }
        }
    }
}
