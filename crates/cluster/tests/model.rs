//! Model of what servers share, checked in every order of steps: leases and fencing of tasks (ADR 26, ADR 12), and
//! copies of sessions.
//!
//! A step is one statement in the database, or one thing that a process does between two statements. Ages are counted
//! in ticks and saturate where nothing depends on them any more, so that the states are finite; a tick passes only
//! when every server that runs and reaches the database has shown life and renewed its leases, as the intervals of the
//! product have it. Each rule that the product relies on can be switched off, and then the model must find a fault.
#![allow(
    clippy::print_stdout,
    reason = "a test reports how many states there are"
)]

use stateright::{Checker, HasDiscoveries, Model, Property};
use std::collections::BTreeSet;

/// Ticks of a lease. A server renews once a tick, where the product renews three times in a lease.
const LEASE: u8 = 4;

/// The most attempts at one task (`tasks.max_attempts`).
const MAX_ATTEMPTS: u8 = 2;

/// The rules under test: each is one that the product follows.
#[derive(Clone, Copy)]
struct Rules {
    /// A write is a step of the task's sequence, which only one of many can make.
    is_fenced: bool,
    /// Only a server that has reached the database for as long as a lease lasts tells of lapsed leases.
    waits_after_outages: bool,
    /// Only a server with a recent sign of life of the database tells of lapsed leases.
    needs_sign_of_life: bool,
    /// A call is made again only if its tool says that this does no harm.
    heeds_idempotence: bool,
}

const RULES: Rules = Rules {
    is_fenced: true,
    waits_after_outages: true,
    needs_sign_of_life: true,
    heeds_idempotence: true,
};

/// One task over a number of servers.
#[derive(Clone, Copy)]
struct Tasks {
    servers: usize,
    is_idempotent: bool,
    rules: Rules,
    faults: Faults,
}

/// Numbers of faults that may still happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Faults {
    outages: u8,
    pauses: u8,
    cuts: u8,
    kills: u8,
    stops: u8,
    cancellations: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    database_answers: bool,
    row: Row,
    servers: Vec<Server>,
    faults: Faults,
    seen: Seen,
}

/// The task in the database.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Row {
    sequence: u8,
    attempt: u8,
    is_over: bool,
    owner: usize,
    lease: Lease,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Lease {
    Left(u8),
    GivenUp,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Server {
    is_alive: bool,
    is_paused: bool,
    is_cut_off: bool,
    /// True once it was paused, cut off or killed.
    was_disturbed: bool,
    /// Ticks since the database gave the last sign of life.
    sign: u8,
    /// Ticks since the database was out of reach.
    reached: u8,
    must_show_life: bool,
    must_renew: bool,
    /// Sequence of a lapsed task it was told of, for a tick.
    told: Option<u8>,
    run: Option<Run>,
    /// Step by which it fails a task that is not begun again.
    giving_up: Option<u8>,
}

/// A call under way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Run {
    sequence: u8,
    attempt: u8,
    is_done: bool,
}

/// History of a world, for the properties.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Seen {
    ends: u8,
    begun: u8,
    effects: u8,
    was_taken_from_undisturbed: bool,
    came_too_late: bool,
    attempts_met: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Tick,
    BeginOutage,
    EndOutage,
    Pause(usize),
    Resume(usize),
    CutOff(usize),
    Rejoin(usize),
    Kill(usize),
    Stop(usize),
    ShowLife(usize),
    Renew(usize),
    Look(usize),
    Claim(usize),
    GiveUp(usize),
    Act(usize),
    End(usize),
    Cancel,
}

impl World {
    fn reaches(&self, server: usize) -> bool {
        let server = &self.servers[server];
        self.database_answers && server.is_alive && !server.is_paused && !server.is_cut_off
    }

    /// Ends the task if `sequence` is the step before its end.
    fn end(&mut self, rules: Rules, sequence: u8) -> bool {
        let is_next = !self.row.is_over && self.row.sequence == sequence;
        if rules.is_fenced && !is_next {
            return false;
        }
        self.row.sequence = sequence + 1;
        self.row.is_over = true;
        self.seen.ends += 1;
        true
    }
}

