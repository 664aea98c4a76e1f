//! A PostgreSQL of one's own, which can be killed.

use std::{
    fs::{self, File},
    io::Write,
    os::unix::{
        fs::{MetadataExt, PermissionsExt, chown},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        OnceLock,
        atomic::{AtomicU32, Ordering},
    },
    thread::sleep,
    time::{Duration, Instant},
};
use tempfile::TempDir;

use crate::{port::free_port, wait::GENEROUS};

/// User that runs the cluster if the tests run as root, which PostgreSQL refuses: `nobody`.
const UNPRIVILEGED: u32 = 65_534;

/// Name of the cluster's superuser, and of its database.
const SUPERUSER: &str = "owlclaw";

/// Asked for by the cluster, and to be looked for where it must not be.
const PASSWORD: &str = "top-secret-7391";

/// Between two looks at whether it has started.
const INTERVAL: Duration = Duration::from_millis(5);

/// Number of other ports tried when another program took the free one.
const MAX_PORTS: u32 = 3;

/// A private PostgreSQL cluster in a temporary directory, listening on a loopback port of its own,
/// with `fsync` on and passwords asked for. Stopped and removed when dropped, and soon after its
/// test is killed.
///
/// Every method blocks the thread until it is done.
///
/// ```no_run
/// # use testkit::Postgres;
/// let Some(mut postgres) = Postgres::start() else { return };
/// assert_eq!(postgres.sql("SELECT 1 + 1"), "2");
/// postgres.kill();
/// postgres.restart();
/// ```
#[derive(Debug)]
pub struct Postgres {
    programs: PathBuf,
    port: u16,
    server: Option<Child>,
    guard: Option<Child>,
    /// Removed after both processes have ended.
    directory: TempDir,
}

impl Postgres {
    /// Makes and starts a cluster; `None`, and a loud line, where PostgreSQL is not installed.
    ///
    /// # Panics
    ///
    /// If it does not start, or if it is not installed and `CI` is `true`: there every test runs.
    #[must_use]
    pub fn start() -> Option<Self> {
        let Some(programs) = programs() else {
            let ci = std::env::var("CI").is_ok_and(|it| it == "true");
            assert!(!ci, "PostgreSQL is not installed");
            // Not captured, as what is printed with a macro would be.
            let _ = std::io::stderr()
                .write_all(b"\n*** SKIPPED, since PostgreSQL is not installed ***\n");
            return None;
        };
        let directory = tempfile::Builder::new()
            .prefix("owlclaw-postgres-")
            .tempdir()
            .expect("a temporary directory can be made");
        let mut this = Self {
            programs,
            port: free_port(),
            server: None,
            guard: None,
            directory,
        };
        this.watch_over();
        this.make_cluster();
        for _ in 0..MAX_PORTS {
            if this.start_server() {
                this.sql_in("postgres", &format!("CREATE DATABASE {SUPERUSER}"));
                return Some(this);
            }
            this.port = free_port();
        }
        panic!("PostgreSQL does not start:\n{}", this.log());
    }

