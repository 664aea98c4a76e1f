//! Entries to bytes and back.
//!
//! A group of entries is stored as one value: each is its length (four bytes, little-endian) and
//! that many bytes. They are written while a call waits, so there is nothing to look up and nothing
//! to allocate; they are read back rarely.

use crate::record::{
    approval::ApprovalId,
    entry::{
        Clipped, Cut, Digest, End, Ended, Event, Kind, MAX_ARGUMENTS_BYTES, MAX_MESSAGE_BYTES,
        MAX_RESULT_BYTES, MAX_TEXT_BYTES, Outcome, Start, Started,
    },
    id::CallId,
    note::{MAX_DETAIL_BYTES, Note, NoteKind, Noted},
};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

/// Bytes of an entry's length.
pub(crate) const LENGTH_BYTES: usize = 4;

/// A start as version 1 wrote it: without approval, key, definition, task and replay.
const STARTED_1: u8 = 1;
const ENDED: u8 = 2;
const STARTED: u8 = 3;
const NOTED: u8 = 4;
/// An end with the digest of the answer that is kept under the call's idempotency key.
const ENDED_KEEPING: u8 = 5;
/// A start with the time until which the call's idempotency key is remembered.
const STARTED_KEYED: u8 = 6;
/// An end with length and digest of the whole result, and perhaps with the digest of the answer that is kept.
const ENDED_WHOLE: u8 = 7;
/// A start with the way in which the call was made, and perhaps with the time of its key.
const STARTED_VIA: u8 = 8;

/// Stored bytes are not a group of entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Bytes that end in the middle of a value.
    #[error("an entry is cut short")]
    Short,
    /// There is more in an entry than there should be.
    #[error("an entry is longer than what it says")]
    Long,
    /// A kind, outcome or flag has no meaning.
    #[error("an entry has a mark that is not known")]
    Unknown,
    /// A text is not UTF-8.
    #[error("a text in an entry is not UTF-8")]
    NotText,
}

pub(crate) fn encode_start(start: &Start<'_>, out: &mut Vec<u8>) {
    framed(out, |out| {
        out.push(match (start.via, start.key_until_us) {
            (Some(_), _) => STARTED_VIA,
            (None, Some(_)) => STARTED_KEYED,
            (None, None) => STARTED,
        });
        out.extend_from_slice(start.call.0.as_bytes());
        put_u64(out, start.at_us);
        put_u64(out, start.policy_version);
        put_u64(out, start.estimated_cost_micros);
        out.push(match start.kind {
            Kind::Tool => 0,
            Kind::Resource => 1,
            Kind::Other => 2,
        });
        for text in [
            start.principal,
            start.capability,
            start.request_id,
            start.method,
            start.transport,
            start.protocol_version,
        ] {
            put_text(out, text, MAX_TEXT_BYTES);
        }
        for text in [start.client_label, start.session, start.trace_id] {
            put_option(out, text, |out, text| put_text(out, text, MAX_TEXT_BYTES));
        }
        put_clipped(out, start.arguments, MAX_ARGUMENTS_BYTES);
        put_option(out, start.arguments_digest, |out, digest| {
            out.extend_from_slice(&digest)
        });
        put_option(out, start.approval, |out, approval| {
            out.extend_from_slice(approval.0.as_bytes())
        });
        put_option(out, start.idempotency_key, |out, key| {
            put_text(out, key, MAX_TEXT_BYTES)
        });
        put_option(out, start.definition_digest, |out, digest| {
            out.extend_from_slice(&digest)
        });
        put_option(out, start.task, |out, task| {
            put_text(out, task, MAX_TEXT_BYTES)
        });
        put_option(out, start.replay_of, |out, call| {
            out.extend_from_slice(call.0.as_bytes())
        });
        if let Some(via) = start.via {
            put_option(out, start.key_until_us, put_u64);
            put_text(out, via, MAX_TEXT_BYTES);
        } else if let Some(until_us) = start.key_until_us {
            put_u64(out, until_us);
        }
    });
}

pub(crate) fn encode_end(call: CallId, end: &End<'_>, out: &mut Vec<u8>) {
    encode_end_keeping(call, end, None, out);
}

