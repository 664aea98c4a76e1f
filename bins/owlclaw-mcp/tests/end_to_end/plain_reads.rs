//! Skills over plain HTTP (decision D20).

use serde_json::{Value, json};
use testkit::{HttpClient, HttpRequest, HttpResponse};

use crate::support::Site;

async fn get(client: &HttpClient, path: &str, headers: &[(&str, &str)]) -> HttpResponse {
    let request = headers
        .iter()
        .fold(HttpRequest::get(path), |it, (name, value)| {
            it.header(name, value)
        });
    client.exchange(&request).await
}

fn site(more: Value) -> Site {
    let mut settings = json!({"app": null});
    for (key, value) in more.as_object().unwrap() {
        settings[key] = value.clone();
    }
    Site::new(settings)
}

#[tokio::test]
async fn a_skill_is_read_with_what_http_has_for_it() {
    let site = site(json!({}));
    let text = site.skill("stock", "counting", "version: 1\n");
    let server = site.http().await;
    let client = server.client();
    let path = "/resources/stock/counting";
    let all = get(&client, path, &[("x-mcp-client-id", "alice")]).await;
    assert_eq!((all.status, all.text()), (200, text.as_str()));
    assert_eq!(
        all.header("content-type"),
        Some("text/markdown; charset=utf-8")
    );
    assert_eq!(all.header("accept-ranges"), Some("bytes"));
    assert_eq!(all.header("x-content-type-options"), Some("nosniff"));
    assert_eq!(all.header("cache-control"), Some("private, no-cache"));
    let etag = all.header("etag").unwrap().to_owned();
    assert_eq!(etag.len(), 66, "{etag}");

    for known in [etag.clone(), format!("\"old\", W/{etag}"), "*".to_owned()] {
        let answer = get(&client, path, &[("if-none-match", &known)]).await;
        assert_eq!((answer.status, answer.text()), (304, ""), "{known}");
        assert_eq!(answer.header("etag"), Some(&*etag));
    }
    let answer = get(&client, path, &[("if-none-match", "\"old\"")]).await;
    assert_eq!((answer.status, answer.text()), (200, text.as_str()));

    let size = text.len();
    for (range, part) in [
        ("bytes=4-8", 4..9),
        ("bytes=10-", 10..size),
        ("bytes=-6", size - 6..size),
        ("bytes=0-999999", 0..size),
    ] {
        let answer = get(&client, path, &[("range", range)]).await;
        assert_eq!((answer.status, answer.text()), (206, &text[part.clone()]));
        let said = format!("bytes {}-{}/{size}", part.start, part.end - 1);
        assert_eq!(answer.header("content-range"), Some(&*said), "{range}");
        assert_eq!(answer.header("etag"), Some(&*etag));
    }
    let beyond = get(&client, path, &[("range", "bytes=999999-")]).await;
    assert_eq!(beyond.status, 416);
    let said = format!("bytes */{size}");
    assert_eq!(beyond.header("content-range"), Some(&*said));
    for ignored in ["bytes=0-1,3-4", "lines=1-2", "bytes=x"] {
        let answer = get(&client, path, &[("range", ignored)]).await;
        assert_eq!(
            (answer.status, answer.text().len()),
            (200, size),
            "{ignored}"
        );
    }
    for (state, status) in [(&*etag, 206), ("\"old\"", 200)] {
        let headers = [("range", "bytes=0-1"), ("if-range", state)];
        assert_eq!(get(&client, path, &headers).await.status, status);
    }

    let head = client.exchange(&HttpRequest::new("HEAD", path)).await;
    assert_eq!((head.status, head.text()), (200, ""));
    assert_eq!(head.header("content-length"), Some(&*size.to_string()));
    assert_eq!(head.header("etag"), Some(&*etag));
    let missing = HttpRequest::new("HEAD", "/resources/stock/nothing");
    let missing = client.exchange(&missing).await;
    assert_eq!((missing.status, missing.text()), (404, ""));
    for method in ["POST", "PUT", "DELETE", "PATCH"] {
        let answer = client.exchange(&HttpRequest::new(method, path)).await;
        assert_eq!(answer.status, 405, "{method}");
        assert_eq!(answer.header("allow"), Some("GET, HEAD"));
    }

    // What is changed is read as it is, and has another tag.
    let changed = site.skill("stock", "counting", "version: 2\n");
    let answer = get(&client, path, &[("if-none-match", &etag)]).await;
    assert_eq!((answer.status, answer.text()), (200, changed.as_str()));
    assert_ne!(answer.header("etag"), Some(&*etag));

    let calls = site.calls();
    assert!(calls.iter().all(|it| it.started.transport == "http"));
    let reads =
        |it: &&ledger::CallRecord| it.started.capability == "resource/skill://stock/counting";
    let first = calls.iter().find(reads).unwrap();
    assert_eq!(first.started.principal, "alice");
    assert!(
        calls.iter().filter(reads).count() >= 15,
        "every one is on record"
    );
}

