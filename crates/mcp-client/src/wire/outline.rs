//! Frames that are no messages: as much of them as says whom they concern.

use jsonrpc_core::Id;

/// Members of an object that may not even be JSON, such as an answer with `NaN` or one nested too deeply.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Outline {
    pub(crate) id: Option<Id>,
    /// True for a request or notification.
    pub(crate) has_method: bool,
    /// True if there are parameters that are no object and no list.
    pub(crate) has_unfit_params: bool,
}

impl Outline {
    /// Reads the members of the outermost object, without looking into their values.
    pub(crate) fn of(frame: &[u8]) -> Self {
        let mut outline = Self::default();
        let frame = frame.trim_ascii();
        if frame.first() != Some(&b'{') {
            return outline;
        }
        let mut depth = 0_usize;
        let mut at = 0;
        while let Some(byte) = frame.get(at) {
            match byte {
                b'{' | b'[' => depth += 1,
                b'}' | b']' => depth = depth.saturating_sub(1),
                b'"' => {
                    let end = end_of_text(frame, at);
                    let rest = frame.get(end..).unwrap_or_default().trim_ascii_start();
                    if let (1, Some(value)) = (depth, rest.strip_prefix(b":")) {
                        outline.take(&frame[at..end], value.trim_ascii_start());
                    }
                    at = end;
                    continue;
                }
                _ => {}
            }
            at += 1;
        }
        outline
    }

    fn take(&mut self, name: &[u8], value: &[u8]) {
        match name {
            b"\"id\"" => {
                let end = match value.first() {
                    Some(b'"') => end_of_text(value, 0),
                    _ => value
                        .iter()
                        .position(|it| b",}".contains(it) || it.is_ascii_whitespace())
                        .unwrap_or(value.len()),
                };
                let text = std::str::from_utf8(&value[..end]).ok();
                // The first of several is taken, so that a request of ours does not wait.
                self.id = self.id.take().or_else(|| text.and_then(Id::from_json));
            }
            b"\"method\"" => self.has_method = true,
            b"\"params\"" => self.has_unfit_params = !matches!(value.first(), Some(b'{' | b'[')),
            _ => {}
        }
    }
}

/// The place behind the text that begins at `begin`.
fn end_of_text(frame: &[u8], begin: usize) -> usize {
    let mut at = begin + 1;
    while let Some(byte) = frame.get(at) {
        match byte {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    frame.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_that_is_no_message_still_says_whom_it_concerns() {
        let deep = format!(r#"{{"id":7,"result":{}}}"#, "[".repeat(500));
        for (frame, id, has_method) in [
            (
                r#"{"jsonrpc":"2.0","id":7,"error":{"code":"x"}}"#,
                Some(Id::Number(7)),
                false,
            ),
            (
                r#" {"result":{"id":8,"x":NaN}, "id" : 7 }"#,
                Some(Id::Number(7)),
                false,
            ),
            (&deep, Some(Id::Number(7)), false),
            (r#"{"id":7,"result":1,"id":8}"#, Some(Id::Number(7)), false),
            (
                r#"{"id":"a\"b","method":"m","params":"x"}"#,
                Some(Id::String(r#"a"b"#.into())),
                true,
            ),
            (r#"{"x":"id","y":["id",1],"z":"\"id\":1"}"#, None, false),
            (r#"[{"id":7,"result":1}]"#, None, false),
            ("", None, false),
            (r#"{"id":"#, None, false),
            (r#"{"id"#, None, false),
            (r#"{"a\"#, None, false),
        ] {
            let outline = Outline::of(frame.as_bytes());
            assert_eq!(
                (outline.id, outline.has_method),
                (id, has_method),
                "{frame:.60}"
            );
        }
        assert!(Outline::of(br#"{"params":"x"}"#).has_unfit_params);
        assert!(!Outline::of(br#"{"params":{}}"#).has_unfit_params);
    }
}
