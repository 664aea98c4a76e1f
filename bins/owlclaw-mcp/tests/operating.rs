//! Work of an operator at a terminal: inspecting a broken server, setting up a new one, getting
//! help.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

struct Said {
    output: String,
    messages: String,
    code: i32,
}

impl From<Output> for Said {
    fn from(output: Output) -> Self {
        Self {
            output: String::from_utf8(output.stdout).expect("it prints text"),
            messages: String::from_utf8(output.stderr).expect("it prints text"),
            code: output.status.code().expect("it exits"),
        }
    }
}

fn directory(file: &str) -> TempDir {
    let directory = tempfile::tempdir().expect("a directory can be made");
    if !file.is_empty() {
        std::fs::write(directory.path().join("mcp-server.yaml"), file).expect("writable");
    }
    directory
}

fn program() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_owlclaw-mcp"))
}

fn command(path: &Path, directory: &TempDir, words: &[&str]) -> Command {
    let mut command = Command::new(path);
    command
        .args(words)
        .current_dir(directory.path())
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .stdin(Stdio::null());
    command
}

fn say(directory: &TempDir, words: &str) -> Said {
    let words: Vec<&str> = words.split_whitespace().collect();
    let output = command(program(), directory, &words).output();
    output.expect("the program starts").into()
}

/// A ledger with nothing in it, and a configuration that is wrong everywhere else.
const WRONG_ELSEWHERE: &str = "\
mcp_server:
  ledger: {path: ledger.db}
  htpp: {port: 1}
  http: {port: x, tls: {cert_file: '${NO_SUCH}'}}
  governance: {currency: euro}
  logging: {level: LOUD}
  logging: {level: INFO}
";

fn with_ledger(file: &str) -> TempDir {
    let directory = directory(file);
    let path = directory.path().join("ledger.db");
    drop(ledger::SqliteLedger::open(path, ledger::Durability::Strict).expect("it can be made"));
    directory
}

#[test]
fn operators_look_into_the_ledger_whatever_is_wrong_elsewhere() {
    let directory = with_ledger(WRONG_ELSEWHERE);
    for words in [
        "ledger query",
        "ledger tail",
        "ledger unresolved",
        "ledger export",
        "ledger verify",
        "governance stats",
        "approvals list",
    ] {
        let said = say(&directory, words);
        assert_eq!(said.code, 0, "{words}: {}", said.messages);
        // The operator is told, once for each, and that it matters.
        for part in ["htpp", "`http.port`", "NO_SUCH", "currency", "`logging`"] {
            assert!(said.messages.contains(part), "{words}: {}", said.messages);
        }
        assert!(!said.messages.contains("error:"), "{}", said.messages);
        assert!(said.messages.contains("the server does not start"));
        let quiet = say(&directory, &format!("{words} --quiet"));
        assert_eq!((quiet.code, quiet.messages.as_str()), (0, ""), "{words}");
    }
    let said = say(
        &directory,
        "approvals show apr_01981c5e-0000-7000-8000-000000000000",
    );
    assert!(!said.messages.contains("not valid"), "{}", said.messages);
    // What decides of a call has to be right to be explained; and a server wants all of it.
    for words in [
        "governance explain --as a --tool b",
        "start",
        "config validate",
    ] {
        let said = say(&directory, words);
        assert_eq!(said.code, 2, "{words}: {}", said.messages);
        assert!(said.messages.contains("not valid"), "{}", said.messages);
    }
}

#[test]
fn nobody_is_shown_another_ledger_than_the_servers() {
    for (file, why) in [
        (
            "mcp_server:\n  ledgr: {path: ledger.db}\n",
            "did you mean `ledger`?",
        ),
        (
            "mcp_server:\n  ledger: {pth: ledger.db}\n",
            "did you mean `ledger.path`?",
        ),
        (
            "mcp_server:\n  ledger: {path: a.db}\n  ledger: {path: ledger.db}\n",
            "a second time",
        ),
        ("mcp_server:\n  ledger: {path: '${NO_SUCH}'}\n", "NO_SUCH"),
        ("ledger: {path: ledger.db}\n", "move `ledger` under"),
        (
            "mcp-server: {ledger: {path: ledger.db}}\n",
            "the only key at the top",
        ),
        ("mcp_server: {ledger: [\n", "not valid YAML"),
    ] {
        let said = say(&with_ledger(file), "ledger query");
        assert_eq!(said.code, 2, "{file}: {}", said.messages);
        assert!(said.messages.contains(why), "{file}: {}", said.messages);
    }
}