    /// A cluster that all tests of a program share, for those that do not stop it: each takes a
    /// [`Postgres::fresh_database`] of its own. It goes soon after the program.
    #[must_use]
    pub fn shared() -> Option<&'static Self> {
        static SHARED: OnceLock<Option<Postgres>> = OnceLock::new();
        SHARED.get_or_init(Self::start).as_ref()
    }

    /// Makes an empty database with a name that no other has; gives its [`Postgres::url`].
    ///
    /// # Panics
    ///
    /// As [`Postgres::sql`].
    #[must_use]
    pub fn fresh_database(&self) -> String {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        self.create_database(&format!("fresh_{number}"))
    }

    /// Address with which the superuser connects to the database [`Postgres::start`] made, password
    /// included.
    #[must_use]
    pub fn url(&self) -> String {
        self.url_as(SUPERUSER, PASSWORD, SUPERUSER)
    }

    /// Address with which a user connects to a database.
    #[must_use]
    pub fn url_as(&self, user: &str, password: &str, database: &str) -> String {
        format!(
            "postgres://{user}:{password}@127.0.0.1:{}/{database}",
            self.port
        )
    }

    /// Makes an empty database; gives its [`Postgres::url`].
    ///
    /// # Panics
    ///
    /// As [`Postgres::sql`].
    #[must_use]
    pub fn create_database(&self, name: &str) -> String {
        self.sql(&format!("CREATE DATABASE {name}"));
        self.url_as(SUPERUSER, PASSWORD, name)
    }

    /// Password of the superuser, for tests that check whether it shows.
    #[must_use]
    pub fn password(&self) -> &'static str {
        PASSWORD
    }

    /// The loopback port it listens on, also while it is down.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Has the server offer encrypted connections with this certificate and key, in PEM. With `authority`,
    /// encrypted connections need a certificate of the client that this authority has signed.
    ///
    /// # Panics
    ///
    /// If a file cannot be written, or the server does not take it.
    pub fn encrypt(&self, certificate: &str, key: &str, authority: Option<&str>) {
        let keep = |name: &str, text: &str| {
            let path = self.data().join(name);
            fs::write(&path, text).expect("a file can be written");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("it is ours");
            if !is_ours(self.directory.path()) {
                chown(&path, Some(UNPRIVILEGED), Some(UNPRIVILEGED)).expect("root may do this");
            }
        };
        keep("server.crt", certificate);
        keep("server.key", key);
        if let Some(authority) = authority {
            keep("root.crt", authority);
            self.sql("ALTER SYSTEM SET ssl_ca_file = 'root.crt'");
            let rules = fs::read_to_string(self.data().join("pg_hba.conf")).expect("it was made");
            let rule = "hostssl all all 127.0.0.1/32 scram-sha-256 clientcert=verify-ca\n";
            keep("pg_hba.conf", &(rule.to_owned() + &rules));
        }
        self.sql("ALTER SYSTEM SET ssl = on");
        assert_eq!(self.sql("SELECT pg_reload_conf()"), "t");
        // It is reread by a process of its own, a moment later.
        let end = Instant::now() + GENEROUS;
        while self.sql("SHOW ssl") != "on" {
            assert!(
                Instant::now() < end,
                "the server takes its certificate: {}",
                self.log()
            );
            sleep(INTERVAL);
        }
    }

    /// Runs statements as the superuser; gives what they answer, columns divided by `|`.
    ///
    /// # Panics
    ///
    /// If one of them fails.
    pub fn sql(&self, statements: &str) -> String {
        self.sql_in(SUPERUSER, statements)
    }

    /// As [`Postgres::sql`], in another database.
    ///
    /// # Panics
    ///
    /// If one of the statements fails.
    pub fn sql_in(&self, database: &str, statements: &str) -> String {
        let output = self
            .command("psql")
            .args(["--no-psqlrc", "--no-align", "--tuples-only", "--quiet"])
            .args(["--set=ON_ERROR_STOP=1", "--command", statements])
            .arg(self.url_as(SUPERUSER, PASSWORD, database))
            .output()
            .expect("psql starts");
        assert!(
            output.status.success(),
            "{statements}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8_lossy(&output.stdout)
            .trim_end()
            .to_owned()
    }

    /// Shuts it down in good order: connections are closed, everything is written.
    pub fn stop(&mut self) {
        if let Some(mut server) = self.server.take() {
            self.resume_processes(server.id());
            signal("INT", &[server.id()]);
            server.wait().expect("a child can be waited for");
        }
    }

    /// Kills all of its processes at once, as a loss of power does.
    pub fn kill(&mut self) {
        if let Some(mut server) = self.server.take() {
            let children = hold(server.id());
            signal("KILL", &[server.id()]);
            signal("KILL", &children);
            server.wait().expect("a child can be waited for");
            let end = Instant::now() + GENEROUS;
            while !children.iter().all(|&child| has_ended(child)) {
                assert!(Instant::now() < end, "a killed process ends");
                sleep(INTERVAL);
            }
        }
    }

    /// Starts it again, on the same port; if it runs, it is stopped before.
    ///
    /// # Panics
    ///
    /// If it does not start.
    pub fn restart(&mut self) {
        self.stop();
        assert!(
            self.start_server(),
            "PostgreSQL does not start again:\n{}",
            self.log()
        );
    }

    /// Stops all of its processes where they are: connections stay, and get no answer.
    pub fn pause(&self) {
        if let Some(server) = &self.server {
            signal("STOP", &hold(server.id()));
        }
    }

    /// Lets it go on after [`Postgres::pause`].
    pub fn resume(&self) {
        if let Some(server) = &self.server {
            self.resume_processes(server.id());
        }
    }

    /// Log of the server.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }

    fn resume_processes(&self, server: u32) {
        signal("CONT", &children(server));
        signal("CONT", &[server]);
    }

    fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    /// A program of PostgreSQL's, run as a user that is not root.
    fn command(&self, name: &str) -> Command {
        let mut command = Command::new(self.programs.join(name));
        command
            .stdin(Stdio::null())
            .current_dir(self.directory.path())
            .env_remove("PGOPTIONS")
            .env("LC_ALL", "C");
        if is_ours(self.directory.path()) {
            return command;
        }
        command.uid(UNPRIVILEGED).gid(UNPRIVILEGED);
        command
    }

    fn make_cluster(&self) {
        let path = self.directory.path();
        let password = path.join("password");
        fs::write(&password, PASSWORD).expect("a file can be written");
        if fs::metadata(path).expect("it was made").uid() == 0 {
            for path in [path, &password] {
                chown(path, Some(UNPRIVILEGED), Some(UNPRIVILEGED)).expect("root may do this");
            }
        }
        fs::set_permissions(path, fs::Permissions::from_mode(0o700)).expect("it is ours");
        // What is lost when this machine goes down is of no use to anybody; the server syncs.
        let output = self
            .command("initdb")
            .args(["--no-sync", "--encoding=UTF8", "--no-locale"])
            .args(["--auth=scram-sha-256", "--pwfile", "password"])
            .args(["--username", SUPERUSER, "--pgdata", "data"])
            .output()
            .expect("initdb starts");
        assert!(
            output.status.success(),
            "initdb failed: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }

    /// Starts the server and waits until it answers; returns true if it does.
    fn start_server(&mut self) -> bool {
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.directory.path().join("log"))
            .expect("a file can be written");
        let mut server = self
            .command("postgres")
            .args(["-D", "data", "-c", "listen_addresses=127.0.0.1"])
            .args(["-c", &format!("port={}", self.port)])
            .arg("-c")
            .arg("unix_socket_directories=")
            .args(["-c", "fsync=on", "-c", "synchronous_commit=on"])
            .args(["-c", "shared_buffers=32MB", "-c", "max_connections=60"])
            .stdout(log.try_clone().expect("a file can be shared"))
            .stderr(log)
            .spawn()
            .expect("postgres starts");
        let end = Instant::now() + GENEROUS;
        // Where pg_ctl looks, too: the process in the first line, its state in the eighth.
        let state = self.data().join("postmaster.pid");
        loop {
            let state = fs::read_to_string(&state).unwrap_or_default();
            let mut lines = state.lines();
            let process = lines.next().and_then(|line| line.parse().ok());
            let ready = lines.nth(6).is_some_and(|line| line.trim() == "ready");
            if process == Some(server.id()) && ready {
                self.server = Some(server);
                return true;
            }
            if matches!(server.try_wait(), Ok(Some(_))) {
                return false;
            }
            if end < Instant::now() {
                let _ = server.kill();
                let _ = server.wait();
                return false;
            }
            sleep(INTERVAL);
        }
    }

    /// Starts a process that outlives this one for a moment: the end of its input is our end,
    /// however that comes.
    fn watch_over(&mut self) {
        // What made the cluster may go on for a while, so there is more than one attempt.
        let script = r#"cat > /dev/null
            for attempt in 1 2 3 4 5; do
                kill -KILL "$(head -n 1 "$0/data/postmaster.pid")"
                rm -rf "$0"
                sleep 1
            done"#;
        let guard = Command::new("sh")
            .args(["-c", script])
            .arg(self.directory.path())
            // A key typed to end the tests must not end it.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("a shell starts");
        self.guard = Some(guard);
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        if let Some(mut guard) = self.guard.take() {
            let _ = guard.kill();
            let _ = guard.wait();
        }
        self.kill();
    }
}

/// Directory of the newest PostgreSQL's programs: Debian keeps them off the path.
fn programs() -> Option<PathBuf> {
    let debian = fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    let mut versions: Vec<(u32, PathBuf)> = debian
        .flatten()
        .filter_map(|entry| {
            let version = entry.file_name().to_str()?.parse().ok()?;
            Some((version, entry.path().join("bin")))
        })
        .collect();
    versions.sort();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let others = std::env::split_paths(&path);
    let newest_first = versions.into_iter().rev().map(|(_, directory)| directory);
    newest_first.chain(others).find(|directory| {
        let has = |name| directory.join(name).is_file();
        has("initdb") && has("postgres") && has("psql")
    })
}

/// Returns true if the directory belongs to the user of this process, rather than to the user that
/// the cluster runs as for root.
fn is_ours(directory: &Path) -> bool {
    let owner = |path: &Path| fs::metadata(path).map(|it| it.uid()).ok();
    owner(Path::new("/proc/self")) == owner(directory)
}

/// The processes whose parent this is.
fn children(parent: u32) -> Vec<u32> {
    let processes = fs::read_dir("/proc").expect("there is a /proc");
    processes
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|&process| parent_of(process) == Some(parent))
        .collect()
}

