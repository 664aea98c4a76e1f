//! Limits hold one by one, and a refusal says why and when to come back.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod common;

use common::{DAY, FEBRUARY, JANUARY, MINUTE, SECOND, admit, ask, governor, ready, spec};
use governance::{
    Ask, CapabilityFacts, Crowd, Ending, Governor, Kind, MemoryQuota, Micros, Policy, PolicySpec,
    Quota, RateLimits, Reason, Rules, Seed, Timestamp,
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

fn millis(wait: Option<Duration>) -> u64 {
    u64::try_from(wait.unwrap().as_millis()).unwrap()
}

#[test]
fn every_limit_has_its_reason_and_the_wait_is_exact() {
    let none = Quota::default();
    let all = Quota {
        monthly_budget: Some(Micros(29)),
        max_calls_per_minute: Some(2),
        max_calls_per_day: Some(2),
        ..none
    };
    let rows = [
        (
            Quota {
                max_calls_per_minute: Some(2),
                ..none
            },
            Reason::RateMinute,
        ),
        (
            Quota {
                max_calls_per_day: Some(2),
                ..none
            },
            Reason::RateDay,
        ),
        (
            Quota {
                monthly_budget: Some(Micros(29)),
                ..none
            },
            Reason::Budget,
        ),
        // The one that takes longest is named, and waiting for it is waiting for all.
        (all, Reason::Budget),
        (
            Quota {
                monthly_budget: None,
                ..all
            },
            Reason::RateDay,
        ),
    ];
    for (quota, reason) in rows {
        for offset in [0, 1, 999, 1_000, 59_999, 299_999] {
            let now = JANUARY + offset;
            let governor = governor(spec(quota));
            for _ in 0..2 {
                let _ = admit(&governor, ask("a", now)).unwrap();
            }
            let denial = admit(&governor, ask("a", now)).unwrap_err();
            assert_eq!(denial.reason, reason, "{quota:?}");
            assert!(denial.is_retryable());
            let wait = millis(denial.retry_after);
            let early = admit(&governor, ask("a", now + wait - 1)).unwrap_err();
            assert_eq!(
                early.retry_after,
                Some(Duration::from_millis(1)),
                "{quota:?}"
            );
            assert!(
                admit(&governor, ask("a", now + wait)).is_ok(),
                "{quota:?} {offset}"
            );
            assert!(
                admit(&governor, ask("b", now)).is_ok(),
                "others have their own"
            );
        }
    }
}

#[test]
fn what_came_late_in_its_bucket_counts_for_the_whole_window() {
    let none = Quota::default();
    let rows = [
        (
            Quota {
                max_calls_per_minute: Some(1),
                ..none
            },
            MINUTE,
            SECOND,
        ),
        (
            Quota {
                max_calls_per_day: Some(1),
                ..none
            },
            DAY,
            5 * MINUTE,
        ),
    ];
    for (quota, window, width) in rows {
        for late in [0, 1, width / 2, width - 1] {
            let (governor, now) = (governor(spec(quota)), JANUARY + late);
            let _ = admit(&governor, ask("a", now)).unwrap();
            assert!(
                admit(&governor, ask("a", now + window - 1)).is_err(),
                "{window} {late}"
            );
            assert!(
                admit(&governor, ask("a", now + window + width)).is_ok(),
                "{window} {late}"
            );
        }
    }
}

#[test]
fn what_waiting_cannot_help_has_no_time_to_wait() {
    let none = Quota::default();
    let never = Some(0);
    let rows = [
        (
            Quota {
                max_calls_per_minute: never,
                ..none
            },
            Reason::RateMinute,
        ),
        (
            Quota {
                max_calls_per_day: never,
                max_calls_per_minute: never,
                ..none
            },
            Reason::RateDay,
        ),
        (
            Quota {
                monthly_budget: Some(Micros(9)),
                ..none
            },
            Reason::Budget,
        ),
        (
            Quota {
                max_cost_per_call: Some(Micros(9)),
                ..none
            },
            Reason::CostPerCall,
        ),
    ];
    for (quota, reason) in rows {
        let denial = admit(&governor(spec(quota)), ask("a", JANUARY)).unwrap_err();
        assert_eq!((denial.reason, denial.retry_after), (reason, None));
        assert!(!denial.is_retryable());
    }
}

#[test]
fn a_stranger_uses_up_nothing_and_the_order_is_kept() {
    let rules = Rules {
        hidden: vec!["tool/secret".to_owned()],
        deny: vec!["tool/admin*".to_owned()],
        quota: Quota {
            max_calls_per_minute: Some(1),
            ..Quota::default()
        },
        ..Rules::default()
    };
    let governor = governor(PolicySpec {
        default: rules,
        ..PolicySpec::default()
    });
    let of = |capability| Ask {
        capability,
        ..ask("a", JANUARY)
    };
    for (capability, reason) in [
        ("tool/secret", Reason::NotVisible),
        ("tool/admin.drop", Reason::Permission),
    ] {
        assert_eq!(admit(&governor, of(capability)).unwrap_err().reason, reason);
    }
    assert_eq!(governor.quota().tracked_principals(), 0);
    let permit = admit(&governor, of("tool/x")).unwrap();
    assert_eq!(permit.remaining().minute, Some(0));
    assert_eq!(
        admit(&governor, of("tool/x")).unwrap_err().reason,
        Reason::RateMinute
    );
    assert_eq!(
        admit(&governor, of("tool/admin.drop")).unwrap_err().reason,
        Reason::Permission
    );
}

#[test]
fn a_refusal_by_one_limit_leaves_the_others_alone() {
    let mut spec = spec(Quota {
        monthly_budget: Some(Micros(100)),
        max_calls_per_minute: Some(10),
        ..Quota::default()
    });
    let limits = RateLimits {
        per_minute: None,
        per_day: Some(1),
    };
    let facts = CapabilityFacts {
        estimated_cost: Some(Micros(7)),
        limits,
        ..CapabilityFacts::default()
    };
    spec.capabilities.insert("tool/rare".to_owned(), facts);
    let governor = governor(spec);
    let rare = Ask {
        capability: "tool/rare",
        estimate: None,
        ..ask("a", JANUARY)
    };
    let _ = admit(&governor, rare).unwrap();
    for _ in 0..5 {
        let denial = admit(&governor, rare).unwrap_err();
        assert_eq!(denial.reason, Reason::RateDay);
        assert_eq!(denial.remaining.day, Some(0));
    }
    let left = ready(governor.remaining("a", Kind::Tool, Timestamp(JANUARY))).unwrap();
    assert_eq!(
        (left.budget, left.minute, left.day),
        (Some(Micros(93)), Some(9), None)
    );
    let _ = admit(&governor, ask("a", JANUARY)).unwrap();
    let _ = admit(
        &governor,
        Ask {
            principal: "b",
            ..rare
        },
    )
    .unwrap();
    let hints = governor.policy().hints("a", "tool/rare", Kind::Tool);
    assert_eq!(
        (hints.max_calls_per_minute, hints.max_calls_per_day),
        (Some(10), Some(1))
    );
    assert_eq!(hints.estimated_cost, Micros(7));
}

#[test]
fn settling_corrects_the_cost_and_dropping_keeps_the_estimate() {
    let quota = Quota {
        monthly_budget: Some(Micros(100)),
        ..Quota::default()
    };
    let governor = governor(spec(quota));
    let left = || {
        ready(governor.remaining("a", Kind::Tool, Timestamp(JANUARY)))
            .unwrap()
            .budget
    };
    let permit = admit(&governor, ask("a", JANUARY)).unwrap();
    assert_eq!((permit.reserved(), left()), (Micros(10), Some(Micros(90))));
    let settlement = permit.settle(Micros(4), Ending::Succeeded, Timestamp(JANUARY));
    assert_eq!(settlement.remaining.budget, left());
    assert_eq!(left(), Some(Micros(96)));
    drop(admit(&governor, ask("a", JANUARY)).unwrap());
    assert_eq!(left(), Some(Micros(86)));
    let settlement = admit(&governor, ask("a", JANUARY))
        .unwrap()
        .settle_at_zero();
    assert_eq!((settlement.cost, left()), (Micros::ZERO, Some(Micros(86))));
    // Dearer than expected: it has happened, so it counts, and nothing wraps around.
    let _ = admit(&governor, ask("a", JANUARY)).unwrap().settle(
        Micros::MAX,
        Ending::Failed,
        Timestamp(JANUARY),
    );
    assert_eq!(left(), Some(Micros::ZERO));
    assert_eq!(
        admit(&governor, ask("a", JANUARY)).unwrap_err().reason,
        Reason::Budget
    );
    let declared_free = |capability| Ask {
        estimate: Some(Micros::ZERO),
        capability,
        ..ask("a", JANUARY)
    };
    assert!(
        admit(&governor, declared_free("tool/free")).is_ok(),
        "what costs nothing needs no budget"
    );
    let denial = admit(&governor, declared_free(ask("a", JANUARY).capability)).unwrap_err();
    assert_eq!(denial.reason, Reason::Budget, "it is known not to be free");
    let usage = ready(governor.usage(Timestamp(JANUARY))).unwrap();
    assert_eq!(
        (usage.len(), usage[0].calls_day, usage[0].calls_total),
        (1, 5, 5)
    );
}

#[test]
fn an_estimate_of_the_policy_wins_over_one_of_the_tool() {
    let mut spec = spec(Quota {
        max_cost_per_call: Some(Micros(10)),
        ..Quota::default()
    });
    for (capability, cost) in [("tool/dear", 11), ("tool/cheap", 1)] {
        let facts = CapabilityFacts {
            estimated_cost: Some(Micros(cost)),
            ..CapabilityFacts::default()
        };
        spec.capabilities.insert(capability.to_owned(), facts);
    }
    let governor = governor(spec);
    let by_tool = |capability, estimate| Ask {
        capability,
        estimate: Some(Micros(estimate)),
        ..ask("a", JANUARY)
    };
    let denial = admit(&governor, by_tool("tool/dear", 1)).unwrap_err();
    assert_eq!(denial.reason, Reason::CostPerCall);
    let permit = admit(&governor, by_tool("tool/cheap", 11)).unwrap();
    assert_eq!(permit.reserved(), Micros(1));
    let denial = admit(&governor, by_tool("tool/other", 11)).unwrap_err();
    assert_eq!(denial.reason, Reason::CostPerCall);
}

#[test]
fn a_budget_that_is_used_up_stops_calls_whose_cost_nobody_knows() {
    const REAL: Micros = Micros(30);
    let governor = governor(spec(Quota {
        monthly_budget: Some(Micros(100)),
        ..Quota::default()
    }));
    let call = |kind, estimate, now| {
        admit(
            &governor,
            Ask {
                kind,
                estimate,
                ..ask("a", now)
            },
        )
    };
    let unknown = |now| call(Kind::Tool, None, now);
    let spent = || ready(governor.usage(Timestamp(JANUARY))).unwrap()[0].spent;
    // Nobody knows what the first calls cost, so that all of them begin.
    let first: Vec<_> = (0..5).map(|_| unknown(JANUARY).unwrap()).collect();
    assert_eq!(spent(), Micros::ZERO);
    for permit in first.into_iter().take(1) {
        let left = permit.settle(REAL, Ending::Succeeded, Timestamp(JANUARY));
        assert_eq!(left.remaining.budget, Some(Micros(70)));
    }
    // From then on as much is held as the dearest has cost, and told of is what is expected.
    let second = unknown(JANUARY).unwrap();
    assert_eq!(spent(), Micros(60));
    assert_eq!(second.remaining().budget, Some(Micros(70)));
    assert_eq!(second.remaining().held, Some(REAL));
    let third = unknown(JANUARY).unwrap();
    assert_eq!(spent(), Micros(90));
    let denial = unknown(JANUARY).unwrap_err();
    assert_eq!(denial.reason, Reason::Budget);
    assert!(denial.retry_after.is_some());
    assert!(
        call(Kind::Resource, None, JANUARY).is_ok(),
        "what is read costs nothing"
    );
    // What metered nothing costs its estimate, whatever was held.
    drop(second);
    assert_eq!(spent(), Micros(60));
    let _ = third.settle(REAL, Ending::Succeeded, Timestamp(JANUARY));
    let exact = unknown(JANUARY).unwrap();
    let _ = exact.settle(Micros(40), Ending::Succeeded, Timestamp(JANUARY));
    assert_eq!(spent(), Micros(100));
    // Used up to the last unit: also a tool that has never cost anything.
    let other = Ask {
        estimate: None,
        capability: "tool/other",
        ..ask("a", JANUARY)
    };
    assert_eq!(admit(&governor, other).unwrap_err().reason, Reason::Budget);
    assert!(unknown(FEBRUARY).is_ok(), "another month, another budget");
    let usage = ready(governor.usage(Timestamp(FEBRUARY))).unwrap();
    assert_eq!(usage[0].spent, Micros::ZERO, "and nothing is held any more");
}

#[test]
fn a_restart_knows_what_calls_have_cost() {
    let governor = governor(spec(Quota {
        monthly_budget: Some(Micros(100)),
        ..Quota::default()
    }));
    let seed = Seed {
        principal: "a",
        capability: ask("a", JANUARY).capability,
        kind: Kind::Tool,
        at: Timestamp(JANUARY),
        calls: 2,
        cost: Micros(81),
        dearest: Micros(80),
    };
    let now = Timestamp(JANUARY + SECOND);
    governor.quota().seed(&governor.policy(), now, [seed]);
    let unknown = Ask {
        estimate: None,
        ..ask("a", now.0)
    };
    let denial = admit(&governor, unknown).unwrap_err();
    assert_eq!(denial.reason, Reason::Budget);
    assert_eq!(denial.remaining.held, Some(Micros(80)));
}

#[test]
fn a_call_that_ends_in_another_month_leaves_that_month_alone() {
    let governor = governor(spec(Quota {
        monthly_budget: Some(Micros(15)),
        ..Quota::default()
    }));
    let early = admit(&governor, ask("a", FEBRUARY - 1)).unwrap();
    let _ = admit(&governor, ask("a", FEBRUARY)).unwrap();
    let _ = early.settle(Micros::ZERO, Ending::Succeeded, Timestamp(FEBRUARY));
    assert_eq!(
        admit(&governor, ask("a", FEBRUARY)).unwrap_err().reason,
        Reason::Budget
    );
}

#[test]
fn reads_and_calls_are_counted_apart() {
    let rules = Rules {
        quota: Quota {
            max_calls_per_minute: Some(1),
            ..Quota::default()
        },
        reads: RateLimits {
            per_minute: Some(2),
            per_day: None,
        },
        ..Rules::default()
    };
    let governor = governor(PolicySpec {
        default: rules,
        default_estimated_cost: Micros(5),
        ..PolicySpec::default()
    });
    let call = Ask {
        estimate: None,
        ..ask("a", JANUARY)
    };
    let read = Ask {
        capability: "resource/skill://a/b",
        kind: Kind::Resource,
        ..call
    };
    assert_eq!(admit(&governor, call).unwrap().reserved(), Micros(5));
    for _ in 0..2 {
        assert_eq!(admit(&governor, read).unwrap().reserved(), Micros::ZERO);
    }
    assert_eq!(
        admit(&governor, read).unwrap_err().reason,
        Reason::RateMinute
    );
    assert_eq!(
        admit(&governor, call).unwrap_err().reason,
        Reason::RateMinute
    );
}

#[test]
fn a_new_policy_counts_on() {
    let version = |spec: &PolicySpec| Policy::new(spec.clone()).unwrap().version();
    let quota = Quota {
        max_calls_per_minute: Some(4),
        ..Quota::default()
    };
    let (first, second) = (PolicySpec::default(), spec(quota));
    let governor = governor(first.clone());
    for _ in 0..3 {
        let permit = admit(&governor, ask("a", JANUARY)).unwrap();
        assert_eq!(permit.policy_version(), version(&first));
    }
    governor.replace_policy(Policy::new(second.clone()).unwrap());
    let permit = admit(&governor, ask("a", JANUARY)).unwrap();
    assert_eq!(permit.policy_version(), version(&second));
    assert_eq!(
        admit(&governor, ask("a", JANUARY)).unwrap_err().reason,
        Reason::RateMinute
    );
    let unlimited = second.without_limits();
    governor.replace_policy(Policy::new(unlimited).unwrap());
    let permit = admit(&governor, ask("a", JANUARY)).unwrap();
    assert_eq!(
        (permit.remaining(), permit.policy_version()),
        (Default::default(), version(&first)),
        "what says the same has the same version"
    );
}

#[test]
fn principals_with_equal_lists_share_a_view() {
    let named = |names: &[&str]| {
        names
            .iter()
            .map(|&name| name.to_owned())
            .collect::<Vec<_>>()
    };
    let few = Rules {
        visible: named(&["tool/a*", "tool/b"]),
        ..Rules::default()
    };
    let same = Rules {
        visible: named(&["tool/b", "tool/a*"]),
        deny: named(&["tool/b"]),
        ..Rules::default()
    };
    let quota = Quota {
        max_calls_per_day: Some(1),
        ..Quota::default()
    };
    let limited = Rules {
        quota,
        ..few.clone()
    };
    let rules = [
        ("few", few),
        ("same", same),
        ("limited", limited),
        ("all", Rules::default()),
    ];
    let policy = Policy::new(PolicySpec {
        principals: rules
            .into_iter()
            .map(|(name, rules)| (name.to_owned(), rules))
            .collect(),
        ..PolicySpec::default()
    })
    .unwrap();
    assert_eq!(policy.view_of("few"), policy.view_of("same"));
    assert_eq!(policy.view_of("all"), policy.view_of("nobody knows me"));
    assert_ne!(policy.view_of("few"), policy.view_of("all"));
    assert_ne!(
        policy.view_of("few"),
        policy.view_of("limited"),
        "lists tell of limits"
    );
    assert!(policy.visible("same", "tool/b") && !policy.permitted("same", "tool/b"));
    assert!(!policy.visible("few", "tool/c") && !policy.permitted("few", "tool/c"));
    let bad = Rules {
        deny: named(&[""]),
        ..Rules::default()
    };
    let error = Policy::new(PolicySpec {
        default: bad,
        ..PolicySpec::default()
    })
    .unwrap_err();
    assert_eq!(
        error.to_string(),
        "a pattern of the default rules cannot be used"
    );
}

/// Of the first day of a month, of its last, and with a cooldown longer than a month.
#[test]
fn intervals_of_seeds_reach_as_far_as_limits_and_leave_nothing_out() {
    for (now, cooldown, sums) in [
        (JANUARY, 0, 1),
        (JANUARY + 20 * DAY, 0, 1),
        (JANUARY + 20 * DAY, 60 * DAY, 2),
        (JANUARY + 17 * DAY + SECOND, 0, 0),
        (1, 60 * DAY, 0),
    ] {
        let now = Timestamp(now);
        let facts = CapabilityFacts {
            cooldown: Some(Duration::from_millis(cooldown)),
            ..CapabilityFacts::default()
        };
        let policy = Policy::new(PolicySpec {
            capabilities: [("tool/x".to_owned(), facts)].into(),
            ..PolicySpec::default()
        })
        .unwrap();
        let month = policy.calendar().month_of(now).start;
        let all = policy.seed_intervals(now, month);
        assert_eq!(all[0].from, policy.counts_since(now));
        assert_eq!(all.last().unwrap().until, Timestamp(u64::MAX));
        for pair in all.windows(2) {
            assert_eq!(pair[0].until, pair[1].from);
            assert!(pair[1].resolution <= pair[0].resolution);
        }
        let whole = all.iter().filter(|it| it.resolution == Duration::MAX);
        assert_eq!(whole.count(), sums, "{now:?} {all:?}");
    }
}

#[test]
fn a_cost_that_is_known_later_takes_the_place_of_what_was_counted() {
    let governor = governor(spec(Quota {
        monthly_budget: Some(Micros(100)),
        ..Quota::default()
    }));
    let now = Timestamp(JANUARY);
    let correct = |at: u64, counted, actual| {
        let ask = Ask::new("a", "tool/x", now);
        governor.correct(ask, Timestamp(at), Micros(counted), Micros(actual));
        let left = ready(governor.remaining("a", Kind::Tool, now)).unwrap();
        (left.budget, left.minute)
    };
    let left = |budget| (Some(Micros(budget)), None);
    // Also of a client that this process has not counted yet.
    assert_eq!(correct(JANUARY, 0, 40), left(60));
    assert_eq!(correct(JANUARY, 40, 15), left(85));
    assert_eq!(correct(JANUARY, 15, 90), left(10));
    assert_eq!(
        correct(JANUARY - 40 * DAY, 90, 1),
        left(10),
        "another month"
    );
    assert_eq!(ready(governor.usage(now)).unwrap()[0].calls_total, 0);
    // What it has cost is held for the next one.
    let denial = admit(&governor, ask("a", now.0)).unwrap_err();
    assert_eq!(denial.reason, Reason::Budget);
}

#[test]
fn seeds_make_a_restart_free_nothing() {
    let governor = governor(spec(Quota {
        monthly_budget: Some(Micros(100)),
        max_calls_per_minute: Some(3),
        max_calls_per_day: Some(6),
        ..Quota::default()
    }));
    let now = Timestamp(JANUARY);
    let seed = |ago_ms, calls, cost| Seed {
        principal: "a",
        capability: "tool/x",
        kind: Kind::Tool,
        at: Timestamp(JANUARY - ago_ms),
        calls,
        cost: Micros(cost),
        dearest: Micros(cost),
    };
    let seeds = [
        seed(30 * SECOND, 1, 10),
        seed(50 * SECOND, 1, 10), // out of order
        seed(2 * MINUTE, 2, 20),
        seed(2 * DAY, 1_000, 15),
        seed(40 * DAY, 1_000, 1_000),
    ];
    governor.quota().seed(&governor.policy(), now, seeds);
    let left = ready(governor.remaining("a", Kind::Tool, now)).unwrap();
    assert_eq!(
        (left.budget, left.minute, left.day),
        (Some(Micros(45)), Some(1), Some(2))
    );
    let _ = admit(&governor, ask("a", now.0)).unwrap();
    let denial = admit(&governor, ask("a", now.0)).unwrap_err();
    assert_eq!(denial.reason, Reason::RateMinute);
    let wait = millis(denial.retry_after);
    assert!(
        (10 * SECOND..=11 * SECOND).contains(&wait),
        "the oldest leaves first: {wait}"
    );
    // The clock was set back while the server was down: what is dated later counts from now.
    let future = Seed {
        at: Timestamp(now.0 + 9 * DAY),
        principal: "b",
        ..seed(0, 3, 10)
    };
    governor.quota().seed(&governor.policy(), now, [future]);
    assert_eq!(
        admit(&governor, ask("b", now.0)).unwrap_err().reason,
        Reason::RateMinute
    );
    assert!(admit(&governor, ask("b", now.0 + MINUTE + SECOND)).is_ok());
}

#[test]
fn there_are_never_more_principals_than_fit() {
    let quota = Quota {
        monthly_budget: Some(Micros(1_000)),
        max_calls_per_day: Some(9),
        ..Quota::default()
    };
    let governor = Governor::new(
        Policy::new(spec(quota)).unwrap(),
        Arc::new(MemoryQuota::new(3)),
    );
    let free = |principal, now| Ask {
        estimate: None,
        ..ask(principal, now)
    };
    let refused = |principal, now| {
        admit(&governor, free(principal, now)).unwrap_err().reason == Reason::Crowd
    };
    for principal in ["a", "b", "c"] {
        let _ = admit(&governor, free(principal, JANUARY)).unwrap();
    }
    assert!(refused("d", JANUARY));
    assert!(
        admit(&governor, free("a", JANUARY)).is_ok(),
        "the known go on"
    );
    let crowd = Crowd {
        strangers: 3,
        max_strangers: 3,
        refused: 1,
        refused_at: Timestamp(JANUARY),
    };
    assert_eq!(governor.quota().crowd(), crowd);
    // A day later the first can be forgotten; not the one whose call still runs, nor the one that
    // has spent of its budget.
    let later = JANUARY + DAY + 10 * MINUTE;
    let running = admit(&governor, free("b", JANUARY)).unwrap();
    let _ = admit(&governor, ask("c", JANUARY)).unwrap();
    let _ = admit(&governor, free("d", later)).unwrap();
    assert_eq!(governor.quota().tracked_principals(), 3);
    assert!(refused("e", later + 2 * SECOND));
    let _ = running.settle_at_zero();
    let _ = admit(&governor, free("e", later + 4 * SECOND)).unwrap();
    assert_eq!(governor.quota().tracked_principals(), 3);
    // Whom nothing limits nobody needs to count.
    governor.replace_policy(Policy::new(PolicySpec::default()).unwrap());
    assert!(admit(&governor, free("f", later + 4 * SECOND)).is_ok());
}

#[test]
fn a_restart_finds_room_for_all_who_count_and_for_nobody_else() {
    let policy = Policy::new(spec(Quota {
        monthly_budget: Some(Micros(1_000)),
        max_calls_per_day: Some(1),
        ..Quota::default()
    }))
    .unwrap();
    let now = Timestamp(JANUARY + 5 * DAY);
    let seed = |principal, at, cost| Seed {
        principal,
        capability: "tool/x",
        kind: Kind::Tool,
        at: Timestamp(at),
        calls: 1,
        cost: Micros(cost),
        dearest: Micros(cost),
    };
    // More than fit: of two something counts, of the others nothing does any more.
    let seeds = [
        seed("old", JANUARY, 0),
        seed("spent", JANUARY, 490),
        seed("older", JANUARY, 0),
        seed("called", now.0 - SECOND, 0),
    ];
    let governor = Governor::new(policy, Arc::new(MemoryQuota::new(1)));
    governor.quota().seed(&governor.policy(), now, seeds);
    assert_eq!(governor.quota().tracked_principals(), 2);
    let reason = |principal| admit(&governor, ask(principal, now.0)).unwrap_err().reason;
    assert!(admit(&governor, ask("spent", now.0)).is_ok());
    assert_eq!(reason("called"), Reason::RateDay);
    assert_eq!(reason("old"), Reason::Crowd);
}

#[test]
fn a_clock_set_back_frees_nothing_and_blocks_nobody_for_good() {
    let governor = governor(spec(Quota {
        monthly_budget: Some(Micros(25)),
        max_calls_per_minute: Some(1),
        ..Quota::default()
    }));
    let _ = admit(&governor, ask("a", FEBRUARY + 5)).unwrap();
    let back = FEBRUARY - 10 * DAY;
    assert_eq!(
        admit(&governor, ask("a", back)).unwrap_err().reason,
        Reason::RateMinute
    );
    let _ = admit(&governor, ask("a", back + 61 * SECOND)).unwrap();
    let denial = admit(&governor, ask("a", FEBRUARY - 9 * DAY)).unwrap_err();
    assert_eq!(
        denial.reason,
        Reason::Budget,
        "January has no budget of its own any more"
    );
    assert!(admit(&governor, ask("a", FEBRUARY + 28 * DAY)).is_ok());
    // A clock that runs wild and is put right: what was spent meanwhile and before is still spent.
    let _ = admit(&governor, ask("b", JANUARY)).unwrap();
    let _ = admit(&governor, ask("b", JANUARY + 4_000 * DAY)).unwrap();
    let denial = admit(&governor, ask("b", JANUARY + MINUTE)).unwrap_err();
    assert_eq!(denial.reason, Reason::Budget);
    assert_eq!(millis(denial.retry_after), FEBRUARY - JANUARY - MINUTE);
    assert!(admit(&governor, ask("b", FEBRUARY)).is_ok());
}

#[test]
fn threads_never_share_the_last_unit() {
    const THREADS: usize = 8;
    const TRIES: usize = 200;
    let none = Quota::default();
    let budget = |micros| Some(Micros(micros));
    let rows = [
        (
            Quota {
                max_calls_per_minute: Some(100),
                ..none
            },
            100,
        ),
        (
            Quota {
                monthly_budget: budget(1_009),
                ..none
            },
            100,
        ),
        (
            Quota {
                monthly_budget: budget(500),
                max_calls_per_day: Some(70),
                ..none
            },
            50,
        ),
    ];
    for (quota, expected) in rows {
        let governor = governor(spec(quota));
        let admitted = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for _ in 0..TRIES {
                        if let Ok(permit) = admit(&governor, ask("a", JANUARY)) {
                            admitted.fetch_add(1, Ordering::Relaxed);
                            let _ =
                                permit.settle(Micros(10), Ending::Succeeded, Timestamp(JANUARY));
                        }
                    }
                });
            }
        });
        assert_eq!(admitted.load(Ordering::Relaxed), expected, "{quota:?}");
    }
}

