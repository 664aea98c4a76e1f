//! `skill://category/name`, decoded and checked.

use std::{
    fmt,
    path::{Component, Path, PathBuf},
    str::FromStr,
};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// The scheme of every URI here.
pub const SCHEME: &str = "skill";

/// The name of the file that makes a directory a skill.
pub const SKILL_FILE_NAME: &str = "SKILL.md";

/// The longest URI or pattern that is looked at, in bytes. Every path that Linux can open (4,096
/// bytes) fits, even when each byte needs three characters.
pub const MAX_URI_BYTES: usize = 16 * 1024;

/// The most segments a URI or pattern may have.
pub const MAX_URI_SEGMENTS: usize = 64;

/// Characters to encode: all but RFC 3986's *unreserved* characters, so that a written URI needs no
/// thought about which part of it a reader takes for an authority, a port or a query.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// `skill://<category>/<name>`: two segments or more, the last being the name.
///
/// Segments are kept decoded. None is empty, `.` or `..`, and none holds `/`, `\`, NUL or another
/// control character, so a URI cannot leave the directory it is looked up in. It is never joined to
/// a path all the same: reads go through the catalogue.
///
/// Two spellings of one URI (`%61` and `a`) are equal; [`Display`](fmt::Display) writes the
/// canonical one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SkillUri {
    /// At least two.
    segments: Vec<String>,
    /// The canonical spelling.
    text: String,
}

/// A string is not a skill's URI.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SkillUriError {
    /// There is no `://`.
    #[error("not a URI: expected `skill://<category>/<name>`")]
    NotAUri,
    /// A URI of another scheme.
    #[error("the scheme is `{found}`, expected `skill`")]
    WrongScheme {
        /// Text before `://`, cut to 32 characters.
        found: String,
    },
    /// A URI that ends after the category.
    #[error("the name is missing: expected `skill://<category>/<name>`")]
    MissingName,
    /// A `%` without two hexadecimal digits, or bytes that are no UTF-8.
    #[error("segment {segment} has a bad percent encoding")]
    BadPercentEncoding {
        /// Counted from 1, the category's first segment.
        segment: usize,
    },
    /// A character that a URI may only hold percent-encoded.
    #[error("segment {segment} holds {character:?}, which must be percent-encoded")]
    UnencodedCharacter {
        /// Counted from 1.
        segment: usize,
        /// The first such character.
        character: char,
    },
    /// A segment that, decoded, cannot be one component of a path.
    #[error("segment {segment} {reason}")]
    BadSegment {
        /// Counted from 1.
        segment: usize,
        /// Description of what is wrong with it.
        reason: BadSegment,
    },
    /// More than [`MAX_URI_BYTES`] or [`MAX_URI_SEGMENTS`].
    #[error("longer than {MAX_URI_BYTES} bytes or {MAX_URI_SEGMENTS} segments")]
    TooLong,
}

/// Reason why a decoded segment is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadSegment {
    /// An empty segment, between two slashes.
    #[error("is empty")]
    Empty,
    /// `.` or `..`.
    #[error("is `.` or `..`")]
    Dots,
    /// `/` or `\`, which separate the components of paths.
    #[error("holds a path separator")]
    Separator,
    /// NUL or any other control character.
    #[error("holds a control character")]
    Control,
}

/// A path has no URI.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathUriError {
    /// The skills directory itself, which has no name within itself.
    #[error("the skills directory itself cannot be a skill")]
    Root,
    /// Absolute, or with `.` or `..` in it.
    #[error("not a plain relative path")]
    NotRelative,
    /// File names that are no UTF-8 have no lossless URI.
    #[error("the path is not UTF-8")]
    NotUtf8,
    /// A file name that no segment may hold.
    #[error("the path cannot be a URI")]
    Uri(#[from] SkillUriError),
}

