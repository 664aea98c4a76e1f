//! Filter for skills: `skill://ecommerce/*`, a category, a tag.

use std::{fmt, str::FromStr};

use crate::{
    skill::Skill,
    uri::{BadSegment, SkillUri, SkillUriError, check_segment, decode_segment, raw_segments},
};

/// A [`SkillUri`] with wildcards.
///
/// A segment that is only `*` stands for one segment or more, wherever it is: `skill://a/*` is
/// everything in category `a` and the categories below it, `skill://*/entry` each skill of that
/// name, `skill://*` all. Within a segment `*` stands for any run of characters, none included
/// (`skill://ecommerce/order-*`). A literal `*` is written `%2A`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkillPattern {
    text: String,
    segments: Vec<SegmentPattern>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum SegmentPattern {
    /// One segment or more.
    Any,
    /// One segment: these pieces, decoded, with anything between them.
    Pieces(Vec<String>),
}

/// Conditions that a skill must all meet; the default has none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SkillFilter {
    /// Decoded, as [`SkillUri::category`] has it; the categories below it are meant too.
    pub category: Option<String>,
    /// One of the skill's tags, in any letter case.
    pub tag: Option<String>,
    /// The skill's URI matches.
    pub uri: Option<SkillPattern>,
}

impl SkillFilter {
    /// Returns true if `skill` meets every condition.
    #[must_use]
    pub fn matches(&self, skill: &Skill) -> bool {
        let in_category = self.category.as_deref().is_none_or(|wanted| {
            let category = skill.uri().category();
            let below = category.strip_prefix(wanted.trim_end_matches('/'));
            below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        });
        let tagged = self.tag.as_deref().is_none_or(|wanted| {
            let wanted = wanted.to_lowercase();
            skill.tags().iter().any(|tag| tag.to_lowercase() == wanted)
        });
        let named = self.uri.as_ref().is_none_or(|it| it.matches(skill.uri()));
        in_category && tagged && named
    }
}

impl SkillPattern {
    /// Returns true if `uri` matches.
    #[must_use]
    pub fn matches(&self, uri: &SkillUri) -> bool {
        let segments = uri.segments();
        // reachable[n]: the pattern so far can have consumed exactly n segments. Both lengths are
        // bounded by MAX_URI_SEGMENTS, so hostile patterns cost no more than long ones.
        let mut reachable = vec![false; segments.len() + 1];
        reachable[0] = true;
        for pattern in &self.segments {
            let mut next = vec![false; segments.len() + 1];
            for (index, segment) in segments.iter().enumerate() {
                next[index + 1] = match pattern {
                    SegmentPattern::Any => reachable[index] || next[index],
                    SegmentPattern::Pieces(pieces) => {
                        reachable[index] && matches_pieces(pieces, segment)
                    }
                };
            }
            reachable = next;
        }
        reachable[segments.len()]
    }
}

impl FromStr for SkillPattern {
    type Err = SkillUriError;

    fn from_str(text: &str) -> Result<Self, SkillUriError> {
        let segments = raw_segments(text)?
            .enumerate()
            .map(|(index, raw)| segment_pattern(raw, index + 1))
            .collect::<Result<Vec<_>, _>>()?;
        if !segments.contains(&SegmentPattern::Any) && segments.len() < 2 {
            return Err(SkillUriError::MissingName);
        }
        Ok(Self {
            text: text.to_owned(),
            segments,
        })
    }
}

impl fmt::Display for SkillPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn segment_pattern(raw: &str, segment: usize) -> Result<SegmentPattern, SkillUriError> {
    if !raw.is_empty() && raw.bytes().all(|byte| byte == b'*') {
        return Ok(SegmentPattern::Any);
    }
    let mut pieces = Vec::new();
    for piece in raw.split('*') {
        pieces.push(decode_segment(piece, segment)?);
    }
    // An `x` in place of each wildcard keeps `.*` from being taken for a dot.
    match check_segment(&pieces.join("x")) {
        Ok(()) => Ok(SegmentPattern::Pieces(pieces)),
        Err(reason) => Err(bad_segment(segment, reason)),
    }
}

fn bad_segment(segment: usize, reason: BadSegment) -> SkillUriError {
    SkillUriError::BadSegment { segment, reason }
}

/// The first piece starts the segment, the last ends it, the others follow in order. Taking each at
/// its first place leaves the most room for those after it, so no backtracking is needed.
fn matches_pieces(pieces: &[String], segment: &str) -> bool {
    let [first, middle @ .., last] = pieces else {
        return pieces.first().is_some_and(|only| only == segment);
    };
    let Some(mut rest) = segment.strip_prefix(first.as_str()) else {
        return false;
    };
    for piece in middle {
        match rest.split_once(piece.as_str()) {
            Some((_, after)) => rest = after,
            None => return false,
        }
    }
    rest.ends_with(last.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_whole_segments() {
        let rows = [
            ("skill://ecommerce/*", "skill://ecommerce/order", true),
            ("skill://ecommerce/*", "skill://ecommerce/eu/order", true),
            ("skill://ecommerce/*", "skill://ecommerce2/order", false),
            ("skill://ecommerce/*", "skill://x/ecommerce/order", false),
            ("skill://*", "skill://a/b", true),
            ("skill://*", "skill://a/b/c", true),
            ("skill://**", "skill://a/b/c", true),
            ("skill://*/entry", "skill://a/b/entry", true),
            ("skill://*/entry", "skill://a/entry-2", false),
            ("skill://*/b/*", "skill://a/b/c", true),
            ("skill://*/b/*", "skill://b/c", false),
            ("skill://a/order-*", "skill://a/order-cancel", true),
            ("skill://a/order-*", "skill://a/order-", true),
            ("skill://a/order-*", "skill://a/reorder-x", false),
            ("skill://a/*-x-*", "skill://a/1-x-2", true),
            ("skill://a/ab*ba", "skill://a/aba", false),
            ("skill://a/%2A", "skill://a/b", false),
            ("skill://a/%2A", "skill://a/%2A", true),
            ("skill://a/b", "skill://a/b", true),
            ("skill://交易/*", "skill://%E4%BA%A4%E6%98%93/x", true),
        ];
        for (pattern, uri, expected) in rows {
            let parsed: SkillPattern = pattern.parse().unwrap();
            let matches = parsed.matches(&uri.parse().unwrap());
            assert_eq!(matches, expected, "{pattern} on {uri}");
        }
    }

    #[test]
    fn bad_patterns_are_refused() {
        for bad in [
            "*",
            "file://a/*",
            "skill://a",
            "skill://a*",
            "skill://",
            "skill://a//*",
            "skill://../*",
            "skill://a/%2F*",
        ] {
            assert!(bad.parse::<SkillPattern>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_hostile_pattern_is_answered_at_once() {
        let segment = format!("{}b", "*a".repeat(4_000));
        let pattern: SkillPattern = format!("skill://*/{segment}").parse().unwrap();
        let uri = SkillUri::from_segments(["x".to_owned(), "a".repeat(10_000)]).unwrap();
        assert!(!pattern.matches(&uri));
    }
}