/// Ten thousand names cost nobody but strangers their room.
#[test]
fn a_flood_of_strangers_locks_out_nobody_who_is_named() {
    let quota = Quota {
        max_calls_per_day: Some(9),
        ..Quota::default()
    };
    let mut limited = spec(quota);
    let named = Rules {
        quota,
        ..Rules::default()
    };
    for name in ["anna", "bert"] {
        limited.principals.insert(name.to_owned(), named.clone());
    }
    let governor = Governor::new(
        Policy::new(limited).unwrap(),
        Arc::new(MemoryQuota::new(100)),
    );
    let _ = admit(&governor, ask("anna", JANUARY)).unwrap();
    let flood = |now| {
        (0..1_000)
            .filter(|index| admit(&governor, ask(&format!("stranger {index}"), now)).is_ok())
            .count()
    };
    assert_eq!(flood(JANUARY), 100);
    let _ = admit(&governor, ask("anna", JANUARY)).unwrap();
    let _ = admit(&governor, ask("bert", JANUARY)).unwrap();
    assert_eq!(governor.quota().tracked_principals(), 102);
    // When they can be forgotten, there is room for as many, and for no more than that.
    let later = JANUARY + DAY + 10 * MINUTE;
    assert_eq!(flood(later), 100);
    let _ = admit(&governor, ask("bert", later)).unwrap();
    assert_eq!(governor.quota().tracked_principals(), 101);
}