impl SkillUri {
    /// A URI of decoded segments, the last being the name.
    ///
    /// # Errors
    ///
    /// [`SkillUriError::MissingName`] for fewer than two segments, [`SkillUriError::BadSegment`]
    /// and [`SkillUriError::TooLong`].
    pub fn from_segments<I>(segments: I) -> Result<Self, SkillUriError>
    where
        I: IntoIterator,
        I::Item: Into<String>,
    {
        let segments: Vec<String> = segments.into_iter().map(Into::into).collect();
        for (index, segment) in segments.iter().enumerate() {
            check_segment(segment).map_err(|reason| SkillUriError::BadSegment {
                segment: index + 1,
                reason,
            })?;
        }
        if segments.len() < 2 {
            return Err(SkillUriError::MissingName);
        }
        let mut text = format!("{SCHEME}:/");
        for segment in &segments {
            text.push('/');
            text.extend(utf8_percent_encode(segment, ENCODED));
        }
        if segments.len() > MAX_URI_SEGMENTS || text.len() > MAX_URI_BYTES {
            return Err(SkillUriError::TooLong);
        }
        Ok(Self { segments, text })
    }

    /// The URI of a skill's directory, given relative to the skills directory.
    ///
    /// A directory directly under the skills directory has `flat_category`. Different directories
    /// have different URIs, with one exception that lies in the scheme itself:
    /// `<flat_category>/x` and a flat `x` share one, and [`relative_directory`](Self::relative_directory)
    /// answers with the flat one. A catalogue that meets both reports it.
    ///
    /// # Errors
    ///
    /// [`PathUriError`] for a path without URI.
    pub fn from_relative_directory(
        directory: &Path,
        flat_category: &str,
    ) -> Result<Self, PathUriError> {
        let mut segments = path_segments(directory)?;
        if segments.len() == 1 {
            segments.insert(0, flat_category.to_owned());
        }
        Ok(Self::from_segments(segments)?)
    }

    /// The inverse of [`from_relative_directory`](Self::from_relative_directory).
    #[must_use]
    pub fn relative_directory(&self, flat_category: &str) -> PathBuf {
        match self.segments.as_slice() {
            [category, name] if category == flat_category => PathBuf::from(name),
            segments => segments.iter().collect(),
        }
    }

    /// The category, decoded: the segments before the name, joined by `/`.
    #[must_use]
    pub fn category(&self) -> String {
        self.category_segments().join("/")
    }

    /// The segments before the name, decoded. Never empty.
    #[must_use]
    pub fn category_segments(&self) -> &[String] {
        &self.segments[..self.segments.len() - 1]
    }

    /// The last segment, decoded.
    #[must_use]
    pub fn name(&self) -> &str {
        self.segments
            .last()
            .expect("a constructor checked that there are two")
    }

    /// The canonical spelling.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// All segments, decoded.
    #[must_use]
    pub fn segments(&self) -> &[String] {
        &self.segments
    }

    /// The URI of a file of this skill, given relative to the skill's directory.
    ///
    /// # Errors
    ///
    /// [`PathUriError`] for a path without URI.
    pub fn join(&self, file: &Path) -> Result<Self, PathUriError> {
        let mut segments = self.segments.clone();
        segments.extend(path_segments(file)?);
        Ok(Self::from_segments(segments)?)
    }
}

impl FromStr for SkillUri {
    type Err = SkillUriError;

    /// Parses any spelling of a URI. Characters beyond ASCII may stand unencoded, as people type
    /// them; everything that RFC 3986 reserves or forbids in a segment may not.
    fn from_str(text: &str) -> Result<Self, SkillUriError> {
        let segments = raw_segments(text)?
            .enumerate()
            .map(|(index, raw)| decode_segment(raw, index + 1))
            .collect::<Result<Vec<_>, _>>()?;
        Self::from_segments(segments)
    }
}

impl fmt::Display for SkillUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

