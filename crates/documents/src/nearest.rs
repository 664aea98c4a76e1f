//! Words that were probably meant.

/// Below this, two words are different words.
const MIN_SIMILARITY: f64 = 0.7;
const MAX_COMPARED_BYTES: usize = 100;

/// The known key that `key` probably is a misspelling of.
#[must_use]
pub fn nearest(key: &str, known: &[&'static str]) -> Option<&'static str> {
    nearest_of(key, &mut known.iter().copied())
}

/// The same of any words.
#[must_use]
pub fn nearest_of<'a>(word: &str, known: &mut dyn Iterator<Item = &'a str>) -> Option<&'a str> {
    if word.len() > MAX_COMPARED_BYTES {
        return None;
    }
    let word = word.to_lowercase().replace('-', "_");
    let similarity = |known: &str| strsim::normalized_damerau_levenshtein(&word, known);
    let alike = known.map(|known| (similarity(known), known));
    alike
        .filter(|(similarity, _)| *similarity >= MIN_SIMILARITY)
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, known)| known)
}