#[test]
fn a_file_to_begin_with_is_written_once_and_is_right() {
    let directory = directory("");
    let said = say(&directory, "config init");
    assert_eq!(said.code, 0, "{}", said.messages);
    assert!(said.messages.contains("mcp-server.yaml is written"));
    let validated = say(&directory, "config validate");
    assert_eq!((validated.code, validated.messages.as_str()), (0, ""));

    let path = directory.path().join("mcp-server.yaml");
    std::fs::write(&path, "mcp_server: {}\n").expect("writable");
    let again = say(&directory, "config init");
    assert_eq!(again.code, 1);
    assert!(
        again.messages.contains("left as it is"),
        "{}",
        again.messages
    );
    assert_eq!(
        std::fs::read_to_string(path).expect("there"),
        "mcp_server: {}\n"
    );
    let printed = say(&directory, "config init --output -");
    assert!(printed.output.contains("mcp_server:") && printed.code == 0);
}

#[test]
fn the_example_command_of_config_init_reads_only_its_directory() {
    let directory = directory("");
    say(&directory, "config init");
    let path = directory.path().join("mcp-server.yaml");
    let text = std::fs::read_to_string(&path).expect("there");
    let begin = text.find("#  commands:").expect("there is an example");
    let end = begin + text[begin..].find("\n\n").expect("it ends");
    let example = text[begin..end].replace('#', "");
    std::fs::write(&path, text.replace(&text[begin..end], &example)).expect("writable");
    std::fs::create_dir(directory.path().join("reports")).expect("a directory can be made");
    for name in ["reports/july.txt", "secret.txt"] {
        std::fs::write(directory.path().join(name), "one\n").expect("writable");
    }
    let call = |report: &str| {
        let words = ["tools", "call", "count-lines", "--args"];
        let arguments = serde_json::json!({ "report": report }).to_string();
        let words: Vec<&str> = words.into_iter().chain([arguments.as_str()]).collect();
        Said::from(
            command(program(), &directory, &words)
                .output()
                .expect("it starts"),
        )
    };
    let said = call("july");
    assert_eq!(said.code, 0, "{}", said.messages);
    assert!(said.output.contains('1'), "{}", said.output);
    for outside in ["../secret", "a/../../secret", "/etc/passwd", "..", "july\n"] {
        let said = call(outside);
        assert_eq!(said.code, 1, "{outside}: {}", said.output);
        assert!(
            said.messages.contains("/report"),
            "{outside}: {}",
            said.messages
        );
    }
}

#[test]
fn files_and_directories_made_by_commands_are_for_their_owner_alone() {
    use std::os::unix::fs::PermissionsExt;
    let directory = directory(
        "mcp_server:\n  identity: {api_keys: {file: a/keys.json}}\n  ledger: {path: b/c/ledger.db}\n",
    );
    let said = say(&directory, "keys create --principal ana");
    assert_eq!(said.code, 0, "{}", said.messages);
    // Its input is empty, so it ends at once.
    let said = say(&directory, "start");
    assert_eq!(said.code, 0, "{}", said.messages);
    let mut found = vec![directory.path().to_owned()];
    let mut count = 0;
    while let Some(at) = found.pop() {
        for entry in std::fs::read_dir(&at).expect("readable") {
            let path = entry.expect("readable").path();
            if path.ends_with("mcp-server.yaml") {
                continue;
            }
            let metadata = std::fs::symlink_metadata(&path).expect("there");
            let mode = metadata.permissions().mode() & 0o777;
            assert_eq!(mode & 0o077, 0, "{}: {mode:o}", path.display());
            count += 1;
            if metadata.is_dir() {
                found.push(path);
            }
        }
    }
    assert!(6 < count, "{count}");
}

#[test]
fn start_on_a_terminal_says_that_it_waits_for_a_client() {
    let directory = tempfile::tempdir().expect("a directory");
    let said = on_a_terminal(&directory, 200, &[("TYPED", "\u{4}")], &["start"]);
    for expected in [
        "there is no configuration here",
        "config init",
        "waits for a client on standard input",
        "there is nothing on offer",
    ] {
        assert!(said.contains(expected), "{expected}: {said}");
    }
}

#[test]
fn an_application_that_registers_nothing_is_not_told_to_be_named() {
    let directory = directory("mcp_server: {app: app.py, ledger: {path: ledger.db}}\n");
    let app = "from owlclaw import OwlClaw\napp = OwlClaw('empty')\n";
    std::fs::write(directory.path().join("app.py"), app).expect("writable");
    for words in ["doctor", "start --transport stdio"] {
        let said = say(&directory, words);
        let all = format!("{}{}", said.output, said.messages);
        assert!(
            all.contains("register tools on the object that it names"),
            "{all}"
        );
        assert!(!all.contains("set `app`"), "{all}");
        assert!(!all.contains("name an application (`app:`)"), "{all}");
    }
}

