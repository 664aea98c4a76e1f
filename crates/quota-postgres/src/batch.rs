//! One transaction: columns in, decisions out.

use crate::{
    answer::Decision,
    connection::Connection,
    queue::{Ended, Waiting, Work, unavailable},
    request::{amount, length},
};
use governance::{Micros, Remaining, ReserveError};
use tokio_postgres::types::ToSql;

const DECIDE: &str = "SELECT * FROM owlclaw_quota_decide($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, \
    $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24)";

/// The sequence of no reservation: its principal is looked at, and nothing else.
const NOTHING: i64 = 0;

/// Carries out one transaction. There is a decision for each request, in their order.
pub(crate) async fn carry_out(
    connection: &mut Connection,
    (node, epoch): (i64, i64),
    work: &Work,
) -> Result<Vec<Decision>, tokio_postgres::Error> {
    let columns = Columns::new(work);
    let rows = connection
        .step(DECIDE, &columns.parameters(&node, &epoch))
        .await?;
    rows.iter().map(Decision::read).collect()
}

/// Orders requests so that the function looks at each principal, kind and capability once.
pub(crate) fn sort(requests: &mut [Waiting]) {
    requests.sort_by(|one, other| {
        let key = |waiting: &Waiting| waiting.request.is_read;
        let names = one.request.principal.cmp(&other.request.principal);
        names
            .then_with(|| key(one).cmp(&key(other)))
            .then_with(|| one.request.capability.cmp(&other.request.capability))
            .then_with(|| one.sequence.cmp(&other.sequence))
    });
}

/// The function's parameters, which it takes as arrays.
#[derive(Default)]
struct Columns<'a> {
    ended: Vec<i64>,
    ended_of: Vec<&'a str>,
    actual: Vec<Option<i64>>,
    sequence: Vec<Option<i64>>,
    principal: Vec<&'a str>,
    capability: Vec<&'a str>,
    is_read: Vec<bool>,
    cost: Vec<i64>,
    may_cost: Vec<bool>,
    budget: Vec<Option<i64>>,
    minute: Vec<Option<i64>>,
    day: Vec<Option<i64>>,
    own_minute: Vec<Option<i64>>,
    own_day: Vec<Option<i64>>,
    cooldown: Vec<Option<i64>>,
    running: Vec<Option<i64>>,
    capability_running: Vec<Option<i64>>,
    now: Vec<Option<i64>>,
    edges: [Vec<i64>; 4],
}

impl<'a> Columns<'a> {
    fn new(work: &'a Work) -> Self {
        let mut this = Self::default();
        for ending in &work.endings {
            let actual = match ending.how {
                Ended::Cost(actual) => Some(actual),
                Ended::Released => None,
                Ended::OnRecord => {
                    this.end(NOTHING, &ending.principal, None);
                    continue;
                }
            };
            this.end(ending.sequence, &ending.principal, actual);
        }
        for waiting in &work.requests {
            // Whatever became of it when it was sent before, it is not there any more now.
            if let Some(sequence) = waiting.sequence.filter(|_| waiting.is_uncertain) {
                this.end(sequence, &waiting.request.principal, None);
            }
            this.ask(waiting);
        }
        this
    }

    fn end(&mut self, sequence: i64, principal: &'a str, actual: Option<Micros>) {
        self.ended.push(sequence);
        self.ended_of.push(principal);
        self.actual.push(actual.map(amount));
    }

    fn ask(&mut self, waiting: &'a Waiting) {
        let request = &waiting.request;
        self.sequence.push(waiting.sequence);
        self.principal.push(&request.principal);
        self.capability.push(&request.capability);
        self.is_read.push(request.is_read);
        self.cost.push(amount(request.cost));
        self.may_cost.push(request.may_cost);
        self.budget.push(request.budget.map(amount));
        self.minute.push(request.rates.per_minute.map(i64::from));
        self.day.push(request.rates.per_day.map(i64::from));
        self.own_minute.push(request.own.per_minute.map(i64::from));
        self.own_day.push(request.own.per_day.map(i64::from));
        self.cooldown.push(request.cooldown.map(length));
        self.running.push(request.max_running.map(i64::from));
        self.capability_running
            .push(request.capability_max_running.map(i64::from));
        self.now.push(request.now_ms);
        for (column, edge) in self.edges.iter_mut().zip(request.edges) {
            column.push(edge);
        }
    }

    fn parameters<'b>(&'b self, node: &'b i64, epoch: &'b i64) -> [&'b (dyn ToSql + Sync); 24] {
        [
            node,
            epoch,
            &self.ended,
            &self.ended_of,
            &self.actual,
            &self.sequence,
            &self.principal,
            &self.capability,
            &self.is_read,
            &self.cost,
            &self.may_cost,
            &self.budget,
            &self.minute,
            &self.day,
            &self.own_minute,
            &self.own_day,
            &self.cooldown,
            &self.running,
            &self.capability_running,
            &self.now,
            &self.edges[0],
            &self.edges[1],
            &self.edges[2],
            &self.edges[3],
        ]
    }
}

/// Answer to the caller of a decided request. With a good answer comes a reservation, if one was
/// asked for.
pub(crate) fn answer(waiting: &Waiting, decision: &Decision) -> Result<Remaining, ReserveError> {
    match decision.outcome(&waiting.request) {
        Ok(Ok(())) => Ok(decision.remaining(&waiting.request, waiting.sequence.is_some())),
        // Who only asks how much is left is told that it is nothing.
        Ok(Err(denial)) if waiting.sequence.is_none() => Ok(*denial.remaining),
        Ok(Err(denial)) => Err(ReserveError::Exhausted(denial)),
        Err(error) => Err(unavailable(error)),
    }
}