/// As [`encode_end`], with the digest of what is kept under the call's key, if it has one.
pub(crate) fn encode_end_keeping(
    call: CallId,
    end: &End<'_>,
    kept: Option<Digest>,
    out: &mut Vec<u8>,
) {
    framed(out, |out| {
        out.push(match (end.whole, kept) {
            (Some(_), _) => ENDED_WHOLE,
            (None, Some(_)) => ENDED_KEEPING,
            (None, None) => ENDED,
        });
        out.extend_from_slice(call.0.as_bytes());
        put_u64(out, end.duration_us);
        put_u64(out, end.cost_micros);
        out.push(u8::from(end.is_error));
        out.push(match end.outcome {
            Outcome::Succeeded => 0,
            Outcome::Failed => 1,
            Outcome::Denied { .. } => 2,
            Outcome::Invalid => 3,
            Outcome::TimedOut => 4,
            Outcome::Cancelled => 5,
            Outcome::Abandoned => 6,
            Outcome::Unknown => 7,
        });
        if let Outcome::Denied { reason } = end.outcome {
            put_text(out, reason, MAX_TEXT_BYTES);
        }
        put_option(out, end.error_code, |out, code| {
            out.extend_from_slice(&code.to_le_bytes())
        });
        put_option(out, end.message, |out, text| {
            put_text(out, text, MAX_MESSAGE_BYTES)
        });
        put_clipped(out, end.result, MAX_RESULT_BYTES);
        if let Some(whole) = end.whole {
            put_option(out, kept, |out, digest| out.extend_from_slice(&digest));
            put_cut(out, whole);
        } else {
            out.extend_from_slice(kept.as_ref().map_or(&[], |digest| digest));
        }
    });
}

/// `id` names the note; it is about no call.
pub(crate) fn encode_note(id: CallId, note: &Note<'_>, out: &mut Vec<u8>) {
    framed(out, |out| {
        out.push(NOTED);
        out.extend_from_slice(id.0.as_bytes());
        put_u64(out, note.at_us);
        put_u64(out, note.policy_version);
        for text in [note.kind.as_str(), note.actor, note.subject] {
            put_text(out, text, MAX_TEXT_BYTES);
        }
        put_clipped(out, note.detail, MAX_DETAIL_BYTES);
    });
}

/// The entries of a group, each without its length, with the place it begins at.
pub(crate) fn split(body: &[u8]) -> impl Iterator<Item = Result<(usize, &[u8]), DecodeError>> {
    let mut rest = body;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let begin = body.len() - rest.len() + LENGTH_BYTES;
        let entry = rest
            .split_first_chunk()
            .and_then(|(length, tail)| tail.split_at_checked(u32::from_le_bytes(*length) as usize));
        match entry {
            Some((entry, tail)) => {
                rest = tail;
                Some(Ok((begin, entry)))
            }
            None => {
                rest = &[];
                Some(Err(DecodeError::Short))
            }
        }
    })
}

/// An entry from its bytes, without its length.
pub(crate) fn decode(entry: &[u8]) -> Result<(CallId, Event), DecodeError> {
    let mut input = Input(entry);
    let mark = input.byte()?;
    let call = CallId(input.uuid()?);
    let event = match mark {
        STARTED_1 => Event::Started(input.started()?),
        STARTED => Event::Started(input.started_2()?),
        STARTED_KEYED => {
            let mut started = input.started_2()?;
            started.key_until_us = Some(input.u64()?);
            Event::Started(started)
        }
        STARTED_VIA => {
            let mut started = input.started_2()?;
            started.key_until_us = input.option(Input::u64)?;
            started.via = Some(input.text()?);
            Event::Started(started)
        }
        ENDED => Event::Ended(input.ended()?),
        ENDED_WHOLE => {
            let mut ended = input.ended()?;
            ended.kept = input.option(Input::array)?;
            ended.whole = Some(input.cut()?);
            Event::Ended(ended)
        }
        ENDED_KEEPING => {
            let ended = input.ended()?;
            let kept = Some(input.array()?);
            Event::Ended(Ended { kept, ..ended })
        }
        NOTED => Event::Noted(input.noted()?),
        _ => return Err(DecodeError::Unknown),
    };
    if input.0.is_empty() {
        Ok((call, event))
    } else {
        Err(DecodeError::Long)
    }
}

