//! Programs as tools, with real programs.
#![cfg(unix)]
#![allow(clippy::unwrap_used)]

mod common;

use adapter_tools::{
    Content, Repeat, Tool, ToolCx, ToolError, ToolOutput,
    command::{Command, CommandError, CommandLine, CommandOptions, Input, Output, Word},
};
use bytes::Bytes;
use common::{LONG, has_ended, is_alive};
use serde_json::{Value, json};
use std::{
    fs,
    future::poll_fn,
    os::unix::fs::PermissionsExt,
    path::Path,
    pin::Pin,
    task::Poll,
    time::{Duration, Instant},
};
use tempfile::TempDir;

/// A directory with a script in it.
struct Shop(TempDir);

impl Shop {
    fn new(script: &str) -> Self {
        let shop = Self(tempfile::tempdir().unwrap());
        let path = shop.path().join("run");
        // Another test's child between its `fork` and its `exec` may hold what is written here open,
        // and then it cannot be executed: let the shell read it.
        fs::write(shop.path().join("script"), script).unwrap();
        std::os::unix::fs::symlink("/bin/sh", path).unwrap();
        shop
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn options(&self, arguments: &[&str]) -> CommandOptions {
        let words = ["./run", "script"].iter().chain(arguments);
        let words: Vec<_> = words.map(|it| Word::One((*it).to_owned())).collect();
        let line = CommandLine::parse(&words).unwrap();
        let mut options = CommandOptions::new("run", line, self.path());
        options.environment = vec![("PATH".into(), "/usr/bin:/bin".into())];
        options
    }

    fn seen(&self, name: &str) -> String {
        fs::read_to_string(self.path().join(name)).unwrap_or_default()
    }

    /// Waits for what a script writes into the file `name`.
    async fn number(&self, name: &str) -> i64 {
        let look = async {
            loop {
                if let Ok(number) = self.seen(name).trim().parse() {
                    return number;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(LONG, look)
            .await
            .expect("never written")
    }
}

/// Any arguments at all.
fn anything() -> Value {
    json!({"type": "object", "properties": {"a": {}, "b": {}}})
}

fn tool(options: CommandOptions) -> Tool {
    Command::new(options).unwrap().tool(anything()).unwrap()
}

async fn call(tool: &Tool, arguments: Value) -> Result<ToolOutput, ToolError> {
    call_with(ToolCx::new("anna", "call-1"), tool, arguments).await
}

async fn call_with(cx: ToolCx, tool: &Tool, arguments: Value) -> Result<ToolOutput, ToolError> {
    let arguments = tool.check(Bytes::from(arguments.to_string())).unwrap();
    tokio::time::timeout(LONG, tool.execute(cx, arguments))
        .await
        .expect("it hangs")
}

/// Lets `future` go as far as it can now; whether there is more to come.
async fn goes_on<F: Future + Unpin>(future: &mut F) -> bool {
    poll_fn(|cx| Poll::Ready(Pin::new(&mut *future).poll(cx).is_pending())).await
}

fn text(output: &ToolOutput) -> &str {
    match &output.content[..] {
        [Content::Text { text, .. }] => text,
        other => panic!("not one text: {other:?}"),
    }
}

#[tokio::test]
async fn arguments_become_arguments_and_nothing_else() {
    let shop = Shop::new("for argument; do printf '<%s>' \"$argument\"; done; cat\n");
    let tool = tool(shop.options(&["--a={a}", "--", "{b...}"]));
    let nasty = "$(touch oops); `touch oops` | > oops \n'\"";
    let output = call(&tool, json!({"a": nasty, "b": ["-x", nasty, ""]}))
        .await
        .unwrap();
    assert_eq!(text(&output), format!("<--a={nasty}><--><-x><{nasty}><>"));
    assert!(!shop.path().join("oops").exists());

    let refused = call(&tool, json!({"a": "a\u{0}b"})).await.unwrap_err();
    let ToolError::Rejected(why) = refused else {
        panic!("{refused:?}")
    };
    assert_eq!(why.violations()[0].pointer(), "/a");
}

#[tokio::test]
async fn without_placeholders_the_arguments_are_read_to_the_letter() {
    let shop = Shop::new("exec cat\n");
    let tool = tool(shop.options(&[]));
    let raw = Bytes::from_static(br#"{"a": 1.50,"b":[true]}"#);
    let arguments = tool.check(raw.clone()).unwrap();
    let output = tool
        .execute(ToolCx::new("anna", "1"), arguments)
        .await
        .unwrap();
    assert_eq!(output.structured.unwrap().get().as_bytes(), raw);
}

#[tokio::test]
async fn whoever_reads_a_line_reads_all_arguments() {
    let shop = Shop::new("IFS= read -r line; printf '%s' \"$line\"\n");
    let tool = tool(shop.options(&[]));
    let raw = Bytes::from_static(b"{\r\n  \"a\": \"x\\ny\",\n  \"b\": 1.50\n}");
    let arguments = tool.check(raw).unwrap();
    let output = tool
        .execute(ToolCx::new("anna", "1"), arguments)
        .await
        .unwrap();
    let read = output.structured.expect("the whole object on a line");
    assert_eq!(read.get(), r#"{    "a": "x\ny",   "b": 1.50 }"#);
}

#[tokio::test]
async fn the_environment_is_what_is_named() {
    let shop = Shop::new("env\n");
    let mut options = shop.options(&[]);
    options.environment.push(("TOKEN".into(), "s3cret".into()));
    options.output = Output::Lines;
    assert!(!format!("{options:?}").contains("s3cret"));
    let output = call(&tool(options), json!({})).await.unwrap();
    let found: Value = serde_json::from_str(output.structured.unwrap().get()).unwrap();
    let mut names: Vec<_> = found["lines"]
        .as_array()
        .unwrap()
        .iter()
        .map(|line| line.as_str().unwrap().split('=').next().unwrap())
        // The shell's own.
        .filter(|name| !["PWD", "SHLVL", "_", "OLDPWD"].contains(name))
        .collect();
    names.sort_unstable();
    assert_eq!(names, ["PATH", "TOKEN"]);

    let shop = Shop::new("printf '%s %s' \"$TRACEPARENT\" \"$TRACESTATE\"\n");
    let mut options = shop.options(&[]);
    options.output = Output::Text;
    let cx = ToolCx::new("anna", "r").with_trace("00-1", Some("a=1"));
    let tool = tool(options);
    let arguments = tool.check(Bytes::from_static(b"{}")).unwrap();
    let output = tool.execute(cx, arguments).await.unwrap();
    assert_eq!(output.content, [Content::text("00-1 a=1")]);
}

#[tokio::test]
async fn much_in_and_much_out_at_once_does_not_stop() {
    // `cat` writes while it reads: more than any pipe holds, both ways, and noise beside it.
    let shop = Shop::new("yes noise | head -c 1000000 >&2 & cat; wait\n");
    let mut options = shop.options(&[]);
    options.max_output = 8 * 1024 * 1024;
    let given = json!({"a": "x".repeat(3 * 1024 * 1024)});
    let output = call(&tool(options), given.clone()).await.unwrap();
    let found: Value = serde_json::from_str(output.structured.unwrap().get()).unwrap();
    assert_eq!(found, given);
}

#[tokio::test]
async fn a_program_need_not_read_what_it_is_given() {
    let shop = Shop::new("exec <&-; echo done\n");
    let given = json!({"a": "x".repeat(3 * 1024 * 1024)});
    let output = call(&tool(shop.options(&[])), given).await.unwrap();
    assert_eq!(text(&output), "done");
}

#[tokio::test]
async fn a_failure_says_the_status_and_keeps_the_reason_for_operators() {
    let shop = Shop::new("echo out; echo the shelf is empty >&2; exit 3\n");
    let options = shop.options(&[]);
    let error = call(&tool(options.clone()), json!({})).await.unwrap_err();
    let ToolError::Failed(failure) = &error else {
        panic!("{error:?}")
    };
    assert_eq!(failure.message, "the program ended with exit status 3");
    assert_eq!(failure.details, Some(json!({"exit_status": 3})));
    assert_eq!(failure.traceback.as_deref(), Some("the shelf is empty"));

    let mut told = options.clone();
    told.stderr_in_errors = true;
    let error = call(&tool(told), json!({})).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the program ended with exit status 3: the shelf is empty"
    );

    let mut fine = options;
    fine.success = vec![0, 3];
    let output = call(&tool(fine), json!({})).await.unwrap();
    assert_eq!(text(&output), "out");
}

#[tokio::test]
async fn a_signal_is_a_crash() {
    let shop = Shop::new("echo last words >&2; kill -SEGV $$\n");
    let error = call(&tool(shop.options(&[])), json!({})).await.unwrap_err();
    let ToolError::Crashed {
        message,
        repeat,
        detail,
    } = error
    else {
        panic!("{error:?}")
    };
    assert_eq!(message, "the program was ended by signal SIGSEGV (11)");
    assert_eq!(
        (repeat, detail.as_str()),
        (Repeat::IfIdempotent, "last words")
    );
}

#[tokio::test]
async fn a_flood_is_cut_off_and_what_it_came_from_is_killed() {
    let shop = Shop::new("echo $$ > pid; exec yes\n");
    let error = call(&tool(shop.options(&[])), json!({})).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the program wrote more than 1048576 bytes and was ended"
    );
    has_ended(shop.number("pid").await).await;

    let shop = Shop::new("printf 12345\n");
    let mut options = shop.options(&[]);
    options.max_output = 5;
    assert_eq!(
        text(&call(&tool(options.clone()), json!({})).await.unwrap()),
        "12345"
    );
    options.max_output = 4;
    assert!(call(&tool(options), json!({})).await.is_err());
}

#[tokio::test]
async fn who_gives_up_ends_the_program_and_what_it_started() {
    let shop = Shop::new(
        "trap 'echo $$ > told; exit' TERM\nsleep 1000 & echo $! > child\necho $$ > pid; wait\n",
    );
    let tool = tool(shop.options(&[]));
    let arguments = tool.check(Bytes::new()).unwrap();
    let (pid, child) = {
        let calling = tool.execute(ToolCx::new("anna", "1"), arguments);
        let both = async { (shop.number("pid").await, shop.number("child").await) };
        tokio::select! {
            outcome = calling => panic!("{outcome:?}"),
            both = both => both,
        }
    };
    has_ended(pid).await;
    has_ended(child).await;
    // It was asked first.
    assert_eq!(shop.number("told").await, pid);
}

#[tokio::test]
async fn a_program_that_does_not_want_to_end_is_killed() {
    let shop = Shop::new("trap '' TERM\necho $$ > pid\nwhile :; do sleep 0.01; done\n");
    let mut options = shop.options(&[]);
    options.grace = Duration::from_millis(50);
    let tool = tool(options);
    let mut cx = ToolCx::new("anna", "1");
    cx.deadline = Some(Instant::now() + Duration::from_millis(300));
    let error = call_with(cx, &tool, json!({})).await.unwrap_err();
    assert!(matches!(error, ToolError::TimedOut), "{error:?}");
    has_ended(shop.number("pid").await).await;
}

#[tokio::test]
async fn what_is_left_behind_neither_holds_the_answer_up_nor_stays() {
    let shop = Shop::new("sleep 1000 & echo $! > child; echo done\n");
    let output = call(&tool(shop.options(&[])), json!({})).await.unwrap();
    assert_eq!(text(&output), "done");
    has_ended(shop.number("child").await).await;

    // The same where it has let go of the pipes.
    let shop = Shop::new("sleep 1000 <&- >&- 2>&- & echo $! > child; echo done\n");
    let output = call(&tool(shop.options(&[])), json!({})).await.unwrap();
    assert_eq!(text(&output), "done");
    has_ended(shop.number("child").await).await;
}

#[tokio::test]
async fn closed_pipes_are_not_the_end() {
    let shop =
        Shop::new("echo done; exec >&- 2>&-; while [ ! -e go ]; do sleep 0.01; done; exit 7\n");
    let tool = tool(shop.options(&[]));
    let go = async {
        tokio::task::yield_now().await;
        fs::write(shop.path().join("go"), "").unwrap();
    };
    let (outcome, ()) = tokio::join!(call(&tool, json!({})), go);
    assert_eq!(
        outcome.unwrap_err().to_string(),
        "the program ended with exit status 7"
    );
}

#[test]
fn the_program_goes_with_the_runtime() {
    let shop = Shop::new("sleep 1000 & echo $! > child\necho $$ > pid; wait\n");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let pid = runtime.block_on(async {
        let tool = tool(shop.options(&[]));
        tokio::select! {
            outcome = call(&tool, json!({})) => panic!("{outcome:?}"),
            pid = shop.number("pid") => pid,
        }
    });
    assert!(is_alive(pid));
    drop(runtime);
    let waiting = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    waiting.block_on(async {
        has_ended(pid).await;
        has_ended(shop.number("child").await).await;
    });
}

#[tokio::test]
async fn so_many_run_so_many_wait_and_the_rest_is_refused() {
    let shop = Shop::new("echo x >> begun; while [ ! -e go ]; do sleep 0.01; done; echo done\n");
    let mut options = shop.options(&[]);
    (options.max_concurrent, options.max_waiting) = (2, 1);
    let command = Command::new(options).unwrap();
    // Two tools of one command share its bounds.
    let tools = [
        command.tool(anything()).unwrap(),
        command.tool(anything()).unwrap(),
    ];
    let mut calls: Vec<_> = (0..3)
        .map(|index| Box::pin(call(&tools[index % 2], json!({}))))
        .collect();
    for calling in &mut calls {
        assert!(goes_on(calling).await);
    }
    let error = call(&tools[0], json!({})).await.unwrap_err();
    assert!(matches!(error, ToolError::Busy { .. }), "{error:?}");
    // A place that is given up is free again.
    drop(calls.pop());
    let mut third = Box::pin(call(&tools[1], json!({})));
    assert!(goes_on(&mut third).await);
    let begun = async {
        while shop.seen("begun").lines().count() < 2 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(LONG, begun).await.unwrap();
    assert_eq!(shop.seen("begun").lines().count(), 2);
    fs::write(shop.path().join("go"), "").unwrap();
    let (others, third) = tokio::join!(futures_util::future::join_all(calls), third);
    for outcome in others.into_iter().chain([third]) {
        assert_eq!(text(&outcome.unwrap()), "done");
    }
    assert_eq!(shop.seen("begun").lines().count(), 3);
}

#[tokio::test]
async fn promises_are_kept() {
    let shop = Shop::new("cat\n");
    let mut options = shop.options(&[]);
    options.output = Output::Json;
    options.output_schema = Some(json!({
        "type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"],
    }));
    let tool = tool(options);
    assert!(call(&tool, json!({"a": 1})).await.is_ok());
    let error = call(&tool, json!({"a": "x"}))
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("does not fit its own schema"), "{error}");
}

#[test]
fn what_is_not_there_is_told_at_once() {
    let shop = Shop::new("");
    let options = |program: &str| {
        let line = CommandLine::parse(&[Word::One(program.to_owned())]).unwrap();
        CommandOptions::new("run", line, shop.path())
    };
    let refusal = |options| Command::new(options).unwrap_err();
    let data = shop.path().join("data");
    fs::write(&data, "").unwrap();
    fs::set_permissions(&data, fs::Permissions::from_mode(0o644)).unwrap();
    assert!(matches!(
        refusal(options("./no")),
        CommandError::NoProgram(_)
    ));
    assert!(matches!(
        refusal(options("./data")),
        CommandError::NotExecutable(_)
    ));
    assert!(matches!(
        refusal(options(".//")),
        CommandError::NotExecutable(_)
    ));
    assert!(matches!(
        refusal(options("no-such-program")),
        CommandError::NotOnPath(_)
    ));
    // Its own search path wins.
    let mut own = options("sh");
    own.environment = vec![("PATH".into(), "/nowhere:.".into())];
    assert!(matches!(refusal(own), CommandError::NotOnPath(_)));
    let mut lost = options("sh");
    lost.directory = "/nowhere".into();
    assert!(matches!(refusal(lost), CommandError::NoDirectory(_)));
    let found = Command::new(options("sh")).unwrap();
    assert!(found.program().is_absolute() && found.options().input == Input::Json);
}
