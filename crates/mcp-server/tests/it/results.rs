//! Results that are too long for their clients: what is shown of them, and how the rest is read.

use crate::{
    house::{Bench, Client, House, Place, SPOKEN, Setup, now_us, pass, policy},
    tasks_house::{self, LEGACY, created, hand_over, reaches},
};
use adapter_tools::{
    About, Annotations, Content, InvalidArguments, ResourceLink, Tool, ToolError, ToolOutput,
};
use data_encoding::HEXLOWER;
use futures_util::future::{BoxFuture, ready};
use governance::Rules;
use ledger::Outcome;
use mcp_protocol::RawJson;
use mcp_server::{
    Filter, FilterRule, Filtered, Filters, Passing, ResultLimit, ResultOptions, ResultRule,
    SearchOptions, estimated_tokens,
};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::{os::unix::fs::PermissionsExt, time::Duration};
use testkit::{MODERN, failure_of};

const CHARACTERS: usize = 2_000;

/// A text of 100 lines, each with a character of several bytes.
fn long_text() -> String {
    let lines = (0..100).map(|number| {
        format!("Line {number}: a naïve line of some length, as logs have them, number {number}.\n")
    });
    lines.collect()
}

fn tools(bench: &Bench) -> Vec<Tool> {
    let reads = Annotations {
        read_only: Some(true),
        ..Annotations::default()
    };
    let tool = |name: &'static str, output: ToolOutput| {
        bench.tool(name, json!({}), &[], move |_, _| {
            let output = output.clone();
            async move { Ok(output) }
        })
    };
    let rows = json!({ "rows": (0..500).map(|it| json!({ "row": it })).collect::<Vec<_>>() });
    let schema = json!({ "type": "object", "properties": { "rows": { "type": "array" } } });
    let image = Content::Image {
        data: "A".repeat(100_000),
        mime_type: "image/png".to_owned(),
        about: About::default(),
    };
    let link = Content::ResourceLink(Box::new(ResourceLink {
        uri: "log://a".to_owned(),
        name: "log".to_owned(),
        title: Some("The log".to_owned()),
        description: None,
        mime_type: None,
        size: Some(7),
        icons: Vec::new(),
        about: About::default(),
    }));
    vec![
        tool("log", ToolOutput::text(long_text())).with_annotations(reads),
        tool("short", ToolOutput::text("short")),
        tool("rows", rows.clone().into()),
        tool("promised", rows.into()).with_output_schema(schema),
        tool(
            "items",
            ToolOutput::text("first")
                .with_content(Content::text("second"))
                .with_content(Content::text(long_text()))
                .with_content(Content::text("last")),
        ),
        tool("links", ToolOutput::text("look").with_content(link)),
        tool("picture", ToolOutput::text("look").with_content(image)),
        tool(
            "chatty",
            ToolOutput::text("x").with_meta("shop/all", json!(long_text())),
        ),
        tool(
            "secret",
            ToolOutput::text(format!("password: hunter2hunter2\n{}", long_text())),
        ),
        bench.tool("refuses", json!({}), &[], |_, _| async {
            Err(ToolError::Rejected(InvalidArguments::because(long_text())))
        }),
        bench.tool("complains", json!({}), &[], |_, _| async {
            Err(ToolError::failed_with(
                long_text(),
                json!({ "all": long_text() }),
            ))
        }),
    ]
}

fn rule(clients: &[&str], characters: usize) -> ResultRule {
    ResultRule {
        clients: clients.iter().map(|&it| it.to_owned()).collect(),
        limit: ResultLimit {
            characters: Some(characters),
            ..ResultLimit::default()
        },
        ..ResultRule::default()
    }
}

fn options() -> ResultOptions {
    ResultOptions {
        rules: vec![rule(&["agent*"], CHARACTERS)],
        clock: now_us,
        ..ResultOptions::default()
    }
}

async fn setup(options: ResultOptions) -> Setup {
    let setup = tasks_house::setup(tasks_house::options()).await;
    let mut more_tools = tools(&setup.bench);
    more_tools.extend(setup.more_tools);
    Setup {
        more_tools,
        results: Some(options),
        search_view: Some(SearchOptions {
            clients: vec!["agent-searching".to_owned()],
            ..SearchOptions::default()
        }),
        ..setup
    }
}