/// A principal without a limit takes up no room that another needs.
#[test]
fn strangers_without_limits_make_room() {
    let mut spec = PolicySpec::default();
    let limited = CapabilityFacts {
        limits: RateLimits {
            per_minute: Some(1),
            per_day: None,
        },
        ..CapabilityFacts::default()
    };
    spec.capabilities.insert("tool/rare".to_owned(), limited);
    let governor = Governor::new(Policy::new(spec).unwrap(), Arc::new(MemoryQuota::new(10)));
    let running = admit(&governor, ask("the first", JANUARY)).unwrap();
    for index in 0..100 {
        let name = format!("stranger {index}");
        assert!(admit(&governor, ask(&name, JANUARY)).is_ok());
    }
    let rare = |principal, now| {
        let ask = Ask {
            capability: "tool/rare",
            ..ask(principal, now)
        };
        admit(&governor, ask).map(drop)
    };
    rare("bert", JANUARY + SECOND).unwrap();
    rare("carl", JANUARY + SECOND).unwrap();
    let usage = ready(governor.usage(Timestamp(JANUARY + SECOND))).unwrap();
    let names: Vec<_> = usage.iter().map(|it| it.principal.as_str()).collect();
    assert_eq!(
        names,
        ["bert", "carl", "the first"],
        "whose call runs stays"
    );
    // Whom something limits is not forgotten while it does.
    for index in 0..100 {
        let name = format!("stranger {index}");
        let now = JANUARY + 2 * SECOND + index;
        assert!(admit(&governor, ask(&name, now)).is_ok());
    }
    assert_eq!(
        rare("bert", JANUARY + 3 * SECOND).unwrap_err().reason,
        Reason::RateMinute
    );
    running.release();
}

