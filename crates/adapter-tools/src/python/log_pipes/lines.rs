//! Lines, and the calls that they say they belong to.

/// The longest line that becomes one entry of the log, in bytes; a longer one becomes several.
const MAX_LINE: usize = 4096;
/// Beginning of a line that belongs to a call, before the call's number.
const CALL: u8 = 0x1e;
/// Separator after the number.
const TEXT: u8 = 0x1f;
/// Most digits of a number.
const MAX_DIGITS: usize = 20;

/// Cuts bytes into printable lines of bounded length.
#[derive(Default)]
pub(super) struct Lines {
    open: Vec<u8>,
    /// The call of the beginning of this line, if that became an entry already.
    call: Option<u64>,
}

impl Lines {
    pub(super) fn feed(&mut self, bytes: &[u8], entry: &mut impl FnMut(Option<u64>, String)) {
        for piece in bytes.split_inclusive(|&byte| byte == b'\n') {
            for part in piece.chunks(MAX_LINE) {
                if MAX_LINE < self.open.len() + part.len() {
                    self.flush(entry);
                }
                self.open.extend_from_slice(part);
            }
            if self.open.last() == Some(&b'\n') {
                self.end(entry);
            }
        }
    }

    pub(super) fn end(&mut self, entry: &mut impl FnMut(Option<u64>, String)) {
        self.flush(entry);
        self.call = None;
    }

    /// Makes entries of what there is. A prefix in the middle is the beginning of a line as well: what
    /// comes before it was written by somebody who does not end lines.
    fn flush(&mut self, entry: &mut impl FnMut(Option<u64>, String)) {
        let mut rest = &self.open[..];
        let mut call = self.call;
        while let Some((before, id, after)) = split_at_prefix(rest) {
            say(call, before, entry);
            call = Some(id);
            rest = after;
        }
        say(call, rest, entry);
        self.call = call;
        self.open.clear();
    }
}

fn say(call: Option<u64>, bytes: &[u8], entry: &mut impl FnMut(Option<u64>, String)) {
    let text = String::from_utf8_lossy(bytes.trim_ascii_end());
    if text.is_empty() {
        return;
    }
    // Escape sequences are for terminals; what reads the log may be one.
    let printable = |c: char| {
        if c.is_control() && c != '\t' {
            '\u{fffd}'
        } else {
            c
        }
    };
    entry(call, text.chars().map(printable).collect());
}

/// The first prefix in `bytes`: what is before it, its number, and what comes after it.
fn split_at_prefix(bytes: &[u8]) -> Option<(&[u8], u64, &[u8])> {
    let mut from = 0;
    loop {
        let at = from + bytes[from..].iter().position(|&byte| byte == CALL)?;
        let number = &bytes[at + 1..];
        let digits = number.iter().take(MAX_DIGITS + 1);
        let digits = digits.take_while(|byte| byte.is_ascii_digit()).count();
        let id = std::str::from_utf8(&number[..digits]).ok();
        if let Some(id) = id.and_then(|id| id.parse().ok())
            && number.get(digits) == Some(&TEXT)
        {
            return Some((&bytes[..at], id, &number[digits + 1..]));
        }
        from = at + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entries(chunks: &[&[u8]]) -> Vec<(Option<u64>, String)> {
        let mut seen = Vec::new();
        let mut lines = Lines::default();
        let mut entry = |call, line| seen.push((call, line));
        for chunk in chunks {
            lines.feed(chunk, &mut entry);
        }
        lines.end(&mut entry);
        seen
    }

    fn texts(chunks: &[&[u8]]) -> Vec<String> {
        entries(chunks).into_iter().map(|(_, text)| text).collect()
    }

    #[test]
    fn lines_are_whole_printable_and_bounded() {
        assert_eq!(texts(&[b"a\nb", b"c\r\n\n  d"]), ["a", "bc", "  d"]);
        assert_eq!(texts(&[b"\x1b[31mred\xff"]), ["\u{fffd}[31mred\u{fffd}"]);
        let long = vec![b'x'; 3 * MAX_LINE + 1];
        let pieces = texts(&[&long]);
        assert_eq!(pieces.iter().map(String::len).sum::<usize>(), long.len());
        assert!(pieces.iter().all(|piece| piece.len() <= MAX_LINE));
    }

    #[test]
    fn a_line_belongs_to_the_call_that_it_says() {
        let some = |id, text: &str| (Some(id), text.to_owned());
        let none = |text: &str| (None, text.to_owned());
        assert_eq!(
            entries(&[b"\x1e7\x1fa\nb\n\x1e8", b"\x1fc\n"]),
            [some(7, "a"), none("b"), some(8, "c")]
        );
        assert_eq!(
            entries(&[b"no end\x1e7\x1fa\nb"]),
            [none("no end"), some(7, "a"), none("b")]
        );
        assert_eq!(
            entries(&[b"\x1e\x1fa\n\x1e99999999999999999999\x1fb\n\x1e1"]),
            [
                none("\u{fffd}\u{fffd}a"),
                none("\u{fffd}99999999999999999999\u{fffd}b"),
                none("\u{fffd}1")
            ]
        );
    }

    #[test]
    fn a_line_of_several_entries_belongs_to_one_call() {
        let mut long = b"\x1e7\x1f".to_vec();
        long.extend_from_slice(&[b'x'; 2 * MAX_LINE]);
        long.extend_from_slice(b"\nother\n");
        let calls: Vec<_> = entries(&[&long])
            .into_iter()
            .map(|(call, _)| call)
            .collect();
        let (last, first) = calls.split_last().unwrap();
        assert!(1 < first.len() && first.iter().all(|call| *call == Some(7)));
        assert_eq!(*last, None);
    }

    proptest! {
        // Making bytes one by one takes long, so there are few cases of many bytes.
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn any_output_becomes_bounded_entries(
            chunks in prop::collection::vec(prop::collection::vec(
                prop_oneof![Just(0x1e_u8), Just(0x1f), Just(b'\n'), b'0'..=b'9', any::<u8>()],
                0..600,
            ), 0..12),
        ) {
            let chunks: Vec<_> = chunks.iter().map(Vec::as_slice).collect();
            for text in texts(&chunks) {
                prop_assert!(text.chars().count() <= MAX_LINE);
                prop_assert!(!text.chars().any(|c| c.is_control() && c != '\t'));
            }
        }
    }
}
