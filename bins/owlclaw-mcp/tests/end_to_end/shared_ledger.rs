//! Several servers with one ledger and one set of quotas, in a real PostgreSQL.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use ledger::{Filter, PostgresOptions, PostgresReader, ReadLedger};
use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::{
    GENEROUS, HttpClient, HttpConnection, HttpRequest, HttpServer, Postgres, failure_of, succeeded,
};
use tokio::{task::JoinSet, time::sleep};

use crate::{
    support::{Site, call, run},
    tls::Authority,
};

/// Clients, spread over the servers.
const CLIENTS: usize = 64;

/// Calls that the budget covers, to the last unit.
const COVERED: usize = 200;

/// A client that was told to come back waits this long.
const PAUSE: Duration = Duration::from_millis(50);

/// Outcomes of the calls that were answered.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Answers {
    succeeded: usize,
    /// Refused because the budget is spent.
    spent: usize,
    /// Calls whose server went before it answered.
    unanswered: usize,
}

fn site(url: &str) -> Site {
    Site::new(json!({
        "ledger": {"path": null, "url": url},
        "tasks": {"path": "tasks.db"},
        "governance": {
            "default_quota": {
                "monthly_budget": "2.00",
                "max_calls_per_minute": 1_000_000, "max_calls_per_day": 1_000_000,
            },
            "tools": {"append": {"estimated_cost": "0.01"}},
        },
    }))
}

/// Calls until the budget is spent, or the server is gone. `turned_away` counts whoever is told to
/// come back.
async fn spend(address: SocketAddr, name: String, turned_away: Arc<AtomicUsize>) -> Answers {
    let mut answers = Answers::default();
    let mut connection = None;
    for index in 0.. {
        let message = json!({
            "jsonrpc": "2.0", "id": index, "method": "tools/call",
            "params": call("append", json!({"mark": format!("{name}-{index}")})),
        });
        let request =
            HttpRequest::post("/mcp", message.to_string()).header("X-MCP-Client-ID", "treasury");
        let open = match connection.take() {
            Some(open) => open,
            None => match HttpConnection::connect(address).await {
                Ok(open) => open,
                Err(_) => return answers,
            },
        };
        let Some((answer, open)) = exchange(open, &request).await else {
            answers.unanswered += 1;
            return answers;
        };
        connection = Some(open);
        if succeeded(&answer) {
            answers.succeeded += 1;
            continue;
        }
        let refused = failure_of(&answer);
        match refused["data"]["reason"].as_str() {
            Some("budget") => {
                answers.spent += 1;
                return answers;
            }
            // The database is away; nothing was used up, and the call can be made again.
            Some("ledger_unavailable" | "store_unavailable") => {
                turned_away.fetch_add(1, Ordering::Relaxed);
                sleep(PAUSE).await;
            }
            _ => panic!("{answer}"),
        }
    }
    answers
}

async fn exchange(
    mut connection: HttpConnection,
    request: &HttpRequest,
) -> Option<(Value, HttpConnection)> {
    connection.send_bytes(&request.to_bytes()).await.ok()?;
    let head = connection.read_head().await.ok()?;
    let mut body = connection.into_body(&head, false);
    let mut all = Vec::new();
    while let Some(piece) = body.try_next().await.ok()? {
        all.extend(piece);
    }
    let answer = serde_json::from_slice(&all).expect("an answer is JSON");
    Some((answer, body.into_connection()))
}

/// Two servers, and everybody who spends.
struct Spending {
    sites: [Site; 2],
    servers: [HttpServer; 2],
    clients: JoinSet<Answers>,
    turned_away: Arc<AtomicUsize>,
}

impl Spending {
    async fn begin(url: &str) -> Self {
        let sites = [site(url), site(url)];
        let servers = [sites[0].http().await, sites[1].http().await];
        let mut clients = JoinSet::new();
        let turned_away = Arc::default();
        for client in 0..CLIENTS {
            let address = servers[client % servers.len()].address();
            let turned_away = Arc::clone(&turned_away);
            clients.spawn(spend(address, format!("client-{client}"), turned_away));
        }
        Self {
            sites,
            servers,
            clients,
            turned_away,
        }
    }

    fn executed(&self) -> usize {
        let lines = |site: &Site| site.read("executed").lines().count();
        self.sites.iter().map(lines).sum()
    }

    async fn until_executed(&self, least: usize) {
        testkit::wait_until("some calls were carried out", GENEROUS, || {
            least <= self.executed()
        })
        .await;
    }