/// Checks scheme and length, and splits what follows at slashes, still encoded.
pub(crate) fn raw_segments(text: &str) -> Result<impl Iterator<Item = &str>, SkillUriError> {
    if text.len() > MAX_URI_BYTES {
        return Err(SkillUriError::TooLong);
    }
    let (scheme, rest) = text.split_once("://").ok_or(SkillUriError::NotAUri)?;
    let scheme_like = |scheme: &str| {
        scheme.starts_with(|first: char| first.is_ascii_alphabetic())
            && scheme
                .chars()
                .all(|it| it.is_ascii_alphanumeric() || matches!(it, '+' | '-' | '.'))
    };
    if !scheme_like(scheme) {
        return Err(SkillUriError::NotAUri);
    }
    // RFC 3986, 3.1: schemes are case-insensitive.
    if !scheme.eq_ignore_ascii_case(SCHEME) {
        return Err(SkillUriError::WrongScheme {
            found: scheme.chars().take(32).collect(),
        });
    }
    if rest.split('/').nth(MAX_URI_SEGMENTS).is_some() {
        return Err(SkillUriError::TooLong);
    }
    Ok(rest.split('/'))
}

/// Decodes one segment; whether it may be a path's component is [`check_segment`]'s question.
pub(crate) fn decode_segment(raw: &str, segment: usize) -> Result<String, SkillUriError> {
    if let Some(character) = raw.chars().find(|it| !may_stand_unencoded(*it)) {
        return Err(if character == '\\' || character.is_control() {
            let reason = if character == '\\' {
                BadSegment::Separator
            } else {
                BadSegment::Control
            };
            SkillUriError::BadSegment { segment, reason }
        } else {
            SkillUriError::UnencodedCharacter { segment, character }
        });
    }
    let bytes = raw.as_bytes();
    let well_formed = bytes.iter().enumerate().all(|(index, byte)| {
        *byte != b'%'
            || matches!(bytes.get(index + 1..index + 3), Some([a, b])
                if a.is_ascii_hexdigit() && b.is_ascii_hexdigit())
    });
    let bad = SkillUriError::BadPercentEncoding { segment };
    if !well_formed {
        return Err(bad);
    }
    match percent_decode_str(raw).decode_utf8() {
        Ok(decoded) => Ok(decoded.into_owned()),
        Err(_) => Err(bad),
    }
}

/// RFC 3986's *pchar* (with `%`), and anything beyond ASCII that is no control character.
fn may_stand_unencoded(character: char) -> bool {
    character.is_ascii_alphanumeric()
        || "-._~!$&'()*+,;=:@%".contains(character)
        || (!character.is_ascii() && !character.is_control())
}

pub(crate) fn check_segment(segment: &str) -> Result<(), BadSegment> {
    if segment.is_empty() {
        Err(BadSegment::Empty)
    } else if segment == "." || segment == ".." {
        Err(BadSegment::Dots)
    } else if segment.contains(['/', '\\']) {
        Err(BadSegment::Separator)
    } else if segment.contains(char::is_control) {
        Err(BadSegment::Control)
    } else {
        Ok(())
    }
}

