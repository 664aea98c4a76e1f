//! The index of a search: exact names first, then BM25.

use super::words::words;
use std::collections::{BTreeMap, HashMap};

/// Growth of a word's weight with its number in a text, and of a long text's disadvantage.
const K1: f32 = 1.2;
const B: f32 = 0.5;

/// The most words of a query that count.
const MAX_WORDS: usize = 32;

/// The most words of one text that count.
const MAX_TEXT_WORDS: usize = 400;

/// A text in which is searched, prepared: its words with their weights.
#[derive(Debug, Default)]
pub(super) struct Document {
    /// The words of its name, with a space around each.
    name: String,
    words: HashMap<Box<str>, f32>,
    length: f32,
}

impl Document {
    pub(super) fn new(name: &str) -> Self {
        Self {
            name: spaced(name),
            ..Self::default()
        }
    }

    /// Adds a text whose words have this weight.
    pub(super) fn add(&mut self, text: &str, weight: f32) {
        let mut left = MAX_TEXT_WORDS;
        words(text, |word| {
            if left == 0 {
                return;
            }
            left -= 1;
            self.length += weight;
            match self.words.get_mut(word) {
                Some(sum) => *sum += weight,
                None => drop(self.words.insert(word.into(), weight)),
            }
        });
    }
}

fn spaced(name: &str) -> String {
    let mut spaced = " ".to_owned();
    for part in name
        .split(|it: char| !it.is_alphanumeric())
        .filter(|it| !it.is_empty())
    {
        let mut before_is_lower = false;
        for letter in part.chars() {
            if letter.is_uppercase() && before_is_lower {
                spaced.push(' ');
            }
            before_is_lower = letter.is_lowercase();
            spaced.extend(letter.to_lowercase());
        }
        spaced.push(' ');
    }
    spaced
}

/// Documents by their words, and what each word counts for each of them.
#[derive(Debug)]
pub(super) struct Index {
    /// In order.
    words: Vec<Box<str>>,
    /// The end of each word's part of `counts`.
    ends: Vec<u32>,
    counts: Vec<(u32, f32)>,
    names: Vec<String>,
}

impl Index {
    pub(super) fn new<'a>(documents: impl Iterator<Item = &'a Document>) -> Self {
        let mut by_word: BTreeMap<&str, Vec<(u32, f32)>> = BTreeMap::new();
        let (mut names, mut lengths) = (Vec::new(), Vec::new());
        for (number, document) in (0..).zip(documents) {
            names.push(document.name.clone());
            lengths.push(document.length);
            for (word, weight) in &document.words {
                by_word.entry(word).or_default().push((number, *weight));
            }
        }
        let total = as_f32(lengths.len());
        let mean = (lengths.iter().sum::<f32>() / total.max(1.0)).max(1.0);
        let mut index = Self {
            words: Vec::with_capacity(by_word.len()),
            ends: Vec::with_capacity(by_word.len()),
            counts: Vec::new(),
            names,
        };
        for (word, documents) in by_word {
            let has = as_f32(documents.len());
            let rare = (1.0 + (total - has + 0.5) / (has + 0.5)).ln();
            index
                .counts
                .extend(documents.into_iter().map(|(number, weight)| {
                    let length = lengths[number as usize] / mean;
                    let count = weight * (K1 + 1.0) / (weight + K1 * (1.0 - B + B * length));
                    (number, rare * count)
                }));
            index.words.push(word.into());
            index
                .ends
                .push(u32::try_from(index.counts.len()).unwrap_or(u32::MAX));
        }
        index
    }

    /// The numbers of the documents that fit, best first, at most so many of them; and how many fit.
    pub(super) fn find(&self, query: &str, most: usize) -> (Vec<u32>, usize) {
        let mut sums = vec![0.0_f32; self.names.len()];
        let mut asked: Vec<Box<str>> = Vec::new();
        words(query, |word| {
            if asked.len() < MAX_WORDS && !asked.iter().any(|it| **it == *word) {
                asked.push(word.into());
            }
        });
        for word in &asked {
            for (number, count) in self.counts_of(word) {
                sums[*number as usize] += count;
            }
        }
        let whole = spaced(query);
        for (sum, name) in sums.iter_mut().zip(&self.names) {
            if 1 < whole.len() && name.ends_with(&whole) {
                // The name itself, and then what ends like it, such as the tool of an upstream.
                *sum += if name.len() == whole.len() {
                    2_000.0
                } else {
                    1_000.0
                };
            } else if 1 < name.len() && whole.contains(name.as_str()) && name.trim().contains(' ') {
                *sum += 500.0;
            }
        }
        let mut found: Vec<u32> = (0..)
            .zip(&sums)
            .filter(|(_, sum)| 0.0 < **sum)
            .map(|(number, _)| number)
            .collect();
        let matching = found.len();
        let better = |one: &u32, other: &u32| {
            let (one_sum, other_sum) = (sums[*one as usize], sums[*other as usize]);
            other_sum.total_cmp(&one_sum).then(one.cmp(other))
        };
        if most < found.len() && 0 < most {
            found.select_nth_unstable_by(most - 1, better);
        }
        found.truncate(most);
        found.sort_unstable_by(better);
        (found, matching)
    }

    /// Counts of a word. One that is in no document stands for those that begin with it.
    fn counts_of(&self, word: &str) -> &[(u32, f32)] {
        let at = self.words.partition_point(|it| **it < *word);
        let is_it = self.words.get(at).is_some_and(|it| **it == *word);
        let after = match is_it {
            true => at + 1,
            false if word.chars().count() < 3 => at,
            false => {
                at + self.words[at..]
                    .iter()
                    .take_while(|it| it.starts_with(word))
                    .count()
            }
        };
        if after == at {
            return &[];
        }
        let start = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.counts[start as usize..self.ends[after - 1] as usize]
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "numbers of documents and words are small"
)]
fn as_f32(count: usize) -> f32 {
    count as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(tools: &[(&str, &str)]) -> Index {
        let documents: Vec<_> = tools
            .iter()
            .map(|(name, description)| {
                let mut document = Document::new(name);
                document.add(name, 3.0);
                document.add(description, 1.0);
                document
            })
            .collect();
        Index::new(documents.iter())
    }

    const TOOLS: [(&str, &str); 6] = [
        (
            "mcp_github_create_issue",
            "Opens an issue in a repository. create_issue create_issue",
        ),
        ("create_issue", "Opens a ticket."),
        ("list_issues", "Lists issues of a repository."),
        ("createIssueComment", "Comments on an issue."),
        ("stock-query", "Shows what is in stock in a warehouse."),
        ("weather", "查询天气 for a city"),
    ];

    #[test]
    fn exact_names_come_first_and_then_what_fits_best() {
        let index = index(&TOOLS);
        let found = |query: &str| index.find(query, 3).0;
        assert_eq!(found("create_issue")[..2], [1, 0]);
        assert_eq!(found("createIssue")[..2], [1, 0]);
        assert_eq!(found("please call stock-query")[0], 4);
        assert_eq!(found("which warehouses have stock")[0], 4);
        assert_eq!(found("commenting on issues")[0], 3);
        assert_eq!(found("天气"), [5]);
        // The beginning of a word.
        assert_eq!(found("warehou"), [4]);
        assert_eq!(index.find("issue", 1), (vec![0], 4));
        assert_eq!(index.find("nothing like it", 3), (vec![], 0));
        assert_eq!(index.find("", 3), (vec![], 0));
        assert_eq!(index.find("issue", 0), (vec![], 4));
    }
}
