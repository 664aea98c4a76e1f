//! Bytes that nobody chose, through the decoder.
#![no_main]

#[path = "../properties/decode.rs"]
mod decode;

libfuzzer_sys::fuzz_target!(|frame: &[u8]| decode::holds(frame));