fn path_segments(path: &Path) -> Result<Vec<String>, PathUriError> {
    let mut segments = Vec::new();
    for component in path.components() {
        let Component::Normal(name) = component else {
            return Err(PathUriError::NotRelative);
        };
        segments.push(name.to_str().ok_or(PathUriError::NotUtf8)?.to_owned());
    }
    if segments.is_empty() {
        return Err(PathUriError::Root);
    }
    Ok(segments)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_uris_say_what_is_wrong() {
        let bad_segment = |segment, reason| SkillUriError::BadSegment { segment, reason };
        let rows = [
            ("", SkillUriError::NotAUri),
            ("ecommerce/order", SkillUriError::NotAUri),
            ("skill:/a/b", SkillUriError::NotAUri),
            ("://a/b", SkillUriError::NotAUri),
            (
                "file://a/b",
                SkillUriError::WrongScheme {
                    found: "file".to_owned(),
                },
            ),
            (
                "skills://a/b",
                SkillUriError::WrongScheme {
                    found: "skills".to_owned(),
                },
            ),
            ("skill://a", SkillUriError::MissingName),
            ("skill://", bad_segment(1, BadSegment::Empty)),
            ("skill:///b", bad_segment(1, BadSegment::Empty)),
            ("skill://a/", bad_segment(2, BadSegment::Empty)),
            ("skill://a//b", bad_segment(2, BadSegment::Empty)),
            ("skill://../b", bad_segment(1, BadSegment::Dots)),
            ("skill://a/%2e%2E/b", bad_segment(2, BadSegment::Dots)),
            ("skill://a/.", bad_segment(2, BadSegment::Dots)),
            ("skill://a/b%2Fc", bad_segment(2, BadSegment::Separator)),
            ("skill://a/b%5cc", bad_segment(2, BadSegment::Separator)),
            ("skill://a/b\\c", bad_segment(2, BadSegment::Separator)),
            ("skill://a/b%00", bad_segment(2, BadSegment::Control)),
            ("skill://a/b\n", bad_segment(2, BadSegment::Control)),
            ("skill://a/%C2%85", bad_segment(2, BadSegment::Control)),
            (
                "skill://a/%2",
                SkillUriError::BadPercentEncoding { segment: 2 },
            ),
            (
                "skill://%zz/a",
                SkillUriError::BadPercentEncoding { segment: 1 },
            ),
            (
                "skill://a/%ff",
                SkillUriError::BadPercentEncoding { segment: 2 },
            ),
            (
                "skill://a/b?c",
                SkillUriError::UnencodedCharacter {
                    segment: 2,
                    character: '?',
                },
            ),
            (
                "skill://a b/c",
                SkillUriError::UnencodedCharacter {
                    segment: 1,
                    character: ' ',
                },
            ),
        ];
        for (text, error) in rows {
            assert_eq!(text.parse::<SkillUri>(), Err(error), "{text:?}");
        }
        let long = format!("skill://a/{}", "b".repeat(MAX_URI_BYTES));
        assert_eq!(long.parse::<SkillUri>(), Err(SkillUriError::TooLong));
        let deep = format!("skill://a{}", "/b".repeat(MAX_URI_SEGMENTS));
        assert_eq!(deep.parse::<SkillUri>(), Err(SkillUriError::TooLong));
    }

    #[test]
    fn every_spelling_has_one_canonical_form() {
        let rows = [
            ("skill://trading/entry", "skill://trading/entry"),
            ("SKILL://trading/entry", "skill://trading/entry"),
            ("skill://tr%61ding/entry", "skill://trading/entry"),
            ("skill://a/b/c", "skill://a/b/c"),
            (
                "skill://交易/监控",
                "skill://%E4%BA%A4%E6%98%93/%E7%9B%91%E6%8E%A7",
            ),
            ("skill://a:80/user@b", "skill://a%3A80/user%40b"),
            ("skill://a/b%20c%25", "skill://a/b%20c%25"),
        ];
        for (text, canonical) in rows {
            let uri: SkillUri = text.parse().unwrap();
            assert_eq!(uri.to_string(), canonical, "{text}");
            assert_eq!(canonical.parse(), Ok(uri), "{text}");
        }
    }

    #[test]
    fn category_is_everything_before_the_name() {
        let uri: SkillUri = "skill://a/b/c".parse().unwrap();
        assert_eq!((uri.category().as_str(), uri.name()), ("a/b", "c"));
    }

    #[test]
    fn a_flat_skill_has_the_flat_category() {
        let uri = SkillUri::from_relative_directory(Path::new("entry"), "capabilities").unwrap();
        assert_eq!(uri.to_string(), "skill://capabilities/entry");
        assert_eq!(uri.relative_directory("capabilities"), Path::new("entry"));
        assert_eq!(
            uri.relative_directory("other"),
            Path::new("capabilities/entry")
        );
    }

    #[test]
    fn paths_without_uri_are_refused() {
        let of = |path: &str| SkillUri::from_relative_directory(Path::new(path), "skills");
        assert_eq!(of(""), Err(PathUriError::Root));
        assert_eq!(of("/etc"), Err(PathUriError::NotRelative));
        assert_eq!(of("a/../../b"), Err(PathUriError::NotRelative));
        assert!(matches!(of("a/b\u{7}"), Err(PathUriError::Uri(_))));
        #[cfg(unix)]
        {
            use std::{ffi::OsStr, os::unix::ffi::OsStrExt};
            let path = Path::new(OsStr::from_bytes(b"a/\xff"));
            let uri = SkillUri::from_relative_directory(path, "skills");
            assert_eq!(uri, Err(PathUriError::NotUtf8));
        }
    }
}