async fn house() -> House {
    setup(options()).await.build()
}

/// The texts of a result.
fn texts(result: &Value) -> Vec<&str> {
    let content = result["content"].as_array().unwrap().iter();
    content.filter_map(|it| it["text"].as_str()).collect()
}

fn note(result: &Value) -> &str {
    let note = texts(result)
        .into_iter()
        .find(|it| it.starts_with("[Shortened: "));
    note.unwrap_or_else(|| panic!("not shortened: {result}"))
}

/// The URI that the note of a result has, and the offset.
fn place(result: &Value) -> (String, u64) {
    let note = note(result);
    let begin = note.find('{').unwrap();
    let end = note.find('}').unwrap();
    let place: Value = serde_json::from_str(&note[begin..=end]).unwrap();
    (
        place["uri"].as_str().unwrap().to_owned(),
        place["offset"].as_u64().unwrap(),
    )
}

/// Reads on by the tool, from the offset of the note on, until there is no more.
async fn rest(client: &mut Client, uri: &str, mut offset: u64) -> String {
    let mut all = String::new();
    loop {
        let arguments = json!({ "uri": uri, "offset": offset });
        let answer = client.call("read_result", arguments).await;
        let result = &answer["result"];
        let [part, note] = texts(result)[..] else {
            panic!("{answer}");
        };
        assert!(part.chars().count() + note.len() <= CHARACTERS, "{answer}");
        all.push_str(part);
        offset += part.len() as u64;
        assert!(note.contains(&format!(" to {offset} of ")), "{note}");
        if note.contains("the end") {
            return all;
        }
    }
}

#[tokio::test]
async fn a_client_is_shown_the_beginning_and_reads_on_in_every_revision() {
    for version in SPOKEN {
        let house = house().await;
        let mut client = house.connect("agent", version).await;
        for at in Place::of(version) {
            let answer = client
                .ask_at(*at, "tools/call", json!({ "name": "log", "arguments": {} }))
                .await;
            let result = &answer["result"];
            let characters: usize = texts(result).iter().map(|it| it.chars().count()).sum();
            assert!(characters <= CHARACTERS, "{version}: {characters}");
            assert!(CHARACTERS / 2 < characters, "{version}: {characters}");
            let shown = texts(result)[0].strip_suffix(" […]").unwrap();
            assert!(shown.ends_with('\n') && long_text().starts_with(shown));
            let (uri, offset) = place(result);
            assert_eq!(offset as usize, shown.len());
            let links: Vec<_> = result["content"]
                .as_array()
                .unwrap()
                .iter()
                .filter(|it| it["type"] == "resource_link")
                .collect();
            let has_links = ["2025-06-18", "2025-11-25", MODERN].contains(&version);
            assert_eq!(links.len(), usize::from(has_links), "{version}: {result}");
            assert!(links.iter().all(|it| it["uri"] == uri));
            let rest = rest(&mut client, &uri, offset).await;
            assert!(format!("{shown}{rest}") == long_text(), "{version}");
            let read = client.ask("resources/read", json!({ "uri": uri })).await;
            assert_eq!(read["result"]["contents"][0]["text"], long_text());
        }
        let call = &house.record().await[0];
        assert_eq!(call.ended.outcome, Outcome::Succeeded);
        let whole = call.ended.whole.unwrap();
        assert_eq!(whole.whole_bytes as usize, long_text().len());
        assert_eq!(whole.digest[..], Sha256::digest(long_text())[..]);
        // The entry has what the model was shown.
        assert!(call.ended.result.text.contains("Line 0:"));
        assert!(call.ended.result.text.contains("[Shortened: "));
    }
}

