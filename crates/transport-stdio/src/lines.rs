//! Lines of a byte stream.

use bytes::{Buf, Bytes, BytesMut};

/// Cuts what was read into lines. A line that is too long is passed over and not kept.
#[derive(Debug)]
pub(crate) struct Lines {
    buffer: BytesMut,
    /// Bytes at the beginning of the buffer that are known to hold no newline.
    scanned: usize,
    /// Bytes already thrown away of a line that is too long.
    passed_over: Option<usize>,
    max_line: usize,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// A whole line, without its end and never blank.
    Whole(Bytes),
    /// A line of this many bytes, which is more than is accepted.
    TooLong(usize),
}

impl Lines {
    /// Bytes of room that a read is given.
    const READ_SIZE: usize = 64 * 1024;

    pub(crate) fn new(max_line: usize) -> Self {
        Self {
            buffer: BytesMut::new(),
            scanned: 0,
            passed_over: None,
            max_line,
        }
    }

    /// Buffer for the next read.
    pub(crate) fn room(&mut self) -> &mut BytesMut {
        self.buffer.reserve(Self::READ_SIZE);
        &mut self.buffer
    }

    /// The next line that is complete.
    pub(crate) fn next(&mut self) -> Option<Line> {
        loop {
            let Some(found) = memchr::memchr(b'\n', &self.buffer[self.scanned..]) else {
                self.scanned = self.buffer.len();
                self.pass_over();
                return None;
            };
            let length = self.scanned + found;
            self.scanned = 0;
            let line = self.buffer.split_to(length);
            self.buffer.advance(1);
            if let Some(line) = self.finish(line) {
                return Some(line);
            }
        }
    }

    /// Rest at the end of the input: a last line without its end.
    pub(crate) fn rest(&mut self) -> Option<Line> {
        self.scanned = 0;
        let line = self.buffer.split();
        self.finish(line)
    }

    fn finish(&mut self, line: BytesMut) -> Option<Line> {
        let length = self.passed_over.take().unwrap_or(0) + line.len();
        if self.max_line < length {
            return Some(Line::TooLong(length));
        }
        let line = line.freeze();
        let text = line.trim_ascii();
        (!text.is_empty()).then(|| Line::Whole(line.slice_ref(text)))
    }

    /// Throws away what belongs to a line that is too long already.
    fn pass_over(&mut self) {
        if self.passed_over.is_some() || self.max_line < self.buffer.len() {
            *self.passed_over.get_or_insert(0) += self.buffer.len();
            self.buffer.clear();
            self.scanned = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feed(lines: &mut Lines, bytes: &[u8]) -> Vec<Line> {
        lines.room().extend_from_slice(bytes);
        std::iter::from_fn(|| lines.next()).collect()
    }

    fn whole(text: &'static str) -> Line {
        Line::Whole(Bytes::from_static(text.as_bytes()))
    }

    #[test]
    fn a_part_of_a_line_waits_for_the_rest() {
        let mut lines = Lines::new(10);
        assert_eq!(feed(&mut lines, b"ab"), []);
        assert_eq!(
            feed(&mut lines, b"c\r\n\n \nd\ne"),
            [whole("abc"), whole("d")]
        );
        assert_eq!(lines.rest(), Some(whole("e")));
        assert_eq!(lines.rest(), None);
    }

    #[test]
    fn a_line_too_long_is_counted_and_not_kept() {
        let mut lines = Lines::new(10);
        for _ in 0..1_000 {
            assert_eq!(feed(&mut lines, &[b'x'; 1_000]), []);
            assert!(lines.buffer.len() <= 10, "kept {}", lines.buffer.len());
        }
        assert_eq!(
            feed(&mut lines, b"x\nok\n"),
            [Line::TooLong(1_000_001), whole("ok")]
        );
        assert_eq!(
            feed(&mut lines, b"12345678901\n1234567890\n"),
            [Line::TooLong(11), whole("1234567890")]
        );
    }
}