impl Model for Tasks {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        let server = Server {
            is_alive: true,
            is_paused: false,
            is_cut_off: false,
            was_disturbed: false,
            sign: 0,
            reached: LEASE,
            must_show_life: false,
            must_renew: false,
            told: None,
            run: None,
            giving_up: None,
        };
        let mut servers = vec![server; self.servers];
        servers[0].run = Some(Run {
            sequence: 1,
            attempt: 1,
            is_done: false,
        });
        let row = Row {
            sequence: 1,
            attempt: 1,
            is_over: false,
            owner: 0,
            lease: Lease::Left(LEASE),
        };
        vec![World {
            database_answers: true,
            row,
            servers,
            faults: self.faults,
            seen: Seen {
                begun: 1,
                ..Seen::default()
            },
        }]
    }

    fn actions(&self, world: &World, steps: &mut Vec<Step>) {
        steps.extend([Step::Tick, Step::BeginOutage, Step::EndOutage, Step::Cancel]);
        for server in 0..self.servers {
            steps.extend([
                Step::Pause(server),
                Step::Resume(server),
                Step::CutOff(server),
                Step::Rejoin(server),
                Step::Kill(server),
                Step::Stop(server),
                Step::ShowLife(server),
                Step::Renew(server),
                Step::Look(server),
                Step::Claim(server),
                Step::GiveUp(server),
                Step::Act(server),
                Step::End(server),
            ]);
        }
        steps.retain(|step| self.next_state(world, *step).is_some());
    }

    fn next_state(&self, before: &World, step: Step) -> Option<World> {
        let mut world = before.clone();
        let spend = |left: &mut u8| {
            *left = left.checked_sub(1)?;
            Some(())
        };
        match step {
            Step::Tick => {
                let owes = |at: usize| {
                    let server = &before.servers[at];
                    before.reaches(at)
                        && (server.must_show_life
                            || server.must_renew
                            || server.giving_up.is_some())
                };
                if (0..self.servers).any(owes) {
                    return None;
                }
                if let Lease::Left(left) = &mut world.row.lease {
                    *left = left.saturating_sub(1);
                }
                for server in &mut world.servers {
                    server.sign = (server.sign + 1).min(LEASE / 2);
                    server.reached = (server.reached + 1).min(LEASE);
                    server.must_show_life = server.is_alive;
                    server.must_renew = server.run.is_some();
                    // Statements have a limit that is shorter than a lease; a process that stands still has none.
                    if !server.is_paused {
                        server.told = None;
                    }
                }
            }
            Step::BeginOutage if before.database_answers => {
                spend(&mut world.faults.outages)?;
                world.database_answers = false;
            }
            Step::EndOutage if !before.database_answers => world.database_answers = true,
            Step::Cancel if before.database_answers && !before.row.is_over => {
                spend(&mut world.faults.cancellations)?;
                world.end(self.rules, before.row.sequence);
            }
            Step::Pause(at) if before.servers[at].is_alive && !before.servers[at].is_paused => {
                spend(&mut world.faults.pauses)?;
                world.servers[at].is_paused = true;
                world.servers[at].was_disturbed = true;
            }
            Step::Resume(at) if before.servers[at].is_paused => world.servers[at].is_paused = false,
            Step::CutOff(at) if before.servers[at].is_alive && !before.servers[at].is_cut_off => {
                spend(&mut world.faults.cuts)?;
                world.servers[at].is_cut_off = true;
                world.servers[at].was_disturbed = true;
            }
            Step::Rejoin(at) if before.servers[at].is_cut_off => {
                world.servers[at].is_cut_off = false
            }
            Step::Kill(at) if before.servers[at].is_alive => {
                spend(&mut world.faults.kills)?;
                world.servers[at] = dead(&before.servers[at]);
            }
            // In good order: what runs is dropped, and then the lease is given up.
            Step::Stop(at) if before.reaches(at) => {
                spend(&mut world.faults.stops)?;
                if before.row.owner == at && !before.row.is_over {
                    world.row.lease = Lease::GivenUp;
                }
                world.servers[at] = dead(&before.servers[at]);
            }
            Step::ShowLife(at) if before.reaches(at) && before.servers[at].must_show_life => {
                let server = &mut world.servers[at];
                if LEASE / 2 <= std::mem::take(&mut server.sign) {
                    server.reached = 0;
                }
                server.must_show_life = false;
            }
            Step::Renew(at) if before.reaches(at) && before.servers[at].must_renew => {
                world.servers[at].must_renew = false;
                if before.row.owner == at && !before.row.is_over {
                    world.row.lease = Lease::Left(LEASE);
                } else if before.servers[at].run.is_some() {
                    // Another server has it: the call is dropped.
                    world.servers[at].run = None;
                    world.seen.came_too_late = true;
                }
            }
            Step::Look(at)
                if before.reaches(at)
                    && before.servers[at].run.is_none()
                    && before.servers[at].told.is_none()
                    && !before.row.is_over =>
            {
                let server = &before.servers[at];
                let may_judge = (!self.rules.needs_sign_of_life || server.sign < LEASE / 2)
                    && (!self.rules.waits_after_outages || LEASE <= server.reached);
                let has_lapsed = match before.row.lease {
                    Lease::GivenUp => true,
                    Lease::Left(left) => left == 0 && may_judge,
                };
                if !has_lapsed {
                    return None;
                }
                world.servers[at].told = Some(before.row.sequence);
            }
            Step::Claim(at) if before.reaches(at) => {
                let sequence = before.servers[at].told?;
                world.servers[at].told = None;
                let is_free = matches!(before.row.lease, Lease::GivenUp | Lease::Left(0));
                if before.row.is_over || !is_free || before.row.sequence != sequence {
                    return Some(world);
                }
                let owner = &before.servers[before.row.owner];
                world.seen.was_taken_from_undisturbed |= owner.run.is_some()
                    && !owner.was_disturbed
                    && !before.servers[at].was_disturbed;
                world.row.sequence += 1;
                world.row.owner = at;
                world.row.lease = Lease::Left(LEASE);
                let attempt = before.row.attempt;
                world.row.attempt += 1;
                let may_begin = self.is_idempotent || !self.rules.heeds_idempotence;
                if MAX_ATTEMPTS <= attempt || !may_begin {
                    world.servers[at].giving_up = Some(sequence + 1);
                } else {
                    world.seen.begun += 1;
                    world.servers[at].run = Some(Run {
                        sequence: sequence + 1,
                        attempt: attempt + 1,
                        is_done: false,
                    });
                    let mut attempts: Vec<_> = running(&world).map(|run| run.attempt).collect();
                    attempts.sort_unstable();
                    world.seen.attempts_met |= attempts.windows(2).any(|two| two[0] == two[1]);
                }
            }
            Step::GiveUp(at) if before.reaches(at) => {
                let sequence = world.servers[at].giving_up.take()?;
                world.end(self.rules, sequence);
            }
            Step::Act(at) if before.servers[at].is_alive && !before.servers[at].is_paused => {
                let run = world.servers[at].run.as_mut().filter(|run| !run.is_done)?;
                run.is_done = true;
                world.seen.effects += 1;
            }
            Step::End(at) if before.reaches(at) => {
                let run = before.servers[at].run.as_ref().filter(|run| run.is_done)?;
                world.servers[at].run = None;
                world.servers[at].must_renew = false;
                if !world.end(self.rules, run.sequence) {
                    world.seen.came_too_late = true;
                }
            }
            _ => return None,
        }
        (world != *before).then_some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("a task ends once", |_: &Self, it: &World| it.seen.ends <= 1),
            Property::always(
                "what is not idempotent is begun once",
                |model: &Self, it: &World| {
                    model.is_idempotent || (it.seen.begun <= 1 && it.seen.effects <= 1)
                },
            ),
            Property::always(
                "a task is begun as often as it may be",
                |_: &Self, it: &World| it.seen.begun <= MAX_ATTEMPTS,
            ),
            Property::always(
                "no two calls are the same attempt",
                |_: &Self, it: &World| !it.seen.attempts_met,
            ),
            Property::always(
                "outages take no task from a server that runs",
                |_: &Self, it: &World| !it.seen.was_taken_from_undisturbed,
            ),
            Property::sometimes(
                "a server ends the task of another",
                |model: &Self, it: &World| {
                    it.seen.ends == 1
                        && it.row.owner != 0
                        && (it.seen.begun == 2) == model.is_idempotent
                },
            ),
            Property::sometimes(
                "what the former owner says comes too late",
                |_: &Self, it: &World| it.seen.came_too_late,
            ),
        ]
    }
}