#[test]
fn what_is_released_has_never_been() {
    let quota = Quota {
        monthly_budget: Some(Micros(10)),
        max_calls_per_minute: Some(1),
        max_calls_per_day: Some(1),
        ..Quota::default()
    };
    let mut spec = spec(quota);
    spec.default.max_running = Some(1);
    let facts = CapabilityFacts {
        limits: RateLimits {
            per_minute: Some(1),
            per_day: Some(1),
        },
        cooldown: Some(Duration::from_secs(1)),
        max_running: Some(1),
        ..CapabilityFacts::default()
    };
    spec.capabilities.insert("tool/x".to_owned(), facts);
    let governor = governor(spec);
    let fresh = admit(&governor, ask("a", JANUARY)).unwrap();
    let remaining = fresh.remaining();
    assert_eq!(
        (remaining.running, remaining.running_limit),
        (Some(0), Some(1))
    );
    assert_eq!(remaining.cooldown, Some(Duration::from_secs(1)));
    fresh.release();
    for _ in 0..3 {
        let permit = admit(&governor, ask("a", JANUARY)).unwrap();
        assert_eq!(permit.remaining(), remaining);
        permit.release();
    }
    assert!(ready(governor.usage(Timestamp(JANUARY))).unwrap()[0].calls_total == 0);
}

