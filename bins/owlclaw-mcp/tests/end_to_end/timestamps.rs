//! Time-stamps of checkpoints by a real authority: `openssl ts` behind HTTP.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};
use testkit::{Conversation, GENEROUS, HttpServer, MODERN, wait_until};

use crate::support::{END, Said, Site, call, run};

/// Authority with its keys in a directory.
struct Authority {
    directory: tempfile::TempDir,
    is_down: AtomicBool,
}

impl Authority {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let config = "[req]\ndistinguished_name = name\nprompt = no\n[name]\nCN = authority\n\
            [ca]\nbasicConstraints = critical, CA:true\n\
            [tsa]\nextendedKeyUsage = critical, timeStamping\n\
            [stamps]\nserial = serial\ndefault_policy = 1.2.3.4\ndigests = sha256\nsigner_digest = sha256\n";
        std::fs::write(directory.path().join("config"), config).unwrap();
        let key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -config config";
        for arguments in [
            format!("req -x509 -new {key} -keyout ca.key -out ca.pem -days 30 -extensions ca"),
            format!("req -new {key} -keyout tsa.key -out tsa.csr -subj /CN=stamps"),
            "x509 -req -in tsa.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out tsa.pem -days 30 \
             -extfile config -extensions tsa"
                .to_owned(),
        ] {
            openssl(directory.path(), &arguments);
        }
        Self {
            directory,
            is_down: AtomicBool::new(false),
        }
    }

    /// Answers requests one after the other.
    fn serve(self: Arc<Self>) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                self.answer(stream);
            }
        });
        address
    }

    fn answer(&self, mut stream: TcpStream) {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let (mut head, mut line) = (String::new(), String::new());
        while reader.read_line(&mut line).is_ok_and(|read| 2 < read) {
            head.push_str(&line.to_ascii_lowercase());
            line.clear();
        }
        assert!(
            head.contains("content-type: application/timestamp-query"),
            "{head}"
        );
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "));
        let mut body = vec![0; length.unwrap().parse().unwrap()];
        reader.read_exact(&mut body).unwrap();
        let (status, body) = match self.is_down.load(Ordering::Relaxed) {
            true => ("503 Service Unavailable", Vec::new()),
            false => {
                let directory = self.directory.path();
                std::fs::write(directory.join("query"), body).unwrap();
                openssl(
                    directory,
                    "ts -reply -config config -section stamps -queryfile query -signer tsa.pem \
                     -inkey tsa.key -out answer",
                );
                ("200 OK", std::fs::read(directory.join("answer")).unwrap())
            }
        };
        let length = body.len();
        let _ = write!(
            stream,
            "HTTP/1.1 {status}\r\ncontent-type: application/timestamp-reply\r\n\
             content-length: {length}\r\nconnection: close\r\n\r\n"
        );
        let _ = stream.write_all(&body);
    }
}

fn openssl(directory: &Path, arguments: &str) {
    let output = Command::new("openssl")
        .args(arguments.split_whitespace())
        .current_dir(directory)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "openssl {arguments}: {said}");
}

async fn calls(server: &HttpServer, count: usize) {
    let mut client = server.client().with_header("x-mcp-client-id", "ana");
    client.open(MODERN).await;
    for _ in 0..count {
        client
            .request("tools/call", call("append", json!({"mark": "rent"})))
            .await;
    }
}

async fn stop(mut server: HttpServer) {
    server.process().signal("TERM").await;
    assert!(server.wait_exit(END).await.success());
}

async fn verified(site: &Site) -> Said {
    run(site.command(&["ledger", "verify", "--require-sealed"])).await
}