#[test]
fn doctor_tells_an_interpreter_that_is_too_old() {
    use std::os::unix::fs::PermissionsExt;

    let directory = directory("");
    let python = directory.path().join("python");
    let text = format!(
        "mcp_server: {{app: app.py, python: {}, ledger: {{path: ledger.db}}}}\n",
        python.display()
    );
    std::fs::write(directory.path().join("mcp-server.yaml"), text).expect("writable");
    std::fs::write(directory.path().join("app.py"), "").expect("writable");
    for (version, is_old) in [("3.8.18", true), ("3.9.0", false), ("3.14.1", false)] {
        std::fs::write(&python, format!("#!/bin/sh\necho {version}\n")).expect("writable");
        std::fs::set_permissions(&python, std::fs::Permissions::from_mode(0o755)).expect("ours");
        let said = say(&directory, "doctor");
        let told = format!("is Python {version}, and 3.9 or later is needed");
        assert_eq!(said.output.contains(&told), is_old, "{}", said.output);
    }
}

#[test]
fn a_failed_start_prints_the_cure_of_doctor() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("an address").port();
    let directory = directory(&format!(
        "mcp_server: {{transport: http, http: {{port: {port}}}, ledger: {{path: ledger.db}}}}\n"
    ));
    let said = say(&directory, "start");
    assert_eq!(said.code, 1);
    assert!(said.messages.contains("set http.port"), "{}", said.messages);
    let doctor = say(&directory, "doctor");
    assert!(doctor.output.contains("set http.port"), "{}", doctor.output);
    // A directory that is a file can be neither.
    std::fs::write(directory.path().join("data"), "").expect("writable");
    let file = "mcp_server: {ledger: {path: data/ledger.db}}\n";
    std::fs::write(directory.path().join("mcp-server.yaml"), file).expect("writable");
    let said = say(&directory, "start");
    assert_eq!(said.code, 1);
    assert!(
        said.messages.contains("set ledger.path"),
        "{}",
        said.messages
    );
}

#[test]
fn a_load_error_of_an_application_is_printed_once() {
    let directory = directory("mcp_server: {app: app.py}\n");
    std::fs::write(directory.path().join("app.py"), "import no_such_module\n").expect("writable");
    for words in ["tools list", "start"] {
        let said = say(&directory, words);
        let text = said.messages + &said.output;
        let cause = "No module named 'no_such_module'";
        assert_eq!(text.matches(cause).count(), 1, "{words}: {text}");
        assert!(text.contains("app.py"), "{words}: {text}");
    }
}

#[test]
fn files_above_an_application_are_found_and_take_the_place_of_nothing() {
    let directory = directory("mcp_server: {app: sub/app.py}\n");
    let write = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::create_dir_all(path.parent().expect("it has one")).expect("writable");
        std::fs::write(path, text).expect("writable");
    };
    for name in ["re.py", "runpy.py", "calendar.py"] {
        write(name, "raise SystemExit('above')\n");
    }
    write("shared.py", "NAME = 'from-above'\n");
    write("sub/skills/readme.txt", "");
    write(
        "sub/app.py",
        "import calendar, shared\nfrom owlclaw import OwlClaw\napp = OwlClaw('x')\napp.mount_skills('skills')\n\
         app.handler(shared.NAME)(lambda: calendar.isleap(2028))\n",
    );
    let said = say(&directory, "tools list");
    assert_eq!(said.code, 0, "{}{}", said.messages, said.output);
    assert!(said.output.contains("from-above"), "{}", said.output);
}