#[test]
fn who_is_refused_for_want_of_room_beside_others_is_told_so() {
    let mut spec = PolicySpec::default();
    let facts = CapabilityFacts {
        max_running: Some(2),
        ..CapabilityFacts::default()
    };
    spec.capabilities.insert("tool/x".to_owned(), facts);
    let governor = governor(spec);
    let first = admit(&governor, ask("a", JANUARY)).unwrap();
    let _second = admit(&governor, ask("b", JANUARY)).unwrap();
    let denial = admit(&governor, ask("c", JANUARY)).unwrap_err();
    assert_eq!(denial.reason, Reason::Concurrency);
    assert_eq!((denial.retry_after, denial.is_retryable()), (None, true));
    assert_eq!(denial.remaining.running, Some(0));
    let other = Ask {
        capability: "tool/y",
        ..ask("c", JANUARY)
    };
    let _ = admit(&governor, other).unwrap();
    first.settle(Micros(1), Ending::Failed, Timestamp(JANUARY));
    assert!(admit(&governor, ask("c", JANUARY)).is_ok());
}

#[test]
fn a_restart_cuts_no_cooldown_short_that_began_in_another_month() {
    let cooling = |cooldown| {
        let facts = CapabilityFacts {
            cooldown: Some(Duration::from_millis(cooldown)),
            ..CapabilityFacts::default()
        };
        Policy::new(PolicySpec {
            capabilities: [("tool/x".to_owned(), facts)].into(),
            ..PolicySpec::default()
        })
        .unwrap()
    };
    let now = FEBRUARY + 2 * DAY;
    let rows = [
        (now, SECOND, FEBRUARY),
        (now, 30 * DAY, now - 30 * DAY),
        (FEBRUARY + SECOND, SECOND, FEBRUARY + SECOND - DAY),
        (now, u64::MAX, 0),
    ];
    for (now, cooldown, since) in rows {
        let since = Timestamp(since);
        assert_eq!(cooling(cooldown).counts_since(Timestamp(now)), since);
    }

    let (policy, quota) = (cooling(30 * DAY), MemoryQuota::default());
    let used = Seed {
        principal: "a",
        capability: "tool/x",
        kind: Kind::Tool,
        at: policy.counts_since(Timestamp(now + SECOND)),
        calls: 1,
        cost: Micros(1),
        dearest: Micros(1),
    };
    quota.seed(&policy, Timestamp(now), [used]);
    let governor = Governor::new(policy, Arc::new(quota));
    let denial = admit(&governor, ask("a", now)).unwrap_err();
    assert_eq!(denial.reason, Reason::Cooldown);
    assert_eq!(millis(denial.retry_after), SECOND);
    assert!(admit(&governor, ask("a", now + SECOND)).is_ok());
}