fn stamps(site: &Site) -> Vec<Value> {
    let text = std::fs::read_to_string(site.path("ledger.db.timestamps")).unwrap_or_default();
    let lines = text.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[tokio::test]
async fn checkpoints_are_stamped_by_an_authority_and_verified_without_it() {
    let authority = Arc::new(Authority::new());
    let address = Arc::clone(&authority).serve();
    let site = Site::new(
        json!({"ledger": {"checkpoint": {"entries": 2}, "timestamps": {
            "url": format!("http://{address}/tsr"), "certificates": "ca.pem",
        }}}),
    );
    let certificate = std::fs::read(authority.directory.path().join("ca.pem")).unwrap();
    site.write("ca.pem", &certificate);
    let server = site.http().await;
    calls(&server, 2).await;
    wait_until("a time-stamp", GENEROUS, || !stamps(&site).is_empty()).await;
    // While the authority is away calls go on; the newest checkpoint is stamped once it is back.
    authority.is_down.store(true, Ordering::Relaxed);
    let before = stamps(&site).len();
    calls(&server, 2).await;
    authority.is_down.store(false, Ordering::Relaxed);
    wait_until("the next one", GENEROUS, || before < stamps(&site).len()).await;
    stop(server).await;

    // The authority is not asked again.
    authority.is_down.store(true, Ordering::Relaxed);
    let sound = verified(&site).await;
    assert_eq!(sound.code, Some(0), "{}{}", sound.output, sound.messages);
    let told = format!("timestamps   {} agree, the last of ", stamps(&site).len());
    assert!(sound.output.contains(&told), "{}", sound.output);

    let file = site.read("ledger.db.timestamps");
    let (database, checkpoints) = (
        std::fs::read(site.path("ledger.db")).unwrap(),
        site.read("ledger.db.checkpoints"),
    );
    let all = stamps(&site);
    let mut changed = all.clone();
    changed[0]["at_us"] = json!(changed[0]["at_us"].as_u64().unwrap() - 1);
    let mut exchanged = all.clone();
    exchanged[0]["token"] = all[all.len() - 1]["token"].clone();
    for lines in [changed, exchanged] {
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        site.write("ledger.db.timestamps", text);
        let damaged = verified(&site).await;
        assert_eq!(damaged.code, Some(1), "{}", damaged.output);
        assert!(
            damaged.output.contains("damaged      a time-stamp: "),
            "{}",
            damaged.output
        );
    }

    // That lines were taken away shows by what the ledger says of them.
    let first = format!("{}\n", all[0]);
    for kept in [None, Some(""), Some(&*first)] {
        match kept {
            None => std::fs::remove_file(site.path("ledger.db.timestamps")).unwrap(),
            Some(kept) => site.write("ledger.db.timestamps", kept),
        };
        let why = "the file was emptied, cut off or taken away";
        let damaged = verified(&site).await;
        assert_eq!(damaged.code, Some(1), "{}", damaged.output);
        assert!(damaged.output.contains(why), "{}", damaged.output);
        let refused = run(site.command(&["start", "--transport", "http"])).await;
        assert_eq!(refused.code, Some(1));
        assert!(refused.messages.contains(why), "{}", refused.messages);
    }
    site.write("ledger.db.timestamps", &file);

    // While a server runs it is not gone on with either.
    authority.is_down.store(false, Ordering::Relaxed);
    let server = site.http().await;
    calls(&server, 2).await;
    let last = |file| {
        let text = site.read(file);
        let line: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
        line["sequence"].clone()
    };
    wait_until("the last one is stamped", GENEROUS, || {
        all.len() < stamps(&site).len()
            && last("ledger.db.timestamps") == last("ledger.db.checkpoints")
    })
    .await;
    let file = site.read("ledger.db.timestamps");
    site.write("ledger.db.timestamps", &first);
    calls(&server, 4).await;
    wait_until("it is told", GENEROUS, || {
        let log = server.stderr();
        log.contains("is gone: put the file back as it was")
    })
    .await;
    assert_eq!(site.read("ledger.db.timestamps"), first);
    site.write("ledger.db.timestamps", &file);
    stop(server).await;
    authority.is_down.store(true, Ordering::Relaxed);
    let all = stamps(&site);

    // Another authority of the same name is not believed, by `verify` or by a start.
    let other = Authority::new();
    site.write(
        "ca.pem",
        std::fs::read(other.directory.path().join("ca.pem")).unwrap(),
    );
    assert_eq!(verified(&site).await.code, Some(1));
    let refused = run(site.command(&["start", "--transport", "http"])).await;
    assert_eq!(refused.code, Some(1));
    assert!(
        refused.messages.contains("not to be believed"),
        "{}",
        refused.messages
    );
    site.write("ca.pem", certificate);

    // A ledger that is older than its last time-stamp is refused, although its own file agrees with it.
    let server = site.http().await;
    authority.is_down.store(false, Ordering::Relaxed);
    calls(&server, 2).await;
    wait_until("a later one", GENEROUS, || all.len() < stamps(&site).len()).await;
    stop(server).await;
    site.write("ledger.db", database);
    site.write("ledger.db.checkpoints", checkpoints);
    let _ = std::fs::remove_file(site.path("ledger.db-wal"));
    let refused = run(site.command(&["start", "--transport", "http"])).await;
    assert_eq!(refused.code, Some(1));
    let why = "ledger.db.timestamps seals entry";
    assert!(refused.messages.contains(why), "{}", refused.messages);
    let accept = [
        "ledger",
        "accept-rollback",
        "--by",
        "ana",
        "--reason",
        "the disk is lost",
    ];
    let accepted = run(site.command(&accept)).await;
    assert_eq!(accepted.code, Some(0), "{}", accepted.messages);
    let server = site.http().await;
    calls(&server, 2).await;
    wait_until("one of now", GENEROUS, || !stamps(&site).is_empty()).await;
    stop(server).await;
    assert_eq!(verified(&site).await.code, Some(0));
}