#[test]
fn bash_completes_words_flags_and_values() {
    let directory = directory("");
    let ask = |path: &Path, line: &str| {
        let script = format!(
            "words=({line}); \
             source <(\"$PROGRAM\" ${{words[@]:1:$SKIP}} completions bash) || exit; \
             COMP_WORDS=({line} ''); COMP_CWORD=${{#words[@]}}; \
             $FUNCTION \"${{words[0]}}\" '' \"${{words[-1]}}\"; printf '%s\\n' \"${{COMPREPLY[@]}}\""
        );
        let (function, skip) = match line.starts_with("owlclaw-mcp") {
            true => ("_owlclaw__mcp", "0"),
            false => ("_owlclaw", "1"),
        };
        let output = command(Path::new("bash"), &directory, &["-c", &script])
            .env("PROGRAM", path)
            .env("FUNCTION", function)
            .env("SKIP", skip)
            .output();
        let said = Said::from(output.expect("bash starts"));
        assert_eq!((said.code, said.messages.as_str()), (0, ""), "{line}");
        let words: Vec<String> = said.output.lines().map(str::to_owned).collect();
        words
    };
    let both = [
        (program(), "owlclaw-mcp"),
        (
            Path::new(env!("CARGO_BIN_EXE_owlclaw")),
            "owlclaw mcp-server",
        ),
    ];
    for (path, name) in both {
        for (line, expected) in [
            ("", "doctor"),
            (" config", "init"),
            (" ledger", "unresolved"),
            (" tools call", "--idempotency-key"),
            (" start --transport", "http"),
            (" client-config", "claude-desktop"),
        ] {
            let found = ask(path, &format!("{name}{line}"));
            let is_found = found.iter().any(|it| it == expected);
            assert!(is_found, "{name}{line}: {found:?}");
        }
    }
    for (shell, mark) in [
        ("zsh", "#compdef owlclaw-mcp"),
        ("fish", "complete -c owlclaw-mcp"),
    ] {
        let said = say(&directory, &format!("completions {shell}"));
        assert!(said.code == 0 && said.output.contains(mark), "{shell}");
    }
}

#[test]
fn the_manual_page_can_be_read() {
    let directory = directory("");
    let page = say(&directory, "man").output;
    assert!(page.contains(".TH owlclaw-mcp 1"), "{page}");
    let said = say(&directory, "man --output pages");
    assert_eq!(said.code, 0, "{}", said.messages);
    let pages = directory.path().join("pages");
    for name in [
        "owlclaw-mcp.1",
        "owlclaw-mcp-tools-call.1",
        "owlclaw-mcp-doctor.1",
    ] {
        assert!(pages.join(name).is_file(), "{name}");
    }
    // Where there is a formatter, it has nothing to say against them.
    let groff = Command::new("groff")
        .args(["-man", "-Tascii", "-P-cbou", "-ww"])
        .arg(pages.join("owlclaw-mcp-tools-call.1"))
        .output();
    if let Ok(output) = groff {
        let said = Said::from(output);
        assert_eq!((said.code, said.messages.as_str()), (0, ""));
        assert!(said.output.contains("idempotency"), "{}", said.output);
    }
}

/// Runs the program on a terminal of so many columns, and gives all that it says there.
fn on_a_terminal(
    directory: &TempDir,
    columns: u16,
    variables: &[(&str, &str)],
    words: &[&str],
) -> String {
    const SCRIPT: &str = "\
import fcntl, os, pty, struct, sys, termios
columns = int(sys.argv[1])
child, terminal = pty.fork()
if child and os.environ.get('TYPED'):
    os.write(terminal, os.environ['TYPED'].encode())
if child == 0:
    fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack('HHHH', 24, columns, 0, 0))
    os.execv(sys.argv[2], sys.argv[2:])
said = b''
while True:
    try:
        piece = os.read(terminal, 65536)
    except OSError:
        break
    if not piece:
        break
    said += piece
os.waitpid(child, 0)
sys.stdout.buffer.write(said)
";
    let columns = columns.to_string();
    let mut all = vec!["-c", SCRIPT, &columns];
    let path = program().to_str().expect("it is text");
    all.push(path);
    all.extend(words);
    let mut python = command(Path::new("python3"), directory, &all);
    python.env("TERM", "xterm").envs(variables.iter().copied());
    let said = Said::from(python.output().expect("python starts"));
    assert_eq!(said.code, 0, "{}", said.messages);
    said.output
}

#[test]
fn colours_are_for_terminals() {
    let directory = directory("mcp_server: {prot: 1}\n");
    let words = ["config", "validate"];
    let colored = "\u{1b}[31;1merror:\u{1b}[0m unknown key";
    let on = |variables: &[(&str, &str)]| on_a_terminal(&directory, 80, variables, &words);
    assert!(on(&[]).contains(colored), "{}", on(&[]));
    assert!(on(&[]).contains("\u{1b}[32mhint:\u{1b}[0m"));
    for variable in [("NO_COLOR", "1"), ("CLICOLOR", "0"), ("TERM", "dumb")] {
        assert!(!on(&[variable]).contains('\u{1b}'), "{variable:?}");
    }
    let off = say(&directory, "config validate");
    assert!(!off.messages.contains('\u{1b}'));
    let forced = say(&directory, "config validate --color always");
    assert!(forced.messages.contains(colored));
    let mut forced = command(program(), &directory, &words);
    let forced = Said::from(
        forced
            .env("CLICOLOR_FORCE", "1")
            .output()
            .expect("it starts"),
    );
    assert!(forced.messages.contains(colored));
}