fn cooling(cooldown_ms: u64) -> CapabilityFacts {
    CapabilityFacts {
        cooldown: Some(Duration::from_millis(cooldown_ms)),
        ..CapabilityFacts::default()
    }
}

#[test]
fn the_limit_that_takes_longest_is_named_whichever_it_is() {
    let once = |quota, cooldown_ms, now| {
        let mut spec = spec(quota);
        if let Some(cooldown_ms) = cooldown_ms {
            spec.capabilities
                .insert("tool/x".to_owned(), cooling(cooldown_ms));
        }
        let governor = governor(spec);
        let _ = admit(&governor, ask("a", now)).unwrap();
        admit(&governor, ask("a", now)).unwrap_err().reason
    };
    // An hour before the month ends its budget comes back sooner than the day's calls.
    let month_and_day = Quota {
        monthly_budget: Some(Micros(10)),
        max_calls_per_day: Some(1),
        ..Quota::default()
    };
    assert_eq!(
        once(month_and_day, None, FEBRUARY - 60 * MINUTE),
        Reason::RateDay
    );
    assert_eq!(once(month_and_day, None, JANUARY), Reason::Budget);
    // A call at the beginning of a second counts for 61.
    let minute = Quota {
        max_calls_per_minute: Some(1),
        ..Quota::default()
    };
    for (cooldown, reason) in [
        (60 * SECOND, Reason::RateMinute),
        (61 * SECOND, Reason::RateMinute),
        (62 * SECOND, Reason::Cooldown),
    ] {
        assert_eq!(once(minute, Some(cooldown), JANUARY), reason, "{cooldown}");
    }
}

