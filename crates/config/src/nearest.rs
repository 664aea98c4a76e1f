//! Suggestions for misspelt words.

/// Below this, two words are different words.
const MIN_SIMILARITY: f64 = 0.55;
/// Lowest similarity assumed for a word and one that contains it.
const PART_SIMILARITY: f64 = 0.6;
/// A shorter word is contained in others by chance.
const MIN_PART_BYTES: usize = 4;

/// The candidate most like `word`, if any is like it at all; letter case does not count.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Nobody's typing error is that long, and the comparison is quadratic.
    const MAX_COMPARED_BYTES: usize = 200;
    if word.len() > MAX_COMPARED_BYTES {
        return None;
    }
    let word = word.to_lowercase();
    let similarity = |candidate: &str| {
        let candidate = candidate.to_lowercase();
        let is_part = word.len() >= MIN_PART_BYTES && candidate.contains(&word);
        let least = if is_part { PART_SIMILARITY } else { 0.0 };
        strsim::normalized_damerau_levenshtein(&word, &candidate).max(least)
    };
    candidates
        .into_iter()
        .map(|candidate| (similarity(candidate), candidate))
        .filter(|(similarity, _)| *similarity >= MIN_SIMILARITY)
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, candidate)| candidate)
}

/// The same, to keep.
pub fn nearest_of<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<String> {
    nearest(word, candidates).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typing_errors_are_seen_through_and_strangers_are_not_guessed() {
        let keys = ["host", "port", "max_sessions", "cors"];
        assert_eq!(nearest("prot", keys), Some("port"));
        assert_eq!(nearest("maxSessions", keys), Some("max_sessions"));
        assert_eq!(nearest("PORT", keys), Some("port"));
        assert_eq!(nearest("sessions", keys), Some("max_sessions"));
        assert_eq!(nearest("zebra", keys), None);
        assert_eq!(nearest(&"port".repeat(1_000), keys), None);
    }
}