fn framed(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let begin = out.len();
    out.extend_from_slice(&[0; LENGTH_BYTES]);
    write(out);
    let length = out.len() - begin - LENGTH_BYTES;
    let length = u32::try_from(length).expect("every part of an entry is bounded");
    out[begin..begin + LENGTH_BYTES].copy_from_slice(&length.to_le_bytes());
}

pub(crate) fn put_u64(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_le_bytes());
}

/// As much of a text as `max` bytes hold, cut at a character.
pub(crate) fn cut(text: &str, max: usize) -> &str {
    &text[..text.floor_char_boundary(max)]
}

pub(crate) fn put_text(out: &mut Vec<u8>, text: &str, max: usize) {
    let text = cut(text, max);
    let length = u32::try_from(text.len()).expect("every text is bounded");
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(text.as_bytes());
}

fn put_clipped(out: &mut Vec<u8>, text: &str, max: usize) {
    put_text(out, text, max);
    put_option(out, (max < text.len()).then_some(text), |out, whole| {
        let whole_bytes = whole.len() as u64;
        let digest = Sha256::digest(whole).into();
        put_cut(
            out,
            Cut {
                whole_bytes,
                digest,
            },
        );
    });
}

fn put_cut(out: &mut Vec<u8>, cut: Cut) {
    put_u64(out, cut.whole_bytes);
    out.extend_from_slice(&cut.digest);
}

pub(crate) fn put_option<T>(
    out: &mut Vec<u8>,
    value: Option<T>,
    put: impl FnOnce(&mut Vec<u8>, T),
) {
    out.push(u8::from(value.is_some()));
    if let Some(value) = value {
        put(out, value);
    }
}

/// Rest of an entry that is still to be read.
pub(crate) struct Input<'a>(pub(crate) &'a [u8]);