fn running(world: &World) -> impl Iterator<Item = &Run> {
    world.servers.iter().filter_map(|it| it.run.as_ref())
}

fn dead(server: &Server) -> Server {
    Server {
        is_alive: false,
        is_paused: false,
        was_disturbed: true,
        must_show_life: false,
        must_renew: false,
        told: None,
        run: None,
        giving_up: None,
        ..server.clone()
    }
}

const FAULTS: Faults = Faults {
    outages: 1,
    pauses: 1,
    cuts: 1,
    kills: 1,
    stops: 1,
    cancellations: 1,
};

fn tasks(servers: usize, is_idempotent: bool, faults: Faults) -> Tasks {
    Tasks {
        servers,
        is_idempotent,
        rules: RULES,
        faults,
    }
}

/// Looks at all states, and reports how many there are.
fn check<M>(model: M)
where
    M: Model + Send + Sync + 'static,
    M::State: std::hash::Hash + Clone + std::fmt::Debug + PartialEq + Send + Sync,
    M::Action: std::fmt::Debug + PartialEq + Clone + Send + Sync,
{
    let checker = model.checker().spawn_bfs().join();
    println!("{} states", checker.unique_state_count());
    checker.assert_properties();
}

/// Finds the fault that must be there without a rule.
fn refute<M>(model: M, property: &'static str)
where
    M: Model + Send + Sync + 'static,
    M::State: std::hash::Hash + Clone + std::fmt::Debug + PartialEq + Send + Sync,
    M::Action: std::fmt::Debug + PartialEq + Clone + Send + Sync,
{
    let enough = HasDiscoveries::AnyOf(BTreeSet::from([property]));
    let checker = model.checker().finish_when(enough).spawn_bfs().join();
    let path = checker.assert_any_discovery(property);
    println!("{property}: broken after {:?}", path.into_actions());
}

/// Faults of processes, and an outage of the database.
const DEATHS: Faults = Faults {
    cuts: 0,
    stops: 0,
    ..FAULTS
};

/// Faults of connections, an outage of the database, and an end in good order.
const SEPARATIONS: Faults = Faults {
    pauses: 0,
    kills: 0,
    ..FAULTS
};

#[test]
fn tasks_of_two_servers_end_once_and_stay_with_those_who_run() {
    for is_idempotent in [true, false] {
        check(tasks(2, is_idempotent, DEATHS));
        check(tasks(2, is_idempotent, SEPARATIONS));
    }
}

#[test]
fn tasks_of_three_servers_end_once_and_stay_with_those_who_run() {
    let faults = Faults {
        outages: 1,
        pauses: 1,
        ..Faults::default()
    };
    check(tasks(3, true, faults));
}

#[test]
fn each_rule_is_needed() {
    let idempotent = tasks(2, true, FAULTS);
    let without = |rules| Tasks {
        rules,
        ..idempotent
    };
    let unfenced = Rules {
        is_fenced: false,
        ..RULES
    };
    refute(without(unfenced), "a task ends once");
    let hasty = Rules {
        waits_after_outages: false,
        ..RULES
    };
    refute(
        without(hasty),
        "outages take no task from a server that runs",
    );
    let blind = Rules {
        needs_sign_of_life: false,
        ..RULES
    };
    refute(
        without(blind),
        "outages take no task from a server that runs",
    );
    let careless = Tasks {
        is_idempotent: false,
        ..without(Rules {
            heeds_idempotence: false,
            ..RULES
        })
    };
    refute(careless, "what is not idempotent is begun once");
}

/// Ticks for which a session may be idle.
const IDLE: u8 = 2;

/// One session over a number of servers, each of which has a copy once it was asked in it.
struct Sessions {
    servers: usize,
    /// The mark of an end stays for as long as a session may be idle after the end, and not after the last use.
    marks_last: bool,
    /// A write names what comes and what goes, and not all that there is.
    writes_differences: bool,
    /// No server forgets sessions before the others could write what waited for the database.
    sweeps_after_writes: bool,
    /// The number of a life comes from the clock where the row does not know of earlier lives.
    numbers_by_clock: bool,
    /// A write of a server that is cut off may come after any time.
    may_be_late: bool,
    max_lives: u8,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Shared {
    row: Option<Kept>,
    copies: Vec<Option<Copied>>,
    /// Writes that wait in each server, with their ages.
    waiting: Vec<Option<(Written, u8)>>,
    lives: u8,
    ended: bool,
    came_back: bool,
    two_lives_alike: bool,
    was_late: bool,
    /// Names that clients have asked to hear of, as bits.
    wanted: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Kept {
    lives: u8,
    has_ended: bool,
    names: u8,
    unused: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Copied {
    lives: u8,
    names: u8,
    unused: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Written {
    Names { more: u8, all: u8 },
    End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Tick,
    Sweep,
    TakeUp(usize),
    Subscribe(usize),
    AskForEnd(usize),
    Write(usize),
    Hear(usize),
}

impl Model for Sessions {
    type State = Shared;
    type Action = Use;

    fn init_states(&self) -> Vec<Shared> {
        let mut copies = vec![None; self.servers];
        copies[0] = Some(Copied {
            lives: 0,
            names: 0,
            unused: 0,
        });
        vec![Shared {
            row: Some(Kept {
                lives: 0,
                has_ended: false,
                names: 0,
                unused: 0,
            }),
            copies,
            waiting: vec![None; self.servers],
            ..Shared::default()
        }]
    }

    fn actions(&self, shared: &Shared, uses: &mut Vec<Use>) {
        uses.extend([Use::Tick, Use::Sweep]);
        for at in 0..self.servers {
            uses.extend([
                Use::TakeUp(at),
                Use::Subscribe(at),
                Use::AskForEnd(at),
                Use::Write(at),
                Use::Hear(at),
            ]);
        }
        uses.retain(|it| self.next_state(shared, *it).is_some());
    }

    fn next_state(&self, before: &Shared, used: Use) -> Option<Shared> {
        let mut now = before.clone();
        match used {
            Use::Tick => {
                for (_, age) in now.waiting.iter_mut().flatten() {
                    *age += 1;
                    if IDLE <= *age {
                        *age = IDLE;
                        now.was_late = true;
                    }
                }
                if now.was_late && !self.may_be_late {
                    return None;
                }
                if let Some(row) = &mut now.row {
                    row.unused = (row.unused + 1).min(IDLE);
                }
                for place in &mut now.copies {
                    *place = place.take().and_then(|copy| {
                        let unused = copy.unused + 1;
                        (unused < IDLE).then_some(Copied { unused, ..copy })
                    });
                }
            }
            Use::Sweep => {
                let mut waiting = before.waiting.iter().flatten();
                let must_wait = self.sweeps_after_writes && waiting.any(|(_, age)| *age < IDLE);
                if before.row.as_ref()?.unused < IDLE || must_wait {
                    return None;
                }
                now.row = None;
            }
            // A client asks a server that has no copy.
            Use::TakeUp(at) if before.copies[at].is_none() && before.lives < self.max_lives => {
                let row = now.row.as_mut()?;
                if row.has_ended || IDLE <= row.unused {
                    return None;
                }
                now.came_back |= before.ended;
                now.lives += 1;
                row.lives = match self.numbers_by_clock {
                    true => now.lives.max(row.lives + 1),
                    false => row.lives + 1,
                };
                row.unused = 0;
                let alike = |it: &Copied| it.lives == row.lives;
                now.two_lives_alike |= before.copies.iter().flatten().any(alike);
                now.copies[at] = Some(Copied {
                    lives: row.lives,
                    names: row.names,
                    unused: 0,
                });
            }
            // Each server is asked for a name of its own.
            Use::Subscribe(at) if !before.ended => {
                let copy = now.copies[at].as_mut()?;
                let more = 1 << at;
                copy.names |= more;
                copy.unused = 0;
                now.wanted |= more;
                let all = copy.names;
                // What waits already says the same.
                match before.waiting[at] {
                    None => now.waiting[at] = Some((Written::Names { more, all }, 0)),
                    Some((Written::Names { .. }, _)) => {}
                    Some((Written::End, _)) => return None,
                }
            }
            Use::AskForEnd(at) if before.waiting[at].is_none() && !before.ended => {
                now.copies[at].take()?;
                now.waiting[at] = Some((Written::End, 0));
            }
            Use::Write(at) => match now.waiting[at].take()?.0 {
                Written::Names { more, all } => match &mut now.row {
                    Some(row) if row.has_ended => {}
                    Some(row) => {
                        row.unused = 0;
                        row.names = match self.writes_differences {
                            true => row.names | more,
                            false => all,
                        };
                    }
                    row @ None => {
                        *row = Some(Kept {
                            lives: 0,
                            has_ended: false,
                            names: more,
                            unused: 0,
                        });
                    }
                },
                Written::End => {
                    if let Some(row) = now.row.as_mut().filter(|row| !row.has_ended) {
                        row.has_ended = true;
                        row.names = 0;
                        if self.marks_last {
                            row.unused = 0;
                        }
                        now.ended = true;
                    }
                }
            },
            // After its own writes a server reads what has become of its copy.
            Use::Hear(at) if before.waiting[at].is_none() => {
                let copy = now.copies[at].as_mut()?;
                match before.row.as_ref().filter(|row| !row.has_ended) {
                    Some(row) => copy.names = row.names,
                    None => now.copies[at] = None,
                }
            }
            _ => return None,
        }
        (now != *before).then_some(now)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(
                "no two copies number events alike",
                |_: &Self, it: &Shared| !it.two_lives_alike,
            ),
            Property::always(
                "a session that has ended does not come back",
                |_: &Self, it: &Shared| !it.came_back || it.was_late,
            ),
            Property::always(
                "no server undoes what another has written",
                |_: &Self, it: &Shared| {
                    let is_settled = it.waiting.iter().all(Option::is_none);
                    let row = it.row.as_ref().filter(|row| !row.has_ended && is_settled);
                    it.ended || it.was_late || row.is_none_or(|row| row.names == it.wanted)
                },
            ),
            Property::sometimes(
                "a session is used on all servers",
                |_: &Self, it: &Shared| {
                    it.copies.iter().all(Option::is_some) && it.wanted + 1 == 1 << it.copies.len()
                },
            ),
        ]
    }
}

const SESSIONS: Sessions = Sessions {
    servers: 3,
    marks_last: true,
    writes_differences: true,
    sweeps_after_writes: true,
    numbers_by_clock: true,
    may_be_late: false,
    max_lives: 2,
};

#[test]
fn sessions_are_adopted_without_loss_and_end_once() {
    check(SESSIONS);
    check(Sessions {
        servers: 2,
        may_be_late: true,
        max_lives: 3,
        ..SESSIONS
    });
}

#[test]
fn each_rule_of_sessions_is_needed() {
    let sessions = Sessions {
        servers: 2,
        ..SESSIONS
    };
    let marks_last = false;
    let forgetful = Sessions {
        marks_last,
        sweeps_after_writes: false,
        ..sessions
    };
    refute(forgetful, "a session that has ended does not come back");
    let writes_differences = false;
    let whole = Sessions {
        writes_differences,
        ..sessions
    };
    refute(whole, "no server undoes what another has written");
    let sweeps_after_writes = false;
    let hasty = Sessions {
        sweeps_after_writes,
        ..sessions
    };
    refute(hasty, "no server undoes what another has written");
    let counted = Sessions {
        numbers_by_clock: false,
        may_be_late: true,
        max_lives: 3,
        ..SESSIONS
    };
    refute(counted, "no two copies number events alike");
}
