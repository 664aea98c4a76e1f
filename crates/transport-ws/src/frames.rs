//! Payload of a client's frames, by their heads (RFC 6455 §5.2).

use mcp_service::Allowance;

/// The most bytes of a head: two, eight of a length, and the mask.
const MAX_HEAD: usize = 14;

/// A piece of a message that carries less than this costs as much as one that carries nothing.
const LITTLE: u64 = 32;

const FINAL: u8 = 0x80;
const CONTROL: u8 = 0x08;
const CONTINUES: u8 = 0;

/// Reads the heads of frames in what a client sends, and lets it send only so many that carry
/// nothing: the library answers pings by itself, and puts pieces together without end.
#[derive(Debug)]
pub(crate) struct Frames {
    head: [u8; MAX_HEAD],
    filled: usize,
    /// Bytes of payload still to come.
    payload: u64,
    allowance: Allowance,
}

impl Frames {
    pub(crate) fn new(allowance: Allowance) -> Self {
        Self {
            head: [0; MAX_HEAD],
            filled: 0,
            payload: 0,
            allowance,
        }
    }

    /// Goes through what has come; whether it was not too much.
    pub(crate) fn pass(&mut self, mut bytes: &[u8]) -> bool {
        while let Some((first, rest)) = bytes.split_first() {
            if 0 < self.payload {
                let length =
                    usize::try_from(self.payload).map_or(bytes.len(), |it| it.min(bytes.len()));
                self.payload -= length as u64;
                bytes = &bytes[length..];
                continue;
            }
            self.head[self.filled] = *first;
            self.filled += 1;
            bytes = rest;
            if self.filled == self.head_length() {
                self.payload = self.payload_length();
                self.filled = 0;
                if !self.is_paid() {
                    return false;
                }
            }
        }
        true
    }

    fn head_length(&self) -> usize {
        if self.filled < 2 {
            return MAX_HEAD;
        }
        let length = match self.head[1] & 0x7f {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        let mask = if self.head[1] & 0x80 == 0 { 0 } else { 4 };
        2 + length + mask
    }

    fn payload_length(&self) -> u64 {
        let longer = match self.head[1] & 0x7f {
            126 => &self.head[2..4],
            127 => &self.head[2..10],
            length => return length.into(),
        };
        longer
            .iter()
            .fold(0, |all, byte| (all << 8) | u64::from(*byte))
    }

    /// True if a frame may be sent: one of a message with enough payload, or one within the allowance.
    fn is_paid(&mut self) -> bool {
        let (is_final, opcode) = (self.head[0] & FINAL != 0, self.head[0] & 0x0f);
        let is_piece = !is_final || opcode == CONTINUES;
        let carries_nothing = opcode & CONTROL != 0 || (is_piece && self.payload < LITTLE);
        !carries_nothing || self.allowance.spend(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(of: &[(u8, usize)]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (first, length) in of {
            bytes.push(*first);
            match *length {
                0..=125 => bytes.push(0x80 | u8::try_from(*length).unwrap()),
                126..=0xffff => {
                    bytes.push(0xfe);
                    bytes.extend(u16::try_from(*length).unwrap().to_be_bytes());
                }
                _ => {
                    bytes.push(0xff);
                    bytes.extend((*length as u64).to_be_bytes());
                }
            }
            bytes.extend([1, 2, 3, 4]);
            bytes.resize(bytes.len() + length, 0x89);
        }
        bytes
    }

    #[test]
    fn control_frames_are_counted_however_the_bytes_are_split() {
        // Whole messages, and pieces that are large, are not counted.
        let free = [(0x81, 0), (0x81, 125), (0x01, 70_000), (0x80, 300)];
        let paid = [(0x89, 0), (0x8a, 125), (0x01, 1), (0x00, 0), (0x80, 31)];
        for at_once in [1, 2, 7, 1 << 20] {
            let mut frames_of = Frames::new(Allowance::new(1));
            let mut pass = |of: &[(u8, usize)]| {
                let bytes = frames(of);
                let mut pieces = bytes.chunks(at_once);
                pieces.all(|piece| frames_of.pass(piece))
            };
            for _ in 0..5 {
                assert!(pass(&free));
            }
            assert!(pass(&paid) && pass(&paid), "ten at once");
            assert!(!pass(&paid), "and no more");
        }
    }
}