#[test]
fn tables_fit_the_terminal_and_are_whole_elsewhere() {
    let file = "mcp_server:\n  commands:\n    count-stock: {run: [cat], description: Counts what is in \
                each of the warehouses of the north and of the south}\n";
    let directory = directory(file);
    let words = ["tools", "list", "--color", "never", "--quiet"];
    let whole = say(&directory, &words.join(" "));
    assert!(
        whole.output.contains("and of the south"),
        "{}",
        whole.messages
    );
    for columns in [120, 100, 60] {
        let said = on_a_terminal(&directory, columns, &[], &words);
        let said: Vec<&str> = said.lines().filter(|it| !it.starts_with('{')).collect();
        let widest = said.iter().map(|it| it.chars().count()).max();
        assert!(widest <= Some(usize::from(columns)), "{columns}: {said:#?}");
        assert!(
            said.iter().any(|it| it.contains("count-stock")),
            "{said:#?}"
        );
    }
}

fn printed(directory: &TempDir, words: &str) -> (Value, String) {
    let said = say(directory, words);
    assert_eq!(said.code, 0, "{words}: {}", said.messages);
    let json = serde_json::from_str(&said.output).expect("it prints JSON");
    (json, said.messages)
}

#[test]
fn clients_are_told_how_to_start_the_server() {
    let directory = directory(
        "mcp_server:\n  ledger: {url: 'postgres://u:${DB_PASSWORD}@h/d'}\n  # ${NOT_THIS}\n  \
         commands: {c: {run: [cat], description: C., env: {PATH: '${PATH}'}}}\n",
    );
    let file = directory
        .path()
        .canonicalize()
        .expect("it is there")
        .join("mcp-server.yaml");
    for (client, list) in [
        ("claude-desktop", "mcpServers"),
        ("cursor", "mcpServers"),
        ("inspector", "mcpServers"),
        ("kiro", "mcpServers"),
        ("vscode", "servers"),
    ] {
        let said = command(
            program(),
            &directory,
            &[
                "client-config",
                client,
                "--as",
                "desk",
                "--with-key",
                "--name",
                "shop",
            ],
        )
        .env("DB_PASSWORD", "hunter2")
        .env("OWLCLAW_API_KEY", "owl_secret_key")
        .output();
        let said = Said::from(said.expect("it starts"));
        assert_eq!(said.code, 0, "{}", said.messages);
        let json: Value = serde_json::from_str(&said.output).expect("it prints JSON");
        let entry = &json[list]["shop"];
        assert_eq!(
            entry["command"],
            program().to_str().expect("text"),
            "{json}"
        );
        let words = entry["args"].as_array().expect("arguments");
        assert_eq!(words[0], "start");
        let named = Path::new(words.last().and_then(Value::as_str).expect("a path"));
        assert_eq!(named.canonicalize().expect("it is there"), file);
        assert!(named.is_absolute());
        assert_eq!(entry["env"]["MCP_CLIENT_ID"], "desk");
        assert!(entry["env"]["OWLCLAW_API_KEY"].is_string());
        for secret in ["hunter2", "owl_secret_key"] {
            assert!(!said.output.contains(secret) && !said.messages.contains(secret));
        }
        assert!(
            said.messages.contains("refers to DB_PASSWORD, which"),
            "{}",
            said.messages
        );
    }
    let bare = say(
        &tempfile::tempdir().expect("a directory"),
        "client-config kiro",
    );
    assert_eq!(bare.code, 1);
    assert!(bare.messages.contains("config init"), "{}", bare.messages);
    let ruled = crate::directory("mcp_server: {governance: {clients: {ben: {}, ana: {}}}}\n");
    let (_, said) = printed(&ruled, "client-config cursor");
    assert!(said.contains("--as") && said.contains("ana, ben"), "{said}");
    let (_, said) = printed(&ruled, "client-config cursor --as ana");
    assert!(!said.contains("ana, ben"), "{said}");
}

/// The printed entry of a client, read by a parser of its file's format, and its place.
fn parsed(client: &str, text: &str) -> (Value, &'static str) {
    match client {
        "codex" => {
            const READ: &str =
                "import json, sys, tomllib; print(json.dumps(tomllib.loads(sys.argv[1])))";
            let read = Command::new("python3").args(["-c", READ, text]).output();
            let read = Said::from(read.expect("there is Python"));
            assert_eq!(read.code, 0, "{text}: {}", read.messages);
            let json = serde_json::from_str(&read.output).expect("JSON");
            (json, "mcp_servers")
        }
        "goose" => (
            serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}")),
            "extensions",
        ),
        "vscode" => (serde_json::from_str(text).expect("JSON"), "servers"),
        _ => (serde_json::from_str(text).expect("JSON"), "mcpServers"),
    }
}