impl Input<'_> {
    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (head, tail) = self.0.split_first_chunk().ok_or(DecodeError::Short)?;
        self.0 = tail;
        Ok(*head)
    }

    pub(crate) fn byte(&mut self) -> Result<u8, DecodeError> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, DecodeError> {
        self.array().map(u64::from_le_bytes)
    }

    pub(crate) fn flag(&mut self) -> Result<bool, DecodeError> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(DecodeError::Unknown),
        }
    }

    pub(crate) fn text(&mut self) -> Result<String, DecodeError> {
        let length = u32::from_le_bytes(self.array()?) as usize;
        let (text, tail) = self.0.split_at_checked(length).ok_or(DecodeError::Short)?;
        self.0 = tail;
        std::str::from_utf8(text)
            .map(str::to_owned)
            .map_err(|_| DecodeError::NotText)
    }

    pub(crate) fn option<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<Option<T>, DecodeError> {
        if self.flag()? {
            read(self).map(Some)
        } else {
            Ok(None)
        }
    }

    fn clipped(&mut self) -> Result<Clipped, DecodeError> {
        let text = self.text()?;
        let cut = self.option(Self::cut)?;
        Ok(Clipped { text, cut })
    }

    fn cut(&mut self) -> Result<Cut, DecodeError> {
        Ok(Cut {
            whole_bytes: self.u64()?,
            digest: self.array::<{ size_of::<Digest>() }>()?,
        })
    }

    fn started(&mut self) -> Result<Started, DecodeError> {
        let (at_us, policy_version, estimated_cost_micros) =
            (self.u64()?, self.u64()?, self.u64()?);
        let kind = match self.byte()? {
            0 => Kind::Tool,
            1 => Kind::Resource,
            2 => Kind::Other,
            _ => return Err(DecodeError::Unknown),
        };
        // The fields of a struct expression are read in the order they are written here.
        Ok(Started {
            at_us,
            policy_version,
            estimated_cost_micros,
            kind,
            principal: self.text()?,
            capability: self.text()?,
            request_id: self.text()?,
            method: self.text()?,
            transport: self.text()?,
            protocol_version: self.text()?,
            client_label: self.option(Self::text)?,
            session: self.option(Self::text)?,
            trace_id: self.option(Self::text)?,
            arguments: self.clipped()?,
            arguments_digest: self.option(Self::array)?,
            approval: None,
            idempotency_key: None,
            key_until_us: None,
            definition_digest: None,
            task: None,
            replay_of: None,
            via: None,
        })
    }

    fn started_2(&mut self) -> Result<Started, DecodeError> {
        let first = self.started()?;
        Ok(Started {
            approval: self.option(Self::uuid)?.map(ApprovalId),
            idempotency_key: self.option(Self::text)?,
            definition_digest: self.option(Self::array)?,
            task: self.option(Self::text)?,
            replay_of: self.option(Self::uuid)?.map(CallId),
            ..first
        })
    }

    fn noted(&mut self) -> Result<Noted, DecodeError> {
        Ok(Noted {
            at_us: self.u64()?,
            policy_version: self.u64()?,
            kind: NoteKind::named(self.text()?),
            actor: self.text()?,
            subject: self.text()?,
            detail: self.clipped()?,
        })
    }

    pub(crate) fn uuid(&mut self) -> Result<Uuid, DecodeError> {
        self.array().map(Uuid::from_bytes)
    }

    fn ended(&mut self) -> Result<Ended, DecodeError> {
        Ok(Ended {
            duration_us: self.u64()?,
            cost_micros: self.u64()?,
            is_error: self.flag()?,
            outcome: match self.byte()? {
                0 => Outcome::Succeeded,
                1 => Outcome::Failed,
                2 => Outcome::Denied {
                    reason: self.text()?,
                },
                3 => Outcome::Invalid,
                4 => Outcome::TimedOut,
                5 => Outcome::Cancelled,
                6 => Outcome::Abandoned,
                7 => Outcome::Unknown,
                _ => return Err(DecodeError::Unknown),
            },
            error_code: self.option(|input| input.array().map(i32::from_le_bytes))?,
            message: self.option(Self::text)?,
            result: self.clipped()?,
            whole: None,
            kept: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn decoded(body: &[u8]) -> Vec<(CallId, Event)> {
        split(body)
            .map(|entry| decode(entry.unwrap().1).unwrap())
            .collect()
    }

    #[test]
    fn long_texts_are_cut_at_a_character_and_leave_a_digest() {
        let call = CallId::new(0);
        let whole = "é".repeat(MAX_ARGUMENTS_BYTES);
        let long_name = "x".repeat(MAX_TEXT_BYTES + 1);
        let mut body = Vec::new();
        let start = Start {
            arguments: &whole[..whole.len() - 2],
            ..Start::new(call, 1, &long_name, Kind::Other, "é")
        };
        encode_start(&start, &mut body);
        encode_start(
            &Start {
                arguments: &whole[..MAX_ARGUMENTS_BYTES],
                ..start
            },
            &mut body,
        );
        let (Event::Started(cut), Event::Started(kept)) =
            (decoded(&body).remove(0).1, decoded(&body).remove(1).1)
        else {
            panic!("two starts went in");
        };
        assert_eq!(cut.principal.len(), MAX_TEXT_BYTES);
        assert_eq!(cut.arguments.text, whole[..MAX_ARGUMENTS_BYTES]);
        let known = cut.arguments.cut.unwrap();
        assert_eq!(known.whole_bytes, whole.len() as u64 - 2);
        assert_eq!(known.digest[..], Sha256::digest(start.arguments)[..]);
        assert_eq!(kept.arguments.cut, None);
    }

    fn outcome() -> impl Strategy<Value = Outcome<String>> {
        prop_oneof![
            Just(Outcome::Succeeded),
            Just(Outcome::Failed),
            ".{0,9}".prop_map(|reason| Outcome::Denied { reason }),
            Just(Outcome::Invalid),
            Just(Outcome::TimedOut),
            Just(Outcome::Cancelled),
            Just(Outcome::Abandoned),
            Just(Outcome::Unknown),
        ]
    }

    fn borrowed(outcome: &Outcome<String>) -> Outcome<&str> {
        match outcome {
            Outcome::Denied { reason } => Outcome::Denied { reason },
            Outcome::Succeeded => Outcome::Succeeded,
            Outcome::Failed => Outcome::Failed,
            Outcome::Invalid => Outcome::Invalid,
            Outcome::TimedOut => Outcome::TimedOut,
            Outcome::Cancelled => Outcome::Cancelled,
            Outcome::Abandoned => Outcome::Abandoned,
            Outcome::Unknown => Outcome::Unknown,
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(
            texts in proptest::array::uniform7(".{0,20}"),
            options in proptest::array::uniform6(proptest::option::of(".{0,20}")),
            numbers: [u64; 5],
            digest: Option<Digest>,
            definition: Option<Digest>,
            ids: [Option<u128>; 2],
            code: Option<i32>,
            is_error: bool,
            via in proptest::option::of(".{0,9}"),
            whole_bytes: Option<u64>,
            keeps: bool,
            outcome in outcome(),
            kind in prop_oneof![Just(Kind::Tool), Just(Kind::Resource), Just(Kind::Other)],
        ) {
            let call = CallId::new(numbers[0]);
            let start = Start {
                call, at_us: numbers[0], principal: &texts[0], client_label: options[0].as_deref(),
                kind, capability: &texts[1], request_id: &texts[2], method: &texts[3],
                transport: &texts[4], protocol_version: &texts[5], session: options[1].as_deref(),
                trace_id: options[2].as_deref(), policy_version: numbers[1], arguments: &texts[6],
                arguments_digest: digest, estimated_cost_micros: numbers[2],
                approval: ids[0].map(|id| ApprovalId(Uuid::from_u128(id))),
                idempotency_key: options[4].as_deref(), key_until_us: code.map(|_| numbers[4]), definition_digest: definition,
                task: options[5].as_deref(), replay_of: ids[1].map(|id| CallId(Uuid::from_u128(id))),
                via: via.as_deref(),
            };
            let whole = whole_bytes.map(|whole_bytes| Cut { whole_bytes, digest: [7; 32] });
            let kept = digest.filter(|_| keeps);
            let end = End {
                outcome: borrowed(&outcome), error_code: code, message: options[3].as_deref(),
                is_error, result: &texts[0], whole, duration_us: numbers[3], cost_micros: numbers[4],
            };
            let mut body = Vec::new();
            encode_start(&start, &mut body);
            encode_end_keeping(call, &end, kept, &mut body);
            let note = Note {
                at_us: numbers[1], kind: NoteKind::named(texts[0].clone()), actor: &texts[1],
                subject: &texts[2], policy_version: numbers[2], detail: &texts[3],
            };
            encode_note(call, &note, &mut body);
            let clipped = |text: &String| Clipped { text: text.clone(), cut: None };
            let [t0, t1, t2, t3, t4, t5, t6] = texts.clone();
            let [o0, o1, o2, o3, o4, o5] = options.clone();
            prop_assert_eq!(decoded(&body), vec![
                (call, Event::Started(Started {
                    at_us: numbers[0], principal: t0, client_label: o0, kind, capability: t1,
                    request_id: t2, method: t3, transport: t4, protocol_version: t5, session: o1,
                    trace_id: o2, policy_version: numbers[1], arguments: clipped(&t6),
                    arguments_digest: digest, estimated_cost_micros: numbers[2],
                    approval: start.approval, idempotency_key: o4, key_until_us: start.key_until_us, definition_digest: definition,
                    task: o5, replay_of: start.replay_of, via,
                })),
                (call, Event::Ended(Ended {
                    outcome, error_code: code, message: o3, is_error, result: clipped(&texts[0]),
                    duration_us: numbers[3], cost_micros: numbers[4], whole, kept,
                })),
                (call, Event::Noted(Noted {
                    at_us: numbers[1], kind: note.kind.clone(), actor: texts[1].clone(),
                    subject: texts[2].clone(), policy_version: numbers[2], detail: clipped(&texts[3]),
                })),
            ]);
            // No part of it can be mistaken for the whole.
            let ends: Vec<usize> = split(&body)
                .map(|entry| entry.map(|(begin, entry)| begin + entry.len()).unwrap())
                .collect();
            for length in 1..body.len() {
                let whole = split(&body[..length]).all(|entry| entry.is_ok_and(|(_, entry)| decode(entry).is_ok()));
                prop_assert_eq!(whole, ends.contains(&length));
            }
        }

        #[test]
        fn no_bytes_are_too_strange(body: Vec<u8>) {
            for entry in split(&body) {
                let _ = entry.map(|(_, entry)| decode(entry));
            }
            let _ = decode(&body);
        }
    }
}