#[tokio::test]
async fn every_way_to_a_result_has_the_limit() {
    for version in [LEGACY, MODERN] {
        let house = house().await;
        let mut searching = house.connect("agent-searching", version).await;
        assert!(
            searching
                .tool_names()
                .await
                .contains(&"read_result".to_owned())
        );
        let through = json!({ "name": "log", "arguments": {} });
        let answer = searching.call("call_tool_read", through).await;
        let (uri, offset) = place(&answer["result"]);
        assert!(rest(&mut searching, &uri, offset).await.len() > CHARACTERS);

        // A task.
        let mut client = house.connect("agent", version).await;
        let mut call = json!({ "name": "log", "arguments": {} });
        if version == LEGACY {
            call["task"] = json!({});
            let id = created(&client.ask("tools/call", call).await);
            reaches(&mut client, &id, "completed").await;
            let result = client.ask("tasks/result", json!({ "taskId": id })).await;
            place(&result["result"]);
        }

        // The same answer once more; and for a client with another limit by then.
        let mut call = json!({ "name": "log", "arguments": {} });
        call["_meta"] = json!({ "io.owlclaw/idempotencyKey": "k-1" });
        let runs = house.bench.runs();
        let first = client.ask("tools/call", call.clone()).await;
        let again = client.ask("tools/call", call).await;
        assert_eq!(house.bench.runs(), runs + 1);
        assert_eq!(place(&first["result"]), place(&again["result"]));
    }
}

/// A limit for some tools holds for their results, by whatever tool these are read.
#[tokio::test]
async fn reading_on_has_the_limit_of_the_tool_whose_result_it_is() {
    let house = setup(ResultOptions {
        rules: vec![ResultRule {
            tools: vec!["log".to_owned()],
            ..rule(&[], CHARACTERS)
        }],
        ..options()
    })
    .await
    .build();
    let mut anna = house.connect("anna", MODERN).await;
    let answer = anna.call("log", json!({})).await;
    let (uri, _) = place(&answer["result"]);
    assert_eq!(rest(&mut anna, &uri, 0).await, long_text());
    let asked = json!({ "uri": uri, "offset": 0, "length": 100_000 });
    let answer = anna.call("read_result", asked).await;
    assert!(texts(&answer["result"])[0].len() < CHARACTERS, "{answer}");
}

/// Results that filters make are held to what the tool promises.
#[tokio::test]
async fn a_filter_that_breaks_the_schema_of_a_result_has_failed() {
    #[derive(Debug)]
    struct Breaks;
    impl Filter for Breaks {
        fn filter<'a>(&'a self, _: Passing<'a>) -> BoxFuture<'a, Result<Filtered, String>> {
            let broken = r#"{"content":[],"structuredContent":{"rows":"none"}}"#;
            let broken = RawJson::from_serialized(broken.into());
            Box::pin(ready(Ok(Filtered::Changed(broken))))
        }
    }
    let house = Setup {
        filters: Filters::new(vec![FilterRule {
            on_requests: false,
            ..FilterRule::new("breaks", Breaks)
        }]),
        ..setup(options()).await
    }
    .build();
    let mut anna = house.connect("anna", MODERN).await;
    let answer = anna.call("promised", json!({})).await;
    let failure = failure_of(&answer);
    assert_eq!(failure["data"]["filter"], "breaks", "{answer}");
    assert!(!answer.to_string().contains("none"), "{answer}");
    // What promises nothing is answered as the filter has it.
    let answer = anna.call("rows", json!({})).await;
    assert_eq!(answer["result"]["structuredContent"]["rows"], "none");
}

/// Links are answered as a tool gives them.
#[tokio::test]
async fn a_link_keeps_its_title_and_size() {
    let house = house().await;
    let mut anna = house.connect("anna", MODERN).await;
    let answer = anna.call("links", json!({})).await;
    let link = &answer["result"]["content"][1];
    assert_eq!(
        (&link["title"], &link["size"]),
        (&json!("The log"), &json!(7))
    );
}

#[tokio::test]
async fn a_task_of_the_extension_has_the_limit() {
    let setup = setup(options()).await;
    let tool = setup
        .bench
        .tool("job_log", json!({}), &[], |cx, _| async move {
            hand_over(&cx).await;
            Ok(long_text().into())
        });
    let mut more_tools = setup.more_tools;
    more_tools.push(tool);
    let house = Setup {
        more_tools,
        ..setup
    }
    .build();
    let mut client = tasks_house::modern(&house, "agent").await;
    let answer = client.call("job_log", json!({})).await;
    let id = created(&answer);
    let task = reaches(&mut client, &id, "completed").await;
    let (uri, offset) = place(&task["result"]);
    assert!(rest(&mut client, &uri, offset).await.len() > CHARACTERS);
}