/// Stops a server, so that it starts no further processes, and counts those it has.
fn hold(server: u32) -> Vec<u32> {
    signal("STOP", &[server]);
    let end = Instant::now() + GENEROUS;
    while state_of(server) != Some('T') {
        assert!(Instant::now() < end, "a process can be stopped");
        sleep(INTERVAL);
    }
    children(server)
}

/// State of a process: `T` if it is stopped, `Z` if it has ended and its parent has not waited for
/// it.
fn state_of(process: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

fn has_ended(process: u32) -> bool {
    matches!(state_of(process), None | Some('Z'))
}

fn parent_of(process: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
    line.trim().parse().ok()
}

/// Sends a signal by its short name to those of the processes that still run.
fn signal(name: &str, processes: &[u32]) {
    if processes.is_empty() {
        return;
    }
    let mut kill = Command::new("kill");
    kill.arg(format!("-{name}"))
        .args(processes.iter().map(u32::to_string))
        .stderr(Stdio::null());
    kill.status().expect("kill starts");
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpStream;

    #[test]
    fn what_is_committed_outlives_a_kill_and_what_is_dropped_is_gone() {
        let Some(mut postgres) = Postgres::start() else {
            return;
        };
        let answer = postgres.sql("CREATE TABLE kept (it int); INSERT INTO kept VALUES (7)");
        assert_eq!(answer, "");
        let before = children(postgres.server.as_ref().unwrap().id());
        assert!(3 < before.len());
        postgres.kill();
        assert!(TcpStream::connect(("127.0.0.1", postgres.port())).is_err());
        assert!(before.into_iter().all(has_ended));
        postgres.restart();
        assert_eq!(postgres.sql("SELECT * FROM kept"), "7");
        assert!(postgres.log().contains("not properly shut down"));
        postgres.stop();
        postgres.restart();
        assert_eq!(
            postgres.sql("SELECT current_user, current_database()"),
            "owlclaw|owlclaw"
        );
        assert_eq!(postgres.sql("SHOW fsync"), "on");

        let (directory, port) = (postgres.directory.path().to_owned(), postgres.port());
        drop(postgres);
        assert!(!directory.exists());
        assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
    }

    #[test]
    fn a_paused_server_answers_when_it_goes_on() {
        let Some(postgres) = Postgres::start() else {
            return;
        };
        let url = postgres.create_database("other");
        assert!(url.ends_with("/other"));
        postgres.pause();
        let server = postgres.server.as_ref().unwrap().id();
        let stopped = |process| matches!(state_of(process), None | Some('T' | 'Z'));
        let end = Instant::now() + GENEROUS;
        while !children(server).into_iter().chain([server]).all(stopped) {
            assert!(Instant::now() < end, "all of it stops");
            sleep(INTERVAL);
        }
        postgres.resume();
        assert_eq!(postgres.sql_in("other", "SELECT 1"), "1");
    }

    #[test]
    fn passwords_are_asked_for() {
        let Some(postgres) = Postgres::start() else {
            return;
        };
        let with = |password| {
            let url = postgres.url_as(SUPERUSER, password, SUPERUSER);
            let mut psql = postgres.command("psql");
            psql.args(["-c", "SELECT 1"]).arg(url).output().unwrap()
        };
        assert!(with(postgres.password()).status.success());
        assert!(!with("wrong").status.success());
    }
}