    /// Waits until clients have been told to come back, each of them several times on average.
    async fn until_turned_away(&self) {
        let least = self.turned_away.load(Ordering::Relaxed) + 3 * CLIENTS;
        testkit::wait_until("clients were told to come back", GENEROUS, || {
            least <= self.turned_away.load(Ordering::Relaxed)
        })
        .await;
    }

    /// Spends all that the budget covers, and stops: everybody was answered, and the ledger says so.
    async fn end_exactly(mut self, postgres: &Postgres) {
        let answers = self.end().await;
        let expected = Answers {
            succeeded: COVERED,
            spent: CLIENTS,
            unanswered: 0,
        };
        assert_eq!(answers, expected);
        assert_eq!(self.executed(), COVERED);
        for server in &mut self.servers {
            server.process().signal("TERM").await;
            server.wait_exit(GENEROUS).await;
        }
        assert_eq!(Self::recorded(postgres, "succeeded"), COVERED);
        self.verify().await;
    }

    /// Outcomes of all calls, once no client can spend any more.
    async fn end(&mut self) -> Answers {
        let mut all = Answers::default();
        while let Some(answers) = self.clients.join_next().await {
            let answers = answers.unwrap();
            all.succeeded += answers.succeeded;
            all.spent += answers.spent;
            all.unanswered += answers.unanswered;
        }
        all
    }

    /// Number of calls that ended like this according to the ledger.
    fn recorded(postgres: &Postgres, outcome: &str) -> usize {
        let options = PostgresOptions::new(&postgres.url()).unwrap();
        let mut reader = PostgresReader::open(&options).unwrap();
        let filter = Filter {
            outcome: Some(outcome),
            ..Filter::default()
        };
        reader.recent(usize::MAX, filter).unwrap().len()
    }

    async fn verify(&self) {
        let verified = run(self.sites[0].command(&["ledger", "verify"])).await;
        // Beside servers that run, or after one was killed, the end is not sealed.
        assert!(
            matches!(verified.code, Some(0 | 3)),
            "{}{}",
            verified.output,
            verified.messages
        );
    }
}

#[tokio::test]
async fn two_servers_never_spend_more_than_one_budget() {
    let Some(postgres) = Postgres::start() else {
        return;
    };
    let spending = Spending::begin(&postgres.url()).await;
    spending.end_exactly(&postgres).await;
}

#[tokio::test]
async fn the_ledger_the_counters_and_the_commands_use_encrypted_connections() {
    let Some(postgres) = Postgres::start() else {
        return;
    };
    let authority = Authority::new();
    let issued = authority.issue(|_| {});
    postgres.encrypt(&issued.pem(), &issued.key_pem(), None);
    let directory = TempDir::new().unwrap();
    let trusted = directory.path().join("database.pem");
    std::fs::write(&trusted, authority.pem()).unwrap();
    let url = format!(
        "{}?sslmode=verify-full&sslrootcert={}",
        postgres.url(),
        trusted.display()
    );
    let site = Site::new(json!({
        "ledger": {"path": null, "url": url},
        "tasks": {"path": "tasks.db"},
    }));
    let mut server = site.http().await;
    let message = json!({
        "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": call("spend", json!({"usd": "0.30"})),
    });
    let request = HttpRequest::post("/mcp", message.to_string());
    let connection = HttpConnection::connect(server.address()).await.unwrap();
    let (answer, _) = exchange(connection, &request).await.unwrap();
    assert!(succeeded(&answer), "{answer}");
    let connections = postgres.sql(
        "SELECT application_name, bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
         WHERE application_name LIKE 'owlclaw%' GROUP BY 1 ORDER BY 1",
    );
    assert_eq!(
        connections,
        "owlclaw-mcp cluster|t\nowlclaw-mcp ledger|t\nowlclaw-quota|t"
    );
    server.process().signal("TERM").await;
    server.wait_exit(GENEROUS).await;
    let verified = run(site.command(&["ledger", "verify"])).await;
    assert_eq!(
        verified.code,
        Some(0),
        "{}{}",
        verified.output,
        verified.messages
    );

    // Another authority has not signed the certificate of this server.
    std::fs::write(&trusted, Authority::new().pem()).unwrap();
    for command in [
        &["start", "--transport", "http"][..],
        &["doctor"],
        &["ledger", "verify"],
    ] {
        let refused = run(site.command(command)).await;
        let said = format!("{}{}", refused.output, refused.messages);
        assert_ne!(refused.code, Some(0), "{command:?}: {said}");
        assert!(
            said.contains("no encrypted connection"),
            "{command:?}: {said}"
        );
        assert!(said.contains("sslrootcert"), "{command:?}: {said}");
        assert!(
            said.contains("invalid peer certificate"),
            "{command:?}: {said}"
        );
        assert!(!said.contains(postgres.password()), "{command:?}: {said}");
    }
}