#[tokio::test]
async fn an_answer_that_is_given_again_has_the_limit_of_now() {
    let house = house().await;
    let call = json!({
        "name": "log", "arguments": {}, "_meta": { "io.owlclaw/idempotencyKey": "k-1" },
    });
    let mut client = house.connect("anna", MODERN).await;
    let whole = client.ask("tools/call", call.clone()).await;
    assert_eq!(texts(&whole["result"]), [long_text()]);
    // Roles come with each request; the rule for them holds for the answer that is kept.
    let mut options = options();
    options.rules = vec![ResultRule {
        roles: vec!["small".to_owned()],
        ..rule(&[], CHARACTERS)
    }];
    let house = setup(options).await.build();
    let mut client = house.connect("anna", MODERN).await;
    let first = client.ask("tools/call", call.clone()).await;
    assert_eq!(texts(&first["result"]), [long_text()]);
    let mut small = house.connect_with("anna", &["small"], MODERN).await;
    let again = small.ask("tools/call", call).await;
    assert_eq!(house.bench.runs(), 1);
    let (uri, offset) = place(&again["result"]);
    assert!(rest(&mut small, &uri, offset).await.len() > CHARACTERS);
}

#[tokio::test]
async fn a_client_without_a_limit_is_answered_as_ever() {
    let house = house().await;
    let mut client = house.connect("anna", MODERN).await;
    for tool in [
        "log", "short", "rows", "promised", "items", "picture", "chatty",
    ] {
        let answer = client.call(tool, json!({})).await;
        assert!(!answer.to_string().contains("Shortened"), "{tool}");
        assert!(answer["result"]["_meta"].get("io.owlclaw/result").is_none());
    }
    let mut agent = house.connect("agent", MODERN).await;
    let answer = agent.call("short", json!({})).await;
    assert_eq!(texts(&answer["result"]), ["short"]);
    assert!(
        house
            .record()
            .await
            .iter()
            .all(|it| it.ended.whole.is_none())
    );
}

#[tokio::test]
async fn leading_items_are_shown_whole_and_the_next_one_can_be_read() {
    let house = house().await;
    let mut client = house.connect("agent", MODERN).await;
    let answer = client.call("items", json!({})).await;
    let result = &answer["result"];
    assert_eq!(texts(result)[..2], ["first", "second"]);
    assert!(texts(result)[2].starts_with("Line 0"));
    assert!(note(result).contains("2 of 4 items"), "{}", note(result));
    let (uri, offset) = place(result);
    let rest = rest(&mut client, &uri, offset).await;
    let third = rest.lines().next().unwrap().strip_suffix(',').unwrap();
    let third: Value = serde_json::from_str(third).unwrap();
    assert_eq!(third, json!({ "type": "text", "text": long_text() }));
    // Each item has a line.
    let lines = client
        .call("read_result", json!({ "uri": uri, "line": 2, "lines": 2 }))
        .await;
    assert_eq!(
        texts(&lines["result"])[0],
        "{\"type\":\"text\",\"text\":\"first\"},\n{\"type\":\"text\",\"text\":\"second\"},\n"
    );
    let whole = client.ask("resources/read", json!({ "uri": uri })).await;
    let whole = whole["result"]["contents"][0]["text"].as_str().unwrap();
    let whole: Value = serde_json::from_str(whole).unwrap();
    assert_eq!(whole[3]["text"], "last");
    let digest = house.record().await[0].ended.whole.unwrap().digest;
    assert_eq!(
        result["_meta"]["io.owlclaw/result"]["sha256"],
        HEXLOWER.encode(&digest)
    );

    // An image is no text: what hosts make of it does not depend on its bytes.
    let answer = client.call("picture", json!({})).await;
    assert_eq!(texts(&answer["result"])[0], "look");
    assert!(note(&answer["result"]).contains("1 of 2 items"));
    let answer = client.call("chatty", json!({})).await;
    assert_eq!(texts(&answer["result"])[0], "x");
    assert!(answer["result"]["_meta"].get("shop/all").is_none());
    place(&answer["result"]);
}