#[test]
fn every_use_begins_a_cooldown_and_an_earlier_one_shortens_none() {
    let mut spec = PolicySpec::default();
    spec.capabilities
        .insert("tool/x".to_owned(), cooling(10 * SECOND));
    let governor = governor(spec);
    let used = |at| Seed {
        principal: "b",
        capability: "tool/x",
        kind: Kind::Tool,
        at: Timestamp(at),
        calls: 1,
        cost: Micros::ZERO,
        dearest: Micros::ZERO,
    };
    let now = JANUARY + 15 * SECOND;
    let seeds = [used(JANUARY + 10 * SECOND), used(JANUARY)];
    governor
        .quota()
        .seed(&governor.policy(), Timestamp(now), seeds);
    for at in [JANUARY, JANUARY + 10 * SECOND] {
        let _ = admit(&governor, ask("a", at)).unwrap();
    }
    for principal in ["a", "b"] {
        let denial = admit(&governor, ask(principal, now)).unwrap_err();
        assert_eq!(denial.reason, Reason::Cooldown, "{principal}");
        assert_eq!(millis(denial.retry_after), 5 * SECOND, "{principal}");
    }
}

#[test]
fn of_two_limits_the_one_that_leaves_less_is_told() {
    // As many calls of another tool, the limit on all tools, and that on this one.
    let rows = [
        (0, 10, 3, 2, 3),
        (0, 3, 10, 2, 3),
        (8, 10, 3, 1, 10),
        // Of two that leave the same, that on all tools.
        (7, 10, 3, 2, 10),
    ];
    for (before, all, own, left, limit) in rows {
        let mut spec = spec(Quota {
            max_calls_per_minute: Some(all),
            max_calls_per_day: Some(all),
            ..Quota::default()
        });
        let facts = CapabilityFacts {
            limits: RateLimits {
                per_minute: Some(own),
                per_day: Some(own),
            },
            ..CapabilityFacts::default()
        };
        spec.capabilities.insert("tool/x".to_owned(), facts);
        let governor = governor(spec);
        for _ in 0..before {
            let other = Ask {
                capability: "tool/y",
                ..ask("a", JANUARY)
            };
            let _ = admit(&governor, other).unwrap();
        }
        let told = admit(&governor, ask("a", JANUARY)).unwrap().remaining();
        let expected = (Some(left), Some(limit));
        assert_eq!((told.minute, told.minute_limit), expected);
        assert_eq!((told.day, told.day_limit), expected);
        assert_eq!(told.minute_resets, Some(Duration::from_secs(61)));
        assert_eq!(
            told.day_resets,
            Some(Duration::from_millis(DAY + 5 * MINUTE))
        );
    }
}

