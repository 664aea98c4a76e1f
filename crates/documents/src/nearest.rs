//! Keys that were probably meant.

/// Below this, two keys are different keys.
const MIN_SIMILARITY: f64 = 0.7;

/// The known key that `key` probably is a misspelling of.
#[must_use]
pub fn nearest(key: &str, known: &[&'static str]) -> Option<&'static str> {
    const MAX_COMPARED_BYTES: usize = 100;
    if key.len() > MAX_COMPARED_BYTES {
        return None;
    }
    let key = key.to_lowercase().replace('-', "_");
    let similarity = |known: &str| strsim::normalized_damerau_levenshtein(&key, known);
    let alike = known.iter().map(|known| (similarity(known), *known));
    alike
        .filter(|(similarity, _)| *similarity >= MIN_SIMILARITY)
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, known)| known)
}