const INITIALIZE: &str = concat!(
    r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","#,
    r#""capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#,
    "\n",
);

/// Runs a program that serves whatever comes on its standard input, to its end.
fn fed(mut command: Command, input: &str) -> Said {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    // It may be gone already.
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    Said::from(child.wait_with_output().expect("it ends"))
}

#[test]
fn commands_printed_by_client_config_start_the_server_from_any_directory() {
    let directory = directory("mcp_server: {ledger: {path: here.db}}\n");
    for client in [
        "claude-code",
        "claude-desktop",
        "codex",
        "cursor",
        "gemini",
        "goose",
        "inspector",
        "kiro",
        "vscode",
    ] {
        let said = say(
            &directory,
            &format!("client-config {client} --as desk --name owl_1"),
        );
        assert_eq!(said.code, 0, "{}", said.messages);
        let (parsed, list) = parsed(client, &said.output);
        let entry = &parsed[list]["owl_1"];
        let text = |key: &str| entry[key].as_str().map(str::to_owned);
        let mut command = Command::new(text("command").or(text("cmd")).expect("a command"));
        let words = entry["args"].as_array().expect("arguments");
        command.args(words.iter().map(|it| it.as_str().expect("a word")));
        command.current_dir("/").env_clear();
        let variables = match client {
            "goose" => &entry["envs"],
            _ => &entry["env"],
        };
        for (name, value) in variables.as_object().expect("variables") {
            command.env(name, value.as_str().expect("text"));
        }
        let served = fed(command, INITIALIZE);
        assert_eq!(served.code, 0, "{client}: {}", served.messages);
        let answer: Value = serde_json::from_str(&served.output).expect("one answer");
        assert_eq!(
            answer["result"]["protocolVersion"], "2025-06-18",
            "{client}"
        );
        assert!(directory.path().join("here.db").exists(), "{client}");
    }
}

#[test]
fn a_client_over_stdio_is_told_why_the_server_cannot_start() {
    let unusable = "mcp_server: {toolz: {page_size: 7}}\n";
    let locked = "mcp_server: {ledger: {path: /proc/no/ledger.db}}\n";
    let secret = "mcp_server: {ledger: {url: 'postgres://u:hunter22@127.0.0.1:1/d'}}\n";
    let broken = "mcp_server: {app: no_such_module:app}\n";
    let discover = r#"{"jsonrpc":"2.0","id":"d","method":"server/discover","params":{}}"#;
    for (file, code, why) in [
        (unusable, 2, "toolz"),
        (locked, 1, "/proc/no"),
        (secret, 1, "the server cannot start"),
        (broken, 1, "no_such_module"),
    ] {
        let directory = directory(file);
        let start = || command(program(), &directory, &["start"]);
        for (input, ids) in [
            (INITIALIZE.to_owned(), vec![json!(1)]),
            (format!("{discover}\n"), vec![json!("d")]),
            (
                format!("{discover}\n{INITIALIZE}"),
                vec![json!("d"), json!(1)],
            ),
        ] {
            let said = fed(start(), &input);
            assert_eq!(said.code, code, "{file}: {}", said.messages);
            let answers: Vec<Value> = said
                .output
                .lines()
                .map(|line| serde_json::from_str(line).expect("JSON"))
                .collect();
            let answered: Vec<_> = answers.iter().map(|it| it["id"].clone()).collect();
            assert_eq!(answered, ids, "{file}");
            let message = answers[0]["error"]["message"].as_str().expect("a message");
            assert!(
                message.starts_with("the server cannot start: ") && message.contains(why),
                "{message}"
            );
            assert!(!said.output.contains("hunter22"), "{message}");
        }
        // Whoever says nothing, or something else, hears nothing; nor does anybody over HTTP.
        for input in ["", "ls -l\n"] {
            let said = fed(start(), input);
            assert_eq!((said.code, said.output.as_str()), (code, ""), "{file}");
        }
        let http = command(
            program(),
            &directory,
            &["start", "--transport", "http", "--port", "1"],
        );
        let said = fed(http, INITIALIZE);
        assert_eq!((said.code, said.output.as_str()), (code, ""), "{file}");
    }
}