#[tokio::test]
async fn what_may_not_be_read_is_not_read_plainly_either() {
    let site = site(json!({"governance": {"clients": {
        "bob": {"resources": {"hide": ["skill://stock/counting"]}},
        "carol": {"resources": {"deny": ["skill://stock/counting"]}},
    }}}));
    site.skill("stock", "counting", "");
    let server = site.http().await;
    let client = server.client();
    let path = "/resources/stock/counting";
    let mut told = Vec::new();
    for (name, path, status) in [
        ("alice", path, 200),
        ("bob", path, 404),
        ("bob", "/resources/stock/nothing", 404),
        ("carol", path, 403),
    ] {
        let answer = get(&client, path, &[("x-mcp-client-id", name)]).await;
        assert_eq!(answer.status, status, "{name} {path}: {}", answer.text());
        told.push(answer.text().replace("counting", "nothing"));
    }
    assert_eq!(told[1], told[2], "hidden is as good as missing");
    let page = [("origin", "https://evil.example")];
    assert_eq!(get(&client, path, &page).await.status, 403, "of a stranger");
}

#[tokio::test]
async fn no_path_leads_out_of_the_skills() {
    let site = site(json!({}));
    site.skill("stock", "counting", "");
    site.write("skills/secret.txt", "secret");
    site.write("skills/stock/secret.txt", "secret");
    site.write("secret.txt", "secret");
    let server = site.http().await;
    let client = server.client();
    let long = format!("/resources/stock/{}", "a".repeat(20_000));
    let deep = format!("/resources/{}x", "a/".repeat(200));
    for path in [
        "/resources",
        "/resources/",
        "/resources//",
        "/resources/stock",
        "/resources/stock/",
        "/resources/stock/nothing",
        "/resources/stock/counting/",
        "/resources//stock/counting",
        "/resources/stock//counting",
        "/resources/./stock/counting",
        "/resources/stock/./counting",
        "/resources/stock/../stock/counting",
        "/resources/stock/../../secret.txt",
        "/resources/stock/counting/../../../secret.txt",
        "/resources/stock/counting/%2e%2e/secret.txt",
        "/resources/stock/%2e%2e/secret.txt",
        "/resources/stock/counting/..%2fsecret.txt",
        "/resources/stock%2fcounting",
        "/resources/stock/counting%2fSKILL.md",
        "/resources/stock/counting%00",
        "/resources/stock/counting%00.md",
        "/resources/%00/counting",
        "/resources/stock/counting%0d%0aset-cookie:a=b",
        "/resources/stock/counting%",
        "/resources/stock/counting%zz",
        "/resources/stock/%ff%fe",
        "/resources/stock/..\\secret.txt",
        "/resources/stock/%5c..%5csecret.txt",
        "/resources/c:/windows/system.ini",
        "/resources/skill://stock/counting",
        "/resources/file:///etc/passwd",
        "/resources/stock/secret.txt",
        "/resources/secret.txt",
        "/resources/STOCK/counting",
        &long,
        &deep,
    ] {
        let answer = get(&client, path, &[]).await;
        // What is no path at all, HTTP itself refuses.
        assert!(
            [400, 404].contains(&answer.status),
            "{}: {} {}",
            &path[..path.len().min(80)],
            answer.status,
            answer.text()
        );
        assert!(!answer.text().contains("secret\n") && answer.header("set-cookie").is_none());
    }
    // It is there all the same, in every spelling that the protocol has.
    for path in ["/resources/stock/counting", "/resources/stock/%63ounting"] {
        assert_eq!(get(&client, path, &[]).await.status, 200, "{path}");
    }
}