/// Default number of budgets that are spent; `OWLCLAW_BUDGET_ROUNDS` sets another one.
const ROUNDS: u64 = 5;

#[tokio::test]
async fn two_servers_never_spend_more_than_a_budget_on_calls_that_cost_more_than_expected() {
    let Some(postgres) = Postgres::start() else {
        return;
    };
    let rounds = std::env::var("OWLCLAW_BUDGET_ROUNDS").map_or(ROUNDS, |text| {
        text.parse().expect("OWLCLAW_BUDGET_ROUNDS is a number")
    });
    let sites = [0, 1].map(|_| {
        Site::new(json!({
            "ledger": {"path": null, "url": postgres.url()},
            "tasks": {"path": "tasks.db"},
            "governance": {"default_quota": {"monthly_budget": "2.00"}},
        }))
    });
    let servers = [sites[0].http().await, sites[1].http().await];
    for round in 0..rounds {
        let spend = async |index: usize| {
            let message = json!({
                "jsonrpc": "2.0", "id": 1, "method": "tools/call",
                "params": call("spend", json!({"usd": "0.30"})),
            });
            let request = HttpRequest::post("/mcp", message.to_string())
                .header("X-MCP-Client-ID", &format!("treasury-{round}"));
            let address = servers[index % 2].address();
            let connection = HttpConnection::connect(address).await.unwrap();
            let (answer, _) = exchange(connection, &request).await.unwrap();
            if succeeded(&answer) {
                return 1;
            }
            assert_eq!(failure_of(&answer)["data"]["reason"], "budget", "{answer}");
            0_u64
        };
        // From the first on it is known what such a call costs.
        let mut succeeded = spend(0).await;
        for index in 0..4 {
            let (one, other, third, fourth) = tokio::join!(
                spend(index),
                spend(index + 1),
                spend(index),
                spend(index + 1)
            );
            succeeded += one + other + third + fourth;
        }
        assert_eq!(
            succeeded, 6,
            "round {round}: 2.00 has room for 6 times 0.30"
        );
    }
}

#[tokio::test]
async fn a_server_that_is_killed_takes_with_it_only_what_its_open_calls_cost() {
    let Some(postgres) = Postgres::start() else {
        return;
    };
    let mut spending = Spending::begin(&postgres.url()).await;
    spending.until_executed(COVERED / 4).await;
    spending.servers[0].process().signal("KILL").await;
    let answers = spending.end().await;
    assert!(spending.executed() <= COVERED, "{answers:?}");
    // The budget is spent to the last unit: by calls that succeeded and by those of which nobody
    // knows. Each of the killed server's clients had one call open at the most.
    assert_eq!(answers.spent, CLIENTS / 2, "{answers:?}");
    let charged = answers.succeeded + answers.unanswered;
    assert!(
        answers.succeeded <= COVERED && COVERED <= charged,
        "{answers:?}"
    );
    spending.servers[1].process().signal("TERM").await;
    let (_, second) = spending.servers.split_at_mut(1);
    second[0].wait_exit(GENEROUS).await;
    spending.verify().await;
}

#[tokio::test]
async fn a_database_that_is_killed_and_comes_back_loses_nothing() {
    let Some(mut postgres) = Postgres::start() else {
        return;
    };
    let spending = Spending::begin(&postgres.url()).await;
    spending.until_executed(COVERED / 4).await;
    postgres.kill();
    spending.until_turned_away().await;
    let meanwhile = spending.executed();
    spending.until_turned_away().await;
    assert_eq!(
        spending.executed(),
        meanwhile,
        "nothing runs while nothing can be recorded"
    );
    postgres.restart();
    spending.end_exactly(&postgres).await;
}

