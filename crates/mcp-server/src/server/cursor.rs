//! Cursors name the list they belong to, and the last item of the page before with its place, so that
//! they survive a change of the list. To clients they are opaque.

use crate::offer::page_cache::List;
use data_encoding::HEXLOWER;
use std::cell::Cell;

/// Method whose list a cursor belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Listed {
    Tools,
    Resources,
    Templates,
    Prompts,
    Skills,
    Directory,
    Tasks,
}

impl Listed {
    /// First letter of its cursors.
    fn letter(self) -> char {
        match self {
            Self::Tools => 't',
            Self::Resources => 'r',
            Self::Templates => 'u',
            Self::Prompts => 'p',
            Self::Skills => 's',
            Self::Directory => 'd',
            Self::Tasks => 'k',
        }
    }
}

impl From<List> for Listed {
    /// A client whose view changes goes on with the cursors it has.
    fn from(list: List) -> Self {
        match list {
            List::Tools { .. } | List::Search { .. } => Self::Tools,
            List::Resources => Self::Resources,
            List::Templates => Self::Templates,
            List::Prompts => Self::Prompts,
            List::Skills => Self::Skills,
        }
    }
}

/// The cursor of what comes after the item `key`.
pub(crate) fn after(listed: Listed, key: &str) -> String {
    format!("{}{}", listed.letter(), HEXLOWER.encode(key.as_bytes()))
}

/// The item a cursor names; `None` for text that is no cursor of ours, or one of another list.
pub(crate) fn read(listed: Listed, cursor: &str) -> Option<String> {
    let digits = cursor.strip_prefix(listed.letter())?;
    if !digits.len().is_multiple_of(2) || !digits.is_ascii() {
        return None;
    }
    let bytes = (0..digits.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&digits[at..at + 2], 16));
    String::from_utf8(bytes.collect::<Result<_, _>>().ok()?).ok()
}

/// Position that a cursor asks for.
#[derive(Debug)]
pub(crate) struct Asked<'a> {
    listed: Listed,
    cursor: Option<&'a str>,
    /// Set if the item that the cursor names is gone: no client was told of such a page.
    is_gone: Cell<bool>,
}

impl<'a> Asked<'a> {
    pub(crate) fn new(listed: Listed, cursor: Option<&'a str>) -> Self {
        Self {
            listed,
            cursor,
            is_gone: Cell::new(false),
        }
    }

    /// False for a page that must not be cached: clients can make up any number of such cursors.
    pub(crate) fn is_shared(&self) -> bool {
        !self.is_gone.get()
    }

    /// The range of the page in `keys`, and the cursor of the next one. `None` for a cursor that this
    /// server did not make for this list. A cursor whose item is gone continues at the item's place: exactly in a
    /// list sorted by its keys, and otherwise if no other item is gone.
    pub(crate) fn page<'k>(
        &self,
        keys: impl ExactSizeIterator<Item = &'k str> + Clone,
        size: usize,
    ) -> Option<(std::ops::Range<usize>, Option<String>)> {
        let length = keys.len();
        let start = match self.cursor {
            None => 0,
            Some(cursor) => {
                let cursor = read(self.listed, cursor)?;
                let (place, last) = cursor.split_once(':')?;
                let place: usize = place.parse().ok()?;
                match keys.clone().position(|key| key == last) {
                    Some(position) => position + 1,
                    None => {
                        self.is_gone.set(true);
                        match keys.clone().is_sorted() {
                            true => keys.clone().take_while(|key| *key < last).count(),
                            false => place.saturating_sub(1).min(length),
                        }
                    }
                }
            }
        };
        let end = start.saturating_add(size.max(1)).min(length);
        let next = if end < length {
            let last = keys.clone().nth(end - 1);
            last.map(|last| after(self.listed, &format!("{end}:{last}")))
        } else {
            None
        };
        Some((start..end, next))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_follow_each_other_without_gap_or_overlap() {
        let keys: Vec<String> = (0..7).map(|n| format!("tool-{n}é")).collect();
        for size in 1..9 {
            let (mut seen, mut cursor) = (Vec::new(), None);
            loop {
                let asked = Asked::new(Listed::Tools, cursor.as_deref());
                let (range, next) = asked.page(keys.iter().map(String::as_str), size).unwrap();
                assert!(asked.is_shared());
                seen.extend_from_slice(&keys[range]);
                cursor = next;
                if cursor.is_none() {
                    break;
                }
            }
            assert_eq!(seen, keys, "size {size}");
        }
    }

    #[test]
    fn a_cursor_stays_valid_when_its_item_is_removed() {
        for all in [["a", "b", "c", "d", "e"], ["d", "e", "b", "a", "c"]] {
            let first = Asked::new(Listed::Tools, None)
                .page(all.into_iter(), 2)
                .unwrap();
            let cursor = first.1.unwrap();
            let asked = Asked::new(Listed::Tools, Some(&cursor));
            let left: Vec<_> = all.into_iter().filter(|it| *it != all[1]).collect();
            let (range, next) = asked.page(left.iter().copied(), 2).unwrap();
            assert_eq!(left[range], all[2..4]);
            assert!(next.is_some() && !asked.is_shared());
            let none = Asked::new(Listed::Tools, Some(&cursor)).page([].into_iter(), 2);
            assert_eq!(none, Some((0..0, None)));
        }
        // In the order of keys nothing is told twice or left out, whatever has gone and come.
        let cursor = Asked::new(Listed::Tools, None).page(["b", "c", "d", "e"].into_iter(), 2);
        let cursor = cursor.unwrap().1.unwrap();
        let now = ["a", "d", "e"];
        let (range, _) = Asked::new(Listed::Tools, Some(&cursor))
            .page(now.into_iter(), 2)
            .unwrap();
        assert_eq!(now[range], ["d", "e"]);
    }

    #[test]
    fn what_is_no_cursor_is_refused() {
        let keys = ["a", "b"];
        for bad in [
            "", "x", "t6", "tzz", "t61", "t3a61", "t783a61", "b313a61", "té0", "r313a61",
        ] {
            let asked = Asked::new(Listed::Tools, Some(bad));
            assert_eq!(asked.page(keys.into_iter(), 1), None, "{bad}");
        }
    }
    #[test]
    fn a_cursor_belongs_to_one_list() {
        let all = [
            Listed::Tools,
            Listed::Resources,
            Listed::Templates,
            Listed::Prompts,
            Listed::Skills,
            Listed::Directory,
            Listed::Tasks,
        ];
        for of in all {
            let cursor = after(of, "1:a");
            for other in all {
                let key = (of == other).then(|| "1:a".to_owned());
                assert_eq!(read(other, &cursor), key, "{of:?} {other:?}");
                let page = Asked::new(other, Some(&cursor)).page(["a", "b"].into_iter(), 1);
                assert_eq!(page.is_some(), of == other, "{of:?} {other:?}");
            }
        }
    }
}
