//! The inputs that fuzzing starts from, and those it once refuted a claim with.

use std::{fs, path::Path};

#[path = "../../../fuzz/properties/decode.rs"]
mod decode;

/// Runs each file of a corpus through a claim.
fn replay(corpus: &str, holds: impl Fn(&[u8]) + std::panic::RefUnwindSafe) {
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
    assert!(count >= 20, "only {count} inputs");
}

#[test]
fn decoding_holds_its_claims_on_the_corpus() {
    replay("decode", decode::holds);
}