#[tokio::test]
async fn structured_content_is_left_out_unless_the_tool_promises_it() {
    let house = house().await;
    let mut client = house.connect("agent", MODERN).await;
    let answer = client.call("rows", json!({})).await;
    assert!(answer["result"].get("structuredContent").is_none());
    assert!(note(&answer["result"]).contains("without its structured content"));
    let answer = client.call("promised", json!({})).await;
    let rows = answer["result"]["structuredContent"]["rows"].as_array();
    assert_eq!(rows.unwrap().len(), 500);
    let (uri, _) = place(&answer["result"]);
    let whole = client.ask("resources/read", json!({ "uri": uri })).await;
    let whole = whole["result"]["contents"][0]["text"].as_str().unwrap();
    let whole: Value = serde_json::from_str(whole).unwrap();
    assert_eq!(whole["rows"].as_array().unwrap().len(), 500);

    let mut options = options();
    options.rules[0].limit.breaks_schema = true;
    let house = setup(options).await.build();
    let mut client = house.connect("agent", MODERN).await;
    let answer = client.call("promised", json!({})).await;
    assert!(answer["result"].get("structuredContent").is_none());
}

#[tokio::test]
async fn failures_have_the_limit() {
    let house = house().await;
    let mut client = house.connect("agent", MODERN).await;
    let answer = client.call("complains", json!({})).await;
    assert_eq!(answer["result"]["isError"], true);
    assert!(answer.to_string().len() < CHARACTERS + 1_500, "{answer}");
    let text = texts(&answer["result"])[0];
    assert!(text.chars().count() <= CHARACTERS);
    let uri = &text[text.find("result://").unwrap()..][..41];
    let read = client.ask("resources/read", json!({ "uri": uri })).await;
    assert_eq!(read["result"]["contents"][0]["text"], long_text());
    let ended = &house.record().await[0].ended;
    assert_eq!(ended.outcome, Outcome::Failed);
    assert!(ended.whole.is_some());
    let answer = client.call("refuses", json!({})).await;
    // The text, and in `_meta` once more.
    assert!(answer.to_string().len() < 5 * CHARACTERS, "{answer}");
}

#[tokio::test]
async fn tokens_are_a_limit_too() {
    let mut options = options();
    options.rules[0].limit = ResultLimit {
        tokens: Some(400),
        ..ResultLimit::default()
    };
    let house = setup(options).await.build();
    let mut client = house.connect("agent", MODERN).await;
    let answer = client.call("log", json!({})).await;
    let tokens: usize = texts(&answer["result"])
        .into_iter()
        .map(estimated_tokens)
        .sum();
    assert!((200..=400).contains(&tokens), "{tokens}");
}

/// Results of other clients, one that has expired and one that never was are answered alike.
#[tokio::test]
async fn a_result_is_for_its_client_and_for_a_while() {
    let house = house().await;
    let mut client = house.connect("agent", MODERN).await;
    let (uri, _) = place(&client.call("log", json!({})).await["result"]);
    let mut other = house.connect("agent-other", MODERN).await;
    let never = format!("result://{}", "0".repeat(32));
    let plain = |mut answer: Value, uri: &str| {
        answer["id"] = json!(0);
        answer.to_string().replace(uri, "URI")
    };
    let mut seen = Vec::new();
    for by_tool in [false, true] {
        let ask = |uri: &str| match by_tool {
            false => ("resources/read", json!({ "uri": uri })),
            true => (
                "tools/call",
                json!({ "name": "read_result", "arguments": { "uri": uri } }),
            ),
        };
        let (method, params) = ask(&never);
        let unknown = plain(other.ask(method, params.clone()).await, &never);
        let (method, params) = ask(&uri);
        assert_eq!(
            plain(other.ask(method, params.clone()).await, &uri),
            unknown
        );
        assert_ne!(plain(client.ask(method, params).await, &uri), unknown);
        seen.push(unknown);
    }
    pass(Duration::from_secs(60 * 60));
    for (by_tool, unknown) in seen.into_iter().enumerate() {
        let answer = match by_tool {
            0 => client.ask("resources/read", json!({ "uri": uri })).await,
            _ => client.call("read_result", json!({ "uri": uri })).await,
        };
        assert_eq!(plain(answer, &uri), unknown);
    }
    // Reads are on record under the URI.
    let record = house.record().await;
    let reads = record
        .iter()
        .filter(|it| it.started.capability == format!("resource/{uri}"));
    assert_eq!(reads.count(), 3);
}