#[test]
fn a_client_over_stdio_is_told_what_to_do_about_a_ledger() {
    let cure = "set ledger.path";
    for (file, reason, cure) in [
        ("{path: /proc/no/ledger.db}", "cannot be opened", cure),
        ("{path: file/ledger.db}", "cannot be opened", cure),
        ("{path: other.db}", "is not a ledger", "see docs/ledger.md"),
        ("{path: folder.db}", "folder.db", "see docs/ledger.md"),
        (
            "{url: 'postgres://u:hunter22@127.0.0.1:1/d'}",
            "cannot be reached",
            "`ledger.url`",
        ),
    ] {
        let directory = directory(&format!("mcp_server: {{ledger: {file}}}\n"));
        // A file where a directory belongs, a file that is something else, and a directory.
        std::fs::write(directory.path().join("file"), "x").expect("writable");
        std::fs::write(directory.path().join("other.db"), "garbage".repeat(1_000))
            .expect("writable");
        std::fs::create_dir(directory.path().join("folder.db")).expect("writable");
        let said = fed(command(program(), &directory, &["start"]), INITIALIZE);
        assert_eq!(said.code, 1, "{file}: {}", said.messages);
        let answer: Value = serde_json::from_str(&said.output).expect("one answer");
        let message = answer["error"]["message"].as_str().expect("a message");
        let (before, hint) = message.split_once(" (hint: ").unwrap_or((message, ""));
        assert!(before.contains(reason) && hint.contains(cure), "{message}");
        assert!(!message.contains("hunter22"), "{message}");
    }
}

#[test]
fn entries_of_clients_have_the_interpreter_of_this_environment() {
    let with_app = directory("mcp_server: {app: app.py}\n");
    let named = directory("mcp_server: {app: app.py, python: /usr/bin/python3}\n");
    let without = directory("mcp_server: {}\n");
    let run = |directory: &TempDir, words: &str, variables: &[(&str, &str)]| -> Said {
        let words: Vec<&str> = words.split(' ').collect();
        let mut command = command(program(), directory, &words);
        command.envs(variables.iter().copied());
        command.output().expect("it starts").into()
    };
    let active = [
        ("VIRTUAL_ENV", "/srv/shop/.venv"),
        ("PYTHONPATH", "/srv/shop/lib"),
    ];
    for client in [
        "claude-code",
        "claude-desktop",
        "codex",
        "cursor",
        "gemini",
        "goose",
        "inspector",
        "kiro",
        "vscode",
    ] {
        let said = run(&with_app, &format!("client-config {client}"), &active);
        assert_eq!(said.code, 0, "{}", said.messages);
        let (parsed, list) = parsed(client, &said.output);
        let variables = match client {
            "goose" => "envs",
            _ => "env",
        };
        let expected = json!({"VIRTUAL_ENV": "/srv/shop/.venv"});
        assert_eq!(parsed[list]["owlclaw"][variables], expected, "{client}");
        for told in ["/srv/shop/.venv/bin/python", "PYTHONPATH"] {
            assert!(said.messages.contains(told), "{told}: {}", said.messages);
        }
    }
    for (directory, variables) in [(&named, &active[..1]), (&without, &active[..])] {
        let said = run(directory, "client-config cursor", variables);
        assert!(!said.output.contains("VIRTUAL_ENV"), "{}", said.output);
        assert!(!said.messages.contains("PYTHON"), "{}", said.messages);
    }
    let said = run(&with_app, "client-config cursor", &[]);
    let told = "looks `python3` up in its own PATH";
    assert!(said.messages.contains(told), "{}", said.messages);
    let remote = "client-config cursor --url https://mcp.example.com/mcp";
    let said = run(&with_app, remote, &active);
    assert!(!said.output.contains("env"), "{}", said.output);
    let set = [
        ("MCP_SERVER_TOOLS__PAGE_SIZE", "7"),
        ("MCP_SERVER_TRANSPORT", "stdio"),
    ];
    let said = run(&without, "client-config cursor", &set);
    let told = "MCP_SERVER_TOOLS__PAGE_SIZE";
    assert!(said.messages.contains(told), "{}", said.messages);
    assert!(
        !said.messages.contains("MCP_SERVER_TRANSPORT"),
        "{}",
        said.messages
    );
}

#[test]
fn doctor_does_not_promise_a_ledger_that_cannot_be_made() {
    let unwritable = directory("mcp_server: {ledger: {path: /proc/no/ledger.db}}\n");
    let said = say(&unwritable, "doctor");
    assert_eq!(said.code, 1);
    assert!(
        said.output.contains("/proc cannot be written to"),
        "{}",
        said.output
    );
    assert!(!said.output.contains("will be made"), "{}", said.output);
    let begun = directory("mcp_server: {ledger: {path: ledger.db}}\n");
    let said = say(&begun, "doctor");
    assert!(said.output.contains("will be made"), "{}", said.output);
}