#[test]
fn only_what_has_cost_more_than_expected_is_held_for_the_next() {
    let limited = spec(Quota {
        monthly_budget: Some(Micros(1_000)),
        ..Quota::default()
    });
    let limited = PolicySpec {
        default_estimated_cost: Micros(10),
        ..limited
    };
    let held = |governor: &Governor<MemoryQuota>, principal| {
        let free = Ask {
            estimate: Some(Micros::ZERO),
            ..ask(principal, JANUARY)
        };
        admit(governor, free).unwrap().remaining().held
    };
    let by_dear_calls = governor(limited.clone());
    let settle = |governor: &Governor<MemoryQuota>, cost| {
        let permit = admit(governor, ask("a", JANUARY)).unwrap();
        permit.settle(Micros(cost), Ending::Succeeded, Timestamp(JANUARY));
    };
    settle(&by_dear_calls, 10);
    assert_eq!(held(&by_dear_calls, "a"), Some(Micros::ZERO));
    settle(&by_dear_calls, 11);
    assert_eq!(held(&by_dear_calls, "a"), Some(Micros(11)));
    // The same after a restart.
    for (dearest, expected) in [(10, Micros::ZERO), (11, Micros(11))] {
        let seed = Seed {
            principal: "a",
            capability: "tool/x",
            kind: Kind::Tool,
            at: Timestamp(JANUARY),
            calls: 2,
            cost: Micros(1 + dearest),
            dearest: Micros(dearest),
        };
        let seeded = governor(limited.clone());
        let policy = seeded.policy();
        seeded.quota().seed(&policy, Timestamp(JANUARY), [seed]);
        assert_eq!(held(&seeded, "a"), Some(expected), "{dearest}");
    }
    // Where no budget limits a call, nothing is remembered of its cost.
    let unlimited = governor(PolicySpec::default());
    settle(&unlimited, 30);
    unlimited.replace_policy(Policy::new(limited).unwrap());
    assert_eq!(held(&unlimited, "a"), Some(Micros::ZERO));
}

#[test]
fn what_is_dated_after_a_clock_that_was_set_back_is_spent() {
    let governor = governor(spec(Quota {
        monthly_budget: Some(Micros(100)),
        ..Quota::default()
    }));
    let now = FEBRUARY - 10 * DAY;
    let spent = || ready(governor.usage(Timestamp(now))).unwrap()[0].spent;
    drop(admit(&governor, ask("a", FEBRUARY)).unwrap());
    for (at, expected) in [(now, 10), (now + 1, 30), (FEBRUARY, 50)] {
        let seed = Seed {
            principal: "a",
            capability: "tool/x",
            kind: Kind::Tool,
            at: Timestamp(at),
            calls: 1,
            cost: Micros(20),
            dearest: Micros(20),
        };
        governor
            .quota()
            .seed(&governor.policy(), Timestamp(now), [seed]);
        assert_eq!(spent(), Micros(expected), "{at}");
    }
}

#[test]
fn a_clock_read_five_seconds_early_is_not_one_that_was_set_back() {
    for (early, is_set_back) in [(5 * SECOND, false), (5 * SECOND + 1, true)] {
        let governor = governor(spec(Quota {
            max_calls_per_minute: Some(1),
            ..Quota::default()
        }));
        let _ = admit(&governor, ask("a", JANUARY)).unwrap();
        assert!(admit(&governor, ask("a", JANUARY - early)).is_err());
        // Time goes on from where the clock was set to, or when it has caught up.
        let later = ask("a", JANUARY - early + 61 * SECOND);
        assert_eq!(admit(&governor, later).is_ok(), is_set_back, "{early}");
    }
}

#[test]
fn a_month_more_than_32_days_ahead_was_begun_by_a_wrong_clock() {
    let march = FEBRUARY + 28 * DAY;
    let april = march + 31 * DAY;
    for (ahead, resets) in [(32 * DAY, april), (32 * DAY + 1, FEBRUARY)] {
        let governor = governor(spec(Quota {
            monthly_budget: Some(Micros(15)),
            ..Quota::default()
        }));
        let _ = admit(&governor, ask("a", march)).unwrap();
        let now = march - ahead;
        let denial = admit(&governor, ask("a", now)).unwrap_err();
        assert_eq!(denial.reason, Reason::Budget);
        assert_eq!(millis(denial.retry_after), resets - now, "{ahead}");
    }
}

#[test]
fn a_principal_is_forgotten_as_soon_as_its_limits_have_room_again_and_no_sooner() {
    let minute = spec(Quota {
        max_calls_per_minute: Some(1),
        ..Quota::default()
    });
    let mut cooldown = PolicySpec::default();
    cooldown
        .capabilities
        .insert("tool/x".to_owned(), cooling(2 * SECOND));
    let rows = [
        (&minute, 61 * SECOND - 1, false),
        (&minute, 61 * SECOND, true),
        (&cooldown, 2 * SECOND - 1, false),
        (&cooldown, 2 * SECOND, true),
    ];
    for (spec, later, is_forgotten) in rows {
        let policy = Policy::new(spec.clone()).unwrap();
        let governor = Governor::new(policy, Arc::new(MemoryQuota::new(1)));
        let _ = admit(&governor, ask("a", JANUARY)).unwrap();
        let newcomer = admit(&governor, ask("b", JANUARY + later));
        assert_eq!(newcomer.is_ok(), is_forgotten, "{later}");
    }
}