#[tokio::test]
async fn who_may_not_call_a_tool_any_more_does_not_read_its_results() {
    let house = house().await;
    let mut client = house.connect("agent", MODERN).await;
    let (uri, _) = place(&client.call("log", json!({})).await["result"]);
    let spec = policy(Rules {
        deny: vec!["tool/log".to_owned()],
        ..Rules::default()
    });
    house
        .mcp_server
        .replace_policy(governance::Policy::new(spec).unwrap());
    let runs = house.bench.runs();
    let answer = client.call("read_result", json!({ "uri": uri })).await;
    assert_eq!(failure_of(&answer)["code"], -32003, "{answer}");
    let answer = client.ask("resources/read", json!({ "uri": uri })).await;
    assert_eq!(answer["error"]["code"], -32003, "{answer}");
    assert_eq!(house.bench.runs(), runs);
    // The tool that reads is a tool like any other.
    let spec = policy(Rules {
        hidden: vec![
            "tool/read_result".to_owned(),
            "resource/result://*".to_owned(),
        ],
        ..Rules::default()
    });
    house
        .mcp_server
        .replace_policy(governance::Policy::new(spec).unwrap());
    assert!(
        !client
            .tool_names()
            .await
            .contains(&"read_result".to_owned())
    );
    let answer = client.call("read_result", json!({ "uri": uri })).await;
    assert_eq!(answer["error"]["data"]["code"], -32001, "{answer}");
    let answer = client.ask("resources/read", json!({ "uri": uri })).await;
    assert_eq!(answer["error"]["data"]["code"], -32002, "{answer}");
}