#[test]
fn a_client_over_stdio_is_told_of_a_wrong_command_line() {
    let directory = directory("mcp_server: {ledger: {path: here.db}}\n");
    let owlclaw = Path::new(env!("CARGO_BIN_EXE_owlclaw"));
    let answered = |program: &Path, words: &str, input: &str| {
        let words: Vec<&str> = words.split(' ').collect();
        let said = fed(command(program, &directory, &words), input);
        assert_eq!(said.code, 2, "{words:?}: {}", said.messages);
        assert!(said.messages.starts_with("error: "), "{}", said.messages);
        said.output
    };
    for (program, words, why) in [
        (program(), "start --tranport stdio", "'--transport'"),
        (program(), "start --port abc", "'abc' for '--port <N>'"),
        (program(), "start mcp-server.yaml", "'mcp-server.yaml'"),
        (program(), "--color never start --confg x", "'--config'"),
        (
            program(),
            "start --transport tcp",
            "[possible values: stdio, http]",
        ),
        (owlclaw, "mcp-server start --confg x", "'--config'"),
    ] {
        let output = answered(program, words, INITIALIZE);
        let answer: Value = serde_json::from_str(&output).expect("one answer");
        assert_eq!(answer["id"], 1, "{words}");
        let message = answer["error"]["message"].as_str().expect("a message");
        let begin = "the server cannot start: the command line is not valid: ";
        let is_told = message.starts_with(begin)
            && message.contains(why)
            && message.ends_with("(hint: `owlclaw-mcp start --help` lists its options)");
        assert!(is_told, "{message}");
        assert!(!message.contains('\n'), "{message}");
        assert_eq!(answered(program, words, ""), "", "{words}");
    }
    // Who listens elsewhere, or asks something else, has no client on standard input.
    for words in [
        "start --transport http --port abc",
        "start --port abc --transport=http",
        "tools list --prot 1",
        "strat",
    ] {
        assert_eq!(answered(program(), words, INITIALIZE), "", "{words}");
    }
}

#[test]
fn clients_are_told_where_the_server_is() {
    let directory =
        directory("mcp_server: {transport: http, http: {port: 9001, host: 127.0.0.1}}\n");
    let own = "http://127.0.0.1:9001/mcp";
    let (json, _) = printed(&directory, "client-config vscode");
    assert_eq!(
        json["servers"]["owlclaw"],
        serde_json::json!({"type": "http", "url": own})
    );
    let (json, _) = printed(&directory, "client-config vscode --with-key");
    let header = "Bearer ${input:owlclaw-key}";
    assert_eq!(
        json["servers"]["owlclaw"]["headers"]["Authorization"],
        header
    );
    assert_eq!(json["inputs"][0]["password"], true);
    let url = "https://mcp.example.com/mcp";
    let (json, _) = printed(
        &directory,
        &format!("client-config cursor --url {url} --with-key"),
    );
    assert_eq!(json["mcpServers"]["owlclaw"]["url"], url);
    let header = "Bearer ${env:OWLCLAW_API_KEY}";
    assert_eq!(
        json["mcpServers"]["owlclaw"]["headers"]["Authorization"],
        header
    );
    let (json, said) = printed(
        &directory,
        &format!("client-config claude-desktop --url {url}"),
    );
    let words = serde_json::json!(["-y", "mcp-remote", url]);
    assert_eq!(json["mcpServers"]["owlclaw"]["args"], words);
    assert!(said.contains("mcp-remote"), "{said}");
    let authorized = json!({"Authorization": "Bearer ${OWLCLAW_API_KEY}"});
    for (client, expected) in [
        (
            "claude-code",
            json!({"type": "http", "url": url, "headers": authorized}),
        ),
        (
            "codex",
            json!({"url": url, "bearer_token_env_var": "OWLCLAW_API_KEY"}),
        ),
        ("gemini", json!({"httpUrl": url, "headers": authorized})),
        (
            "goose",
            json!({
                "type": "streamable_http", "uri": url, "headers": authorized, "enabled": true,
                "env_keys": ["OWLCLAW_API_KEY"], "name": "owlclaw", "timeout": 300,
            }),
        ),
    ] {
        let words = format!("client-config {client} --url {url} --with-key");
        let (parsed, list) = parsed(client, &say(&directory, &words).output);
        assert_eq!(parsed[list]["owlclaw"], expected, "{client}");
    }
}