#[tokio::test]
async fn an_approval_given_anywhere_is_used_once_on_any_server() {
    let Some(postgres) = Postgres::start() else {
        return;
    };
    let sites = [0, 1].map(|_| {
        Site::new(json!({
            "ledger": {"path": null, "url": postgres.url()},
            "tasks": {"path": "tasks.db"},
            "governance": {"tools": {"append": {"risk": ["financial"]}}},
        }))
    });
    let servers = [sites[0].http().await, sites[1].http().await];
    let ask = async |server: &HttpServer, arguments: Value| {
        let message = json!({
            "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call("append", arguments),
        });
        let request =
            HttpRequest::post("/mcp", message.to_string()).header("X-MCP-Client-ID", "treasury");
        let connection = HttpConnection::connect(server.address()).await.unwrap();
        exchange(connection, &request).await.unwrap().0
    };
    let pending = |answer: &Value| {
        let data = &failure_of(answer)["data"];
        assert_eq!(data["reason"], "confirmation", "{answer}");
        assert_eq!(data["approval"]["state"], "pending", "{answer}");
        data["approval"]["id"].as_str().unwrap().to_owned()
    };
    // A card number, so that each server's record of it looks different: their keys do.
    let arguments = json!({"mark": "4111 1111 1111 1111"});
    let first = pending(&ask(&servers[0], arguments.clone()).await);
    assert_eq!(pending(&ask(&servers[1], arguments.clone()).await), first);
    let words = ["approvals", "approve", &first, "--by", "alice"];
    let approved = run(sites[0].command(&words)).await;
    assert_eq!(approved.code, Some(0), "{}", approved.messages);
    pending(&ask(&servers[1], json!({"mark": "4012 8888 8888 1881"})).await);
    let answers = tokio::join!(
        ask(&servers[0], arguments.clone()),
        ask(&servers[1], arguments.clone()),
        ask(&servers[0], arguments.clone()),
        ask(&servers[1], arguments.clone()),
    );
    let answers: [Value; 4] = answers.into();
    let succeeded = answers.iter().filter(|it| succeeded(it));
    assert_eq!(succeeded.count(), 1, "{answers:?}");
    let lines = |site: &Site| site.read("executed").lines().count();
    assert_eq!(sites.iter().map(lines).sum::<usize>(), 1);
    assert_ne!(pending(&ask(&servers[1], arguments).await), first);
}

#[tokio::test]
async fn counters_that_somebody_lowers_or_empties_free_no_budget() {
    let Some(postgres) = Postgres::start() else {
        return;
    };
    let mut spending = Spending::begin(&postgres.url()).await;
    // Calls are running when the counters are gone.
    spending.until_executed(COVERED / 4).await;
    postgres.sql(
        "DO $$ BEGIN LOOP BEGIN
            TRUNCATE owlclaw_quota_principal, owlclaw_quota_counter, owlclaw_quota_bucket; EXIT;
         EXCEPTION WHEN deadlock_detected THEN NULL; END; END LOOP; END $$",
    );
    let answers = spending.end().await;
    assert!(spending.executed() <= COVERED, "{answers:?}");
    assert_eq!(answers.spent, CLIENTS, "{answers:?}");
    let mut told = String::new();
    for server in &spending.servers {
        let client = HttpClient::new(server.address());
        told += client.exchange(&HttpRequest::get("/health")).await.text();
    }
    assert!(told.contains("counters_raised"), "{told}");
    for server in &mut spending.servers {
        server.process().signal("TERM").await;
        server.wait_exit(GENEROUS).await;
    }
    spending.verify().await;

    postgres.sql("UPDATE owlclaw_quota_principal SET spent = 10000");
    let verified = run(spending.sites[0].command(&["ledger", "verify"])).await;
    assert_eq!(verified.code, Some(1), "{}", verified.output);
    let expected = "lower        treasury: 0.01 of this month's budget, ";
    assert!(verified.output.contains(expected), "{}", verified.output);
    let doctor = run(spending.sites[0].command(&["doctor"])).await;
    assert!(
        doctor.output.contains("a counter is too low: treasury"),
        "{}",
        doctor.output
    );

    let executed = spending.executed();
    let server = spending.sites[0].http().await;
    let address = server.address();
    let answers = spend(address, "afterwards".to_owned(), Arc::default()).await;
    assert!(spending.executed() <= COVERED.max(executed), "{answers:?}");
    assert_eq!(answers.spent, 1, "{answers:?}");
    drop(server);
    spending.verify().await;
    let notes = run(spending.sites[0].command(&["ledger", "export"])).await;
    assert!(notes.output.contains("counters_raised"), "{}", notes.output);
}