#[tokio::test]
async fn parts_are_read_by_bytes_by_characters_and_by_lines() {
    let house = house().await;
    let mut client = house.connect("agent", MODERN).await;
    let (uri, _) = place(&client.call("log", json!({})).await["result"]);
    let all = long_text();
    let mut read = async |uri: &str, range: Option<Value>| {
        let mut params = json!({ "uri": uri });
        if let Some(range) = range {
            params["range"] = range;
        }
        client.ask("resources/read", params).await
    };
    let text = |answer: &Value| {
        answer["result"]["contents"][0]["text"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let answer = read(&uri, Some(json!({ "offset": 5, "length": 7 }))).await;
    assert_eq!(text(&answer), all[5..12]);
    assert_eq!(
        answer["result"]["_meta"]["io.owlclaw/resource"]["range"],
        json!({ "offset": 5, "length": 7, "size": all.len() })
    );
    // In the middle of a character: bytes are bytes, and text is text.
    let inside = all.find('ï').unwrap() as u64 + 1;
    let answer = read(&uri, Some(json!({ "offset": inside, "length": 3 }))).await;
    assert!(answer["result"]["contents"][0]["blob"].is_string());
    let answer = read(&format!("{uri}?offset={inside}&length=3"), None).await;
    assert_eq!(text(&answer), all[inside as usize + 1..inside as usize + 3]);
    let answer = read(&format!("{uri}?lines=3-4"), None).await;
    let lines: Vec<_> = all.split_inclusive('\n').collect();
    assert_eq!(text(&answer), lines[2..4].concat());
    let answer = read(&format!("{uri}?lines=100-900"), None).await;
    assert_eq!(text(&answer), lines[99]);
    for (uri, range) in [
        (format!("{uri}?lines=101-102"), None),
        (format!("{uri}?lines=4-3"), None),
        (format!("{uri}?page=2"), None),
        (format!("{uri}?offset=9999999"), None),
        (format!("{uri}?offset=1"), Some(json!({ "offset": 1 }))),
    ] {
        let answer = read(&uri, range).await;
        assert_eq!(
            answer["error"]["message"], "the range cannot be read",
            "{uri}: {answer}"
        );
    }
    let etag = HEXLOWER.encode(&Sha256::digest(&all));
    let answer = client
        .ask("resources/read", json!({ "uri": uri, "ifNoneMatch": etag }))
        .await;
    assert_eq!(answer["result"]["contents"], json!([]));
}

#[tokio::test]
async fn long_results_are_files_of_their_owner_and_go_when_they_expire() {
    let directory = tempfile::tempdir().unwrap();
    let place_of = directory.path().join("results");
    std::fs::create_dir(&place_of).unwrap();
    std::fs::write(place_of.join("old.result"), "left over").unwrap();
    std::fs::write(place_of.join("other"), "not ours").unwrap();
    let files = || {
        let entries = std::fs::read_dir(&place_of).unwrap();
        let files = entries.map(|it| it.unwrap().path());
        files
            .filter(|it| it.extension().is_some())
            .collect::<Vec<_>>()
    };
    let house = setup(ResultOptions {
        memory_bytes: 1_000,
        directory: Some(place_of.clone()),
        max_bytes_per_client: 20_000,
        max_bytes: 25_000,
        ..options()
    })
    .await
    .build();
    assert!(files().is_empty());
    assert!(place_of.join("other").exists());
    let mut client = house.connect("agent", MODERN).await;
    let (uri, offset) = place(&client.call("log", json!({})).await["result"]);
    let [file] = &files()[..] else {
        panic!("{:?}", files());
    };
    assert_eq!(
        std::fs::metadata(file).unwrap().permissions().mode() & 0o777,
        0o600
    );
    assert_eq!(std::fs::read_to_string(file).unwrap(), long_text());
    assert!(rest(&mut client, &uri, offset).await.len() > CHARACTERS);
    let read = client
        .ask(
            "resources/read",
            json!({ "uri": format!("{uri}?lines=2-2") }),
        )
        .await;
    assert!(
        read["result"]["contents"][0]["text"]
            .as_str()
            .unwrap()
            .starts_with("Line 1:")
    );

    // The oldest of a client makes room for its next ones, and that of the one who has most for others.
    let newer = place(&client.call("log", json!({})).await["result"]).0;
    let newest = place(&client.call("log", json!({})).await["result"]).0;
    assert_eq!(files().len(), 2);
    let is_there = async |client: &mut Client, uri: &str| {
        let answer = client.ask("resources/read", json!({ "uri": uri })).await;
        answer.get("result").is_some()
    };
    assert!(!is_there(&mut client, &uri).await);
    assert!(is_there(&mut client, &newer).await);
    for other in ["agent-2", "agent-3"] {
        let mut other = house.connect(other, MODERN).await;
        let (uri, _) = place(&other.call("log", json!({})).await["result"]);
        assert!(is_there(&mut other, &uri).await);
    }
    assert!(!is_there(&mut client, &newer).await);
    assert!(is_there(&mut client, &newest).await);
    assert_eq!(files().len(), 3);
    pass(Duration::from_secs(60 * 60));
    client.call("log", json!({})).await;
    assert_eq!(files().len(), 1);
}

#[tokio::test]
async fn a_result_for_which_there_is_no_room_is_shortened_all_the_same() {
    let house = setup(ResultOptions {
        max_bytes_per_client: 5_000,
        ..options()
    })
    .await
    .build();
    let mut client = house.connect("agent", MODERN).await;
    let answer = client.call("log", json!({})).await;
    let note = note(&answer["result"]);
    assert!(
        note.contains("The rest was not kept: it is longer than the 5000 bytes"),
        "{note}"
    );
    let whole = house.record().await[0].ended.whole.unwrap();
    assert_eq!(whole.digest[..], Sha256::digest(long_text())[..]);
}

#[tokio::test]
async fn the_digest_on_record_confirms_no_guess_of_a_secret() {
    let house = house().await;
    let mut client = house.connect("agent", MODERN).await;
    let answer = client.call("secret", json!({})).await;
    let told = answer["result"]["_meta"]["io.owlclaw/result"]["sha256"]
        .as_str()
        .unwrap();
    let call = &house.record().await[0];
    assert_ne!(HEXLOWER.encode(&call.ended.whole.unwrap().digest), told);
    assert!(!call.ended.result.text.contains("hunter2"));
}

/// Secrets that the process knows are taken out of answers by their value, which a part of one does not have.
#[tokio::test]
async fn a_known_secret_is_not_read_in_parts() {
    let secret = "canary-read-in-parts-4711";
    redaction::know([secret]);
    let setup = setup(options()).await;
    let mut more_tools = setup.more_tools;
    // At every place where the text may be cut, and in the rest.
    let said = format!("{secret} ").repeat(200);
    more_tools.push(setup.bench.tool("leaks", json!({}), &[], move |_, _| {
        let said = said.clone();
        async move { Ok(said.into()) }
    }));
    // And in notes about a block.
    let meta = json!({ "shop/note": secret });
    let noted = Content::Text {
        text: "x".repeat(CHARACTERS),
        about: About {
            annotations: None,
            meta: meta.as_object().cloned().map(Box::new),
        },
    };
    more_tools.push(setup.bench.tool("notes", json!({}), &[], move |_, _| {
        let noted = noted.clone();
        async move { Ok(ToolOutput::text("notes").with_content(noted)) }
    }));
    let house = Setup {
        more_tools,
        ..setup
    }
    .build();
    let mut client = house.connect("agent", MODERN).await;
    let answer = client.call("leaks", json!({})).await;
    assert!(!answer.to_string().contains("canary"), "{answer}");
    let (uri, _) = place(&answer["result"]);
    let mut all = String::new();
    for offset in (0..60).step_by(3) {
        let arguments = json!({ "uri": uri, "offset": offset, "length": 3 });
        let answer = client.call("read_result", arguments).await;
        all.push_str(texts(&answer["result"])[0]);
    }
    assert!(all.starts_with("[redacted secret] [redacted"), "{all}");
    let answer = client.call("notes", json!({})).await;
    let (uri, _) = place(&answer["result"]);
    let mut all = String::new();
    for offset in (0..CHARACTERS + 500).step_by(10) {
        let arguments = json!({ "uri": uri, "offset": offset, "length": 10 });
        let answer = client.call("read_result", arguments).await;
        if answer["result"]["isError"] == true {
            break;
        }
        all.push_str(texts(&answer["result"])[0]);
    }
    assert!(
        all.contains("shop/note") && !all.contains("canary"),
        "{all}"
    );
}

#[tokio::test]
async fn all_rules_that_fit_hold_and_the_smallest_numbers_count() {
    let mut general = rule(&[], 10_000);
    general.except = vec!["short*".to_owned()];
    let options = ResultOptions {
        rules: vec![
            general,
            rule(&["agent*"], CHARACTERS),
            ResultRule {
                roles: vec!["tight".to_owned()],
                limit: ResultLimit {
                    characters: Some(1),
                    tokens: Some(5_000),
                    ..ResultLimit::default()
                },
                ..ResultRule::default()
            },
        ],
        ..options()
    };
    let limits = mcp_server::ResultLimits::open(options).unwrap().unwrap();
    let agent = mcp_service::Principal::new("agent");
    let limit = |principal: &mcp_service::Principal, tool| {
        let limit = limits.limit(principal, tool);
        limit.map(|it| (it.characters, it.tokens))
    };
    assert_eq!(limit(&agent, "log"), Some((Some(CHARACTERS), None)));
    let anna = mcp_service::Principal::new("anna");
    assert_eq!(limit(&anna, "log"), Some((Some(10_000), None)));
    assert_eq!(limit(&anna, "short-list"), None);
    let tight = agent.with_roles(["tight".into()].into());
    // No limit is shorter than a note.
    assert_eq!(
        limit(&tight, "short-list"),
        Some((Some(1_000), Some(5_000)))
    );
}
