//! JSON that nobody chose, through everything that reads what a server says.
#![no_main]

#[path = "../properties/client.rs"]
mod client;

libfuzzer_sys::fuzz_target!(|said: &[u8]| {
    client::holds(said);
});
