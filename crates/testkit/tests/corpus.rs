//! The inputs that fuzzing starts from, and those it once refuted a claim with.

use std::{fs, path::Path};

#[path = "../../../fuzz/properties/decode.rs"]
mod decode;

#[path = "../../../fuzz/properties/client.rs"]
mod client;

/// Runs each file of a corpus through a claim; there are at least `least` of them.
fn replay(corpus: &str, least: usize, holds: impl Fn(&[u8]) + std::panic::RefUnwindSafe) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz/corpus")
        .join(corpus);
    let mut count = 0;
    for entry in fs::read_dir(&corpus).expect("the corpus exists") {
        let path = entry.expect("a directory can be read to its end").path();
        let input = fs::read(&path).expect("the input can be read");
        let judged = std::panic::catch_unwind(|| holds(&input));
        assert!(judged.is_ok(), "{} refutes the claim", path.display());
        count += 1;
    }
    assert!(count >= least, "only {count} inputs");
}

#[test]
fn decoding_holds_its_claims_on_the_corpus() {
    replay("decode", 20, decode::holds);
}

#[test]
fn reading_what_servers_say_holds_its_claims_on_the_corpus() {
    replay("client", 17, |said| {
        // A seed that nothing understands would lead nowhere.
        assert!(0 < client::holds(said), "nothing understands it");
    });
}
