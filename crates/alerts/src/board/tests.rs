use super::*;
use crate::Event;

/// Places for conditions that have a subject.
const CLIENTS: usize = MAX_CONDITIONS - KEPT;

fn at(seconds: u64) -> Moment {
    let uptime = Duration::from_secs(seconds);
    Moment {
        at: SystemTime::UNIX_EPOCH + uptime,
        uptime,
    }
}

fn wrong(subject: &str, stage: u32) -> Observation {
    Observation {
        condition: Condition::about(Event::ComponentFailed, subject),
        severity: Severity::Critical,
        stage,
        detail: format!("stage {stage}"),
    }
}

fn board(settle: u64, repeat: u64) -> Board {
    let repeat = Duration::from_secs(repeat);
    Board::new(Timing {
        settle: Duration::from_secs(settle),
        repeat: (!repeat.is_zero()).then_some(repeat),
    })
}

/// Looks once a second at what is wrong in each; what was told when.
fn told(mut board: Board, seconds: &[&[(&str, u32)]]) -> Vec<(usize, State, String)> {
    let mut all = Vec::new();
    for (second, observations) in seconds.iter().enumerate() {
        let observations = observations.iter();
        let observations = observations.map(|(subject, stage)| wrong(subject, *stage));
        for notice in board.look(at(second as u64), observations) {
            let subject = notice.condition.subject.unwrap();
            all.push((second, notice.state, subject.into()));
        }
    }
    all
}

#[test]
fn what_is_wrong_is_told_once_and_when_it_is_over() {
    use State::{Raised, Recovered};
    const A: &[(&str, u32)] = &[("a", 0)];
    const B: &[(&str, u32)] = &[("b", 0)];
    const BOTH: &[(&str, u32)] = &[("a", 0), ("b", 0)];
    let rows = [
        (0, vec![A, A, A], vec![(0, Raised, "a")]),
        (
            0,
            vec![A, &[], &[]],
            vec![(0, Raised, "a"), (1, Recovered, "a")],
        ),
        (2, vec![A, A, A, A], vec![(2, Raised, "a")]),
        // A moment is nothing.
        (2, vec![A, A, &[], &[], &[], A, A], vec![]),
        // What comes and goes all the time is.
        (2, vec![A, &[], A, &[], A], vec![(2, Raised, "a")]),
        // And is not over in between.
        (
            2,
            vec![A, A, A, &[], A, &[], &[], &[], &[]],
            vec![(2, Raised, "a"), (7, Recovered, "a")],
        ),
        (
            0,
            vec![A, BOTH, B],
            vec![(0, Raised, "a"), (1, Raised, "b"), (2, Recovered, "a")],
        ),
    ];
    for (settle, seconds, expected) in rows {
        let expected: Vec<_> = expected
            .into_iter()
            .map(|(second, state, subject)| (second, state, subject.to_owned()))
            .collect();
        assert_eq!(told(board(settle, 0), &seconds), expected, "{seconds:?}");
    }
}

#[test]
fn what_lasts_is_told_again_and_so_is_what_gets_worse() {
    let states = |repeat, seconds: &[&[(&str, u32)]]| {
        let told = told(board(0, repeat), seconds).into_iter();
        told.map(|(second, state, _)| (second, state))
            .collect::<Vec<_>>()
    };
    use State::{Raised, Repeated};
    const A: &[(&str, u32)] = &[("a", 0)];
    assert_eq!(
        states(2, &[A, A, A, A, A]),
        [(0, Raised), (2, Repeated), (4, Repeated)]
    );
    assert_eq!(
        states(0, &[&[("a", 1)], &[("a", 2)], &[("a", 1)], &[("a", 2)]]),
        [(0, Raised), (1, Raised)],
        "a stage is told once"
    );
}

#[test]
fn an_alert_keeps_its_name_and_its_beginning_until_it_is_over() {
    let mut board = board(0, 1);
    let mut notices = Vec::new();
    for (second, is_wrong) in [(0, true), (1, true), (2, false), (3, true)] {
        let observations = is_wrong.then(|| wrong("a", 0));
        notices.extend(board.look(at(second), observations));
    }
    let [raised, repeated, recovered, again] = notices.try_into().unwrap();
    assert_eq!(raised.alert, repeated.alert);
    assert_eq!(raised.alert, recovered.alert);
    assert_ne!(raised.alert, again.alert);
    assert_ne!(raised.id, repeated.id);
    assert_eq!(recovered.since, at(0).at);
    assert_eq!(recovered.at, at(2).at);
    assert_eq!(recovered.detail, "stage 0", "what it was about");
    assert_eq!(raised.condition.key(), again.condition.key());
}

#[test]
fn there_are_not_more_than_the_bound() {
    let mut board = board(0, 0);
    let names: Vec<String> = (0..=CLIENTS).map(|it| it.to_string()).collect();
    let all = || names.iter().map(|name| wrong(name, 0));
    assert_eq!(board.look(at(0), all()).len(), CLIENTS);
    assert_eq!((board.raised(), board.untold()), (CLIENTS, 1));
    assert_eq!(board.look(at(1), all()).len(), 0);
    let fewer = board.look(at(2), all().skip(1));
    assert_eq!(
        fewer.len(),
        1,
        "one is over, and its place is free after that"
    );
    assert_eq!(board.look(at(3), all().skip(1)).len(), 1);
    assert_eq!(board.untold(), 0);
}

#[test]
fn what_is_wrong_with_many_clients_leaves_room_for_what_is_wrong_with_the_server() {
    let mut board = board(0, 0);
    let clients = (0..MAX_CONDITIONS).map(|number| wrong(&number.to_string(), 0));
    assert_eq!(board.look(at(0), clients).len(), MAX_CONDITIONS - KEPT);
    assert_eq!(board.untold, KEPT);
    let ledger = Observation {
        condition: Condition::of(Event::LedgerUnavailable),
        ..wrong("", 0)
    };
    let notices = board.look(at(0), [ledger]);
    let mut events = notices.iter().map(|notice| notice.condition.event);
    assert!(events.any(|event| event == Event::LedgerUnavailable));
}

#[test]
fn what_gets_better_and_as_bad_again_is_told_once() {
    let stages = [2, 1, 2, 3].map(|stage| [("a", stage)]);
    let seconds: Vec<&[_]> = stages.iter().map(|it| it.as_slice()).collect();
    let told = told(board(0, 0), &seconds);
    let when: Vec<_> = told
        .iter()
        .map(|(second, state, _)| (*second, *state))
        .collect();
    assert_eq!(when, [(0, State::Raised), (3, State::Raised)]);
}
