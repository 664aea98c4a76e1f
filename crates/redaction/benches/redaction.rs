//! Cost of redaction for a governed call whose arguments or result contain no secret.
#![allow(missing_docs, reason = "criterion makes a public function")]

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use redaction::{Redactor, Spec, canonical_digest};
use sha2::{Digest, Sha256};
use std::hint::black_box;

/// About a hundred bytes.
const SMALL: &str = r#"{"order":"A-1001","amount":12,"to":["anna@example.com"],"note":"as agreed on the phone","ok":true}"#;

/// About 1 KiB: lines of an order, some text and a few numbers.
fn large() -> String {
    let line = |index: u32| {
        format!(
            r#"{{"article":"chair, oak, {index}","count":{index},"price":129.95,"tags":["wood","indoor"]}}"#
        )
    };
    let lines: Vec<String> = (1..=8).map(line).collect();
    format!(
        r#"{{"customer":"Anna Schmidt","lines":[{}],"note":"{}","urgent":false}}"#,
        lines.join(","),
        "Please deliver in the afternoon, when somebody is at home. ".repeat(6)
    )
}

fn redaction(criterion: &mut Criterion) {
    let redactor = Redactor::new(&Spec::default(), [7; 32]).expect("the built-in list can be used");
    let large = large();
    // Written another way than the canonical one.
    let spaced = large.replace("\":", "\": ").replace("urgent", "again");
    for (name, text) in [
        ("100 B", SMALL),
        ("1 KiB", &large),
        ("1 KiB, not canonical", &spaced),
    ] {
        let mut group = criterion.benchmark_group(name);
        group.throughput(Throughput::Bytes(text.len() as u64));
        group.bench_function("json", |bencher| {
            bencher.iter(|| redactor.json("tool/order", black_box(text)));
        });
        group.bench_function("canonical_digest", |bencher| {
            bencher.iter(|| canonical_digest(black_box(text)).is_ok());
        });
        group.bench_function("SHA-256 of the bytes", |bencher| {
            bencher.iter(|| Sha256::digest(black_box(text)));
        });
        group.finish();
    }
}

/// Cost of looking for known values: without any, with a few and with many. They stay known, so the order counts.
fn known(criterion: &mut Criterion) {
    let large = large();
    let mut group = criterion.benchmark_group("known values in 1 KiB");
    group.throughput(Throughput::Bytes(large.len() as u64));
    for count in [0, 3, 300] {
        let values: Vec<String> = (0..count)
            .map(|it| format!("ghp_{it:04}abcdefghijklmnop"))
            .collect();
        redaction::know(values.iter().map(String::as_str));
        group.bench_function(format!("{count}"), |bencher| {
            bencher.iter(|| redaction::without_known_json(black_box(&large)));
        });
    }
    group.finish();
}

criterion_group!(benches, redaction, known);
criterion_main!(benches);
