//! Ledgers of many days, and all that can be asked of one.

use ledger::{
    Bucket, CallId, CallRecord, Checkpoints, CommitHook, Counts, End, Filter, Kind, Note,
    NoteFilter, NoteKind, NoteRecord, Noted, OpenCall, Outcome, ReadLedger, Recorder, Start,
    Statistics, StatisticsQuery, StoredGroup, Tail, Usage,
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

pub(crate) const DAY_US: u64 = 24 * 60 * 60 * 1_000_000;

/// Days over which the calls are spread; the last of them is today.
pub(crate) const DAYS: u64 = 20;

pub(crate) const CALLS: u64 = 3_000;

/// Checkpoints that are made at the times of the calls.
pub(crate) struct Dated(pub(crate) Checkpoints, pub(crate) Arc<AtomicU64>);

impl CommitHook for Dated {
    fn opening(&mut self, tail: Tail, now_us: u64) -> Option<Noted> {
        self.0.opening(tail, self.at(now_us))
    }

    fn stored(&mut self, tail: Tail, now_us: u64) -> Option<Noted> {
        self.0.stored(tail, self.at(now_us))
    }

    fn closing(&mut self, tail: Tail, now_us: u64) -> Option<Noted> {
        self.0.closing(tail, self.at(now_us))
    }
}

impl Dated {
    fn at(&self, now_us: u64) -> u64 {
        match self.1.load(Ordering::Relaxed) {
            0 => now_us,
            at_us => at_us,
        }
    }
}

/// Makes the calls; three are open for ever.
pub(crate) async fn write_calls(
    recorder: &Recorder,
    now_us: u64,
    clock: &AtomicU64,
) -> Vec<OpenCall> {
    let begin_us = (now_us / DAY_US + 1 - DAYS) * DAY_US;
    let mut open: Vec<(u64, OpenCall)> = Vec::new();
    let mut never = Vec::new();
    for number in 0..CALLS {
        let at_us = begin_us + (now_us - begin_us) / CALLS * number;
        clock.store(at_us, Ordering::Relaxed);
        let principal = format!("client-{}", number % 7);
        let capability = format!("tool/number-{}", number % 5);
        let trace = format!("{number:032x}");
        let start = Start {
            estimated_cost_micros: 900,
            request_id: "7",
            trace_id: number.is_multiple_of(3).then_some(&*trace),
            arguments: r#"{"account":"DE02120300000000202051"}"#,
            ..Start::new(
                CallId::new(at_us),
                at_us,
                &principal,
                Kind::Tool,
                &capability,
            )
        };
        if number.is_multiple_of(11) {
            let end = End::new(Outcome::Denied { reason: "budget" });
            recorder.refuse(&start, &end).await.unwrap();
            continue;
        }
        let call = recorder.begin(&start).await.unwrap();
        // Most end soon, some much later, and a few not at all.
        let length = match number % 100 {
            1 => 700,
            2..10 => 60,
            _ => number % 4,
        };
        if number % 1_000 == 999 {
            never.push(call);
        } else {
            open.push((number + length, call));
        }
        let (ending, going_on) = open.into_iter().partition(|(until, _)| *until <= number);
        open = going_on;
        for (_, call) in ending as Vec<(u64, OpenCall)> {
            end(call, number);
        }
        if number.is_multiple_of(250) {
            let kind = NoteKind::POLICY_CHANGED;
            recorder.note(&Note::new(at_us, kind)).await.unwrap();
        }
        if number.is_multiple_of(10) {
            // Groups of several entries, and of one.
            tokio::time::sleep(Duration::from_micros(300)).await;
        }
    }
    for (_, call) in open {
        end(call, 1);
    }
    never
}

fn end(call: OpenCall, number: u64) {
    let outcome = match number % 20 {
        0 => Outcome::Failed,
        1 => Outcome::TimedOut,
        _ => Outcome::Succeeded,
    };
    let end = End {
        result: r#"[{"type":"text","text":"paid"}]"#,
        cost_micros: 100 + number,
        duration_us: 1_000 * (number % 300),
        ..End::new(outcome)
    };
    // It is stored with what comes next.
    drop(call.finish(&end));
}

/// All that can be asked of a ledger.
#[derive(Debug, PartialEq)]
pub(crate) struct Answers {
    pub(crate) calls: Vec<CallRecord>,
    pub(crate) pages: Vec<CallId>,
    pub(crate) open: Vec<CallRecord>,
    pub(crate) notes: Vec<NoteRecord>,
    pub(crate) entries: Vec<StoredGroup>,
    pub(crate) statistics: Vec<Vec<Statistics>>,
    pub(crate) usage: Vec<Vec<Usage>>,
    pub(crate) counts: Counts,
}

impl Answers {
    pub(crate) fn of(reader: &mut dyn ReadLedger, now_us: u64) -> Self {
        let calls = reader.recent(usize::MAX, Filter::default()).unwrap();
        let mut pages = Vec::new();
        let mut filter = Filter {
            principal: Some("client-3"),
            outcome: Some("failed"),
            ..Filter::default()
        };
        loop {
            let page = reader.recent(7, filter).unwrap();
            pages.extend(page.iter().map(|it| it.call));
            match page.last() {
                Some(last) => filter.before = Some(last.cursor()),
                None => break,
            }
        }
        let mut entries: Vec<StoredGroup> = Vec::new();
        let mut from = 0;
        loop {
            let page = reader.groups(from).unwrap();
            let Some(last) = page.last() else { break };
            from = last.first_sequence + 1;
            entries.extend(page);
        }
        let query = |since_us, until_us, bucket, principal| StatisticsQuery {
            principal,
            capability: None,
            since_us,
            until_us,
            bucket,
        };
        // Days, and hours that are no whole days, in what is archived and in what is not.
        let days_ago = |days| now_us / DAY_US * DAY_US - days * DAY_US;
        let (first, last) = (days_ago(15), days_ago(1));
        let statistics = [
            query(0, u64::MAX, Bucket::Day, None),
            query(0, u64::MAX, Bucket::Whole, None),
            query(first + DAY_US / 3, last + DAY_US / 7, Bucket::Day, None),
            query(
                first + DAY_US / 3,
                first + DAY_US / 2,
                Bucket::Whole,
                Some("client-1"),
            ),
        ];
        let statistics = statistics.map(|query| reader.statistics(query).unwrap());
        // Months of Shanghai begin at 16:00 UTC, and those of Kathmandu at 18:15.
        let usage = [
            (0, Duration::MAX),
            (first, Duration::MAX),
            (first + 16 * DAY_US / 24, Duration::MAX),
            (first + 73 * DAY_US / 96, Duration::MAX),
            (now_us - DAY_US, Duration::from_secs(60)),
        ];
        let usage =
            usage.map(|(since, bucket)| reader.usage_between(since..u64::MAX, bucket).unwrap());
        Self {
            pages,
            open: reader.open_calls().unwrap(),
            notes: reader.notes(usize::MAX, NoteFilter::default()).unwrap(),
            entries,
            statistics: statistics.into(),
            usage: usage.into(),
            counts: reader.count().unwrap(),
            calls,
        }
    }
}

#[track_caller]
pub(crate) fn assert_same(found: &Answers, expected: &Answers, when: &str) {
    assert_eq!(found.counts, expected.counts, "{when}");
    assert_eq!(found.usage, expected.usage, "{when}");
    assert_eq!(found.statistics, expected.statistics, "{when}");
    assert_eq!(found.pages, expected.pages, "{when}");
    assert_eq!(found.open, expected.open, "{when}");
    assert_eq!(found.notes, expected.notes, "{when}");
    assert!(found.entries == expected.entries, "{when}: other entries");
    for (found, expected) in found.calls.iter().zip(&expected.calls) {
        assert_eq!(found, expected, "{when}");
    }
    assert!(found == expected, "{when}: other calls");
}
