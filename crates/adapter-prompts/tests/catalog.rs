//! Directories of prompts, as they are and as they should not be.

#![allow(clippy::unwrap_used)]

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use adapter_prompts::{
    Broken, PromptCatalog, PromptOptions, PromptWatch, RenderError, Role, WatchOptions,
    put_in_force,
};
use tempfile::TempDir;

fn directory(files: &[(&str, &str)]) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (path, text) in files {
        write(directory.path(), path, text);
    }
    directory
}

fn write(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn scan(directory: &TempDir) -> PromptCatalog {
    PromptCatalog::scan(&PromptOptions::new(directory.path()))
}

fn arguments(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    let pairs = pairs.iter();
    pairs
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}

fn text(catalog: &PromptCatalog, name: &str, pairs: &[(&str, &str)]) -> String {
    let version = catalog.version(name).unwrap().unwrap();
    version.render(&arguments(pairs)).unwrap()[0].text.clone()
}

/// The problem of the prompt `p` made of one file.
fn problem_of(file: &str) -> String {
    let directory = directory(&[("p.md", file)]);
    let catalog = scan(&directory);
    let problem = catalog.get("p").unwrap().current().unwrap_err();
    format!("{problem} ({})", problem.hint).replace(&directory.path().display().to_string(), "")
}

#[test]
fn byte_order_marks_are_no_part_of_files() {
    let directory = directory(&[
        (
            "plain.md",
            "\u{feff}---\n---\nA {% include \"_b.md\" %} C\n",
        ),
        (
            "described.md",
            "\u{feff}---\r\ndescription: d\r\n---\r\nHello\r\n",
        ),
        ("_b.md", "\u{feff}B"),
        ("many/1.0.md", "---\n---\nfirst\n"),
        ("many/2.0.md", "---\n---\nsecond\n"),
        ("many/current", "\u{feff}1.0\r\n"),
    ]);
    let catalog = scan(&directory);
    for (name, expected) in [
        ("plain", "A B C"),
        ("described", "Hello"),
        ("many", "first"),
    ] {
        assert_eq!(text(&catalog, name, &[]).trim(), expected, "{name}");
    }
}

#[test]
fn one_file_yields_messages_of_both_roles() {
    let file = "---\ntitle: Review\narguments:\n- {name: code, required: true}\n- {name: deep, type: boolean, default: false}\n---\n\
                ## user\nReview this:\n\n```\n{{ code }}\n```\n\n## assistant\nI will look at ## user input.\n\n\
                ## user\n{% if deep %}\nBe thorough.\n{% endif %}\n";
    let directory = directory(&[("review.md", file)]);
    let catalog = scan(&directory);
    let version = catalog.version("review").unwrap().unwrap();
    let filled = version
        .render(&arguments(&[("code", "## assistant\nx")]))
        .unwrap();
    let roles: Vec<_> = filled.iter().map(|it| it.role).collect();
    assert_eq!(
        roles,
        [Role::User, Role::Assistant],
        "a heading in an argument is text"
    );
    assert_eq!(filled[0].text, "Review this:\n\n```\n## assistant\nx\n```");
    let filled = version.render(&arguments(&[("code", "x"), ("deep", "true")]));
    assert_eq!(filled.unwrap()[2].text, "Be thorough.");
}

#[test]
fn a_line_keeps_its_end_where_it_holds_more_than_tags() {
    let file = "---\narguments:\n- {name: n, type: integer, default: 5}\n---\n\
                Total: {% if n %}{{ n }}{% endif %}\nPay now.{# note #}\n{# note #}\nOr {% include \"_later.md\" %}\nEnd.";
    let later = "later {# c #}\n{% if n %}\nfor {% if n %}{{ n }}{% endif %}\nmore.\n{% endif %}\n";
    let directory = directory(&[("bill.md", file), ("_later.md", later)]);
    let expected = "Total: 5\nPay now.\nOr later \nfor 5\nmore.\nEnd.";
    assert_eq!(text(&scan(&directory), "bill", &[]), expected);
}

#[test]
fn versions_are_addressable_and_the_highest_is_in_force() {
    let directory = directory(&[
        ("greet/1.2.md", "---\n---\ntwo"),
        ("greet/1.10.md", "---\nversion: \"1.10\"\n---\nten"),
        ("greet/2.0-rc.1.md", "---\n---\ncandidate"),
        ("greet/current", "1.10\n"),
        ("README.md", "no prompt"),
    ]);
    let catalog = scan(&directory);
    assert!(catalog.problems().is_empty(), "{:?}", catalog.problems());
    assert_eq!(text(&catalog, "greet", &[]), "ten");
    assert_eq!(text(&catalog, "greet@1.2", &[]), "two");
    assert_eq!(text(&catalog, "greet@2.0-rc.1", &[]), "candidate");
    assert!(catalog.version("greet@3").is_none());
    fs::remove_file(directory.path().join("greet/current")).unwrap();
    assert_eq!(text(&scan(&directory), "greet", &[]), "candidate");
    write(directory.path(), "greet/current", "9");
    let catalog = scan(&directory);
    let problem = catalog.get("greet").unwrap().current().unwrap_err();
    assert!(problem.to_string().contains("no version `9`"), "{problem}");
    assert_eq!(
        text(&catalog, "greet@1.2", &[]),
        "two",
        "by its name it is there"
    );
}

#[test]
fn a_version_is_put_in_force_with_a_line_of_history() {
    let directory = directory(&[
        ("greet/1.md", "---\n---\none"),
        ("greet/2.md", "---\n---\n{{ broken"),
        ("greet/3.md", "---\n---\nthree"),
        ("single.md", "---\n---\nsingle"),
    ]);
    let roll = |name: &str, version: Option<&str>| put_in_force(&scan(&directory), name, version);
    let (before, now) = roll("greet", None).unwrap();
    assert_eq!(
        (before.as_deref(), &*now),
        (Some("3"), "1"),
        "2 cannot be used"
    );
    assert_eq!(text(&scan(&directory), "greet", &[]), "one");
    assert!(
        roll("greet", None)
            .unwrap_err()
            .to_string()
            .contains("no older version")
    );
    for (name, version, expected) in [
        ("greet", "2", "cannot be used"),
        ("greet", "4", "it has `1`, `2`, `3`"),
        ("single", "1", "move the file to `single/VERSION.md`"),
        ("nothing", "1", "there is no prompt"),
    ] {
        let error = roll(name, Some(version)).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    roll("greet", Some("3")).unwrap();
    assert_eq!(text(&scan(&directory), "greet", &[]), "three");
    let history = fs::read_to_string(directory.path().join("greet/history.jsonl")).unwrap();
    assert_eq!(history.lines().count(), 2, "{history}");
    assert!(history.contains(r#""from":"3""#) && history.contains(r#""to":"1""#));
    assert!(
        scan(&directory).problems().len() == 1,
        "{:?}",
        scan(&directory).problems()
    );
}

#[test]
fn files_that_cannot_be_used_hold_their_prompt_and_say_where_and_what_helps() {
    for (file, expected) in [
        (
            "no front matter",
            "p.md:1: the file does not start with a `---` line",
        ),
        ("---\ntitle: a\n", "not closed"),
        (
            "---\ntitel: a\n---\nx",
            "p.md:2: `titel` is not known (did you mean `title`?)",
        ),
        ("---\nname: q\n---\nx", "p.md:2: `name` is `q`"),
        ("---\n---\n{{ debug() }}", "p.md:3: `debug` is no argument"),
        ("---\na: [\n---\nx", "p.md:2"),
        ("---\ntags: x\n---\nx", "`tags` is no list"),
        ("---\nversion: a b\n---\nx", "`version` cannot be `a b`"),
        (
            "---\narguments:\n- {name: a, requierd: true}\n---\nx",
            "p.md:3: argument `a`: `requierd` is not known (did you mean `required`?)",
        ),
        (
            "---\narguments:\n- {name: a, type: text}\n---\nx",
            "write one of `string`",
        ),
        (
            "---\narguments:\n- {name: a, type: integer, default: x}\n---\nx",
            "is no integer",
        ),
        (
            "---\narguments:\n- {name: a, enum: [b], default: c}\n---\nx",
            "none of the choices",
        ),
        (
            "---\narguments:\n- {name: a, minimum: 1}\n---\nx",
            "`minimum` bounds nothing of the type string",
        ),
        (
            "---\narguments:\n- {name: a, required: true, default: b}\n---\nx",
            "not required",
        ),
        (
            "---\narguments:\n- {name: a}\n- {name: a}\n---\nx",
            "declared twice",
        ),
        ("---\narguments:\n- {name: if}\n---\nx", "cannot be `if`"),
        ("---\narguments:\n- a\n---\nx", "is no map"),
        (
            "---\narguments:\n- {name: who}\n---\nHello {{ whom }}",
            "p.md:5: `whom` is no argument (did you mean `who`?)",
        ),
        ("---\n---\n\na\n{% if %}", "p.md:5"),
        ("---\n---\n{{ 1 | uper }}", "uper"),
        ("---\n---\n## System\nx", "p.md:3: `## System` is no role"),
        (
            "---\n---\nfirst\n## user\nx",
            "text before the first message",
        ),
        ("---\n---\n## user\n\n## assistant\nx", "is empty"),
        ("---\n---\n", "is empty"),
        (
            "---\n---\nx\n{% include \"_none.md\" %}",
            "p.md:4: it includes `_none.md`, which is not there",
        ),
        (
            "---\narguments:\n- name: b\n- {name: a, type: integer, minimum: 5, maximum: 1}\n---\nx",
            "p.md:4: argument `a`: no number is both",
        ),
        (
            "---\narguments:\n- {name: a, type: integer, minimum: 1.2, maximum: 1.8}\n---\nx",
            "no number is both",
        ),
        (
            "---\narguments:\n- name: b\n  max_length: 1\n- name: a\n  min_length: 9\n  max_length: 2\n---\nx",
            "p.md:6: argument `a`: `min_length` is greater than `max_length`",
        ),
        (
            "---\narguments:\n- {name: a, min_length: 100000}\n---\nx",
            "`min_length` is greater than 65536",
        ),
        (
            "---\narguments:\n- {name: a, type: array, min_items: 3, max_items: 2}\n---\nx",
            "`min_items` is greater than `max_items`",
        ),
        (
            "---\narguments:\n- name: a\n  enum: []\n---\nx",
            "p.md:4: argument `a`: `enum` has no value",
        ),
        ("---\n---\n{% include \"../p.md\" %}", "which is not there"),
        (
            "---\n---\n{% include \"/etc/passwd\" %}",
            "which is not there",
        ),
        ("---\n---\n{% include \"p.md\" %}", "which is not there"),
        (
            "---\narguments:\n- {name: a}\n---\nx\n{% include a %}",
            "p.md:6: the name of an included file",
        ),
    ] {
        let problem = problem_of(file);
        assert!(problem.contains(expected), "{file:?}: {problem}");
        assert!(problem.contains('('), "there is a cure: {problem}");
    }
}

#[test]
fn what_is_no_prompt_is_told() {
    let directory = directory(&[
        ("a.md", "---\n---\na"),
        ("a/1.md", "---\n---\na"),
        ("b c.md", "---\n---\nb"),
        ("d.markdown", "d"),
        ("e/f/1.md", "x"),
        ("empty/current", "1"),
        ("bad/1 2.md", "---\n---\nx"),
        ("other/1.md", "---\nversion: \"2\"\n---\nx"),
    ]);
    for empty in ["hollow", "hollow place", "_parts", ".git"] {
        fs::create_dir(directory.path().join(empty)).unwrap();
    }
    let catalog = scan(&directory);
    let problems: Vec<_> = catalog.problems().iter().map(ToString::to_string).collect();
    let problems = problems.join("\n");
    for expected in [
        "a.md: the prompt is also a directory",
        "`b c` cannot be a prompt's name",
        "d.markdown: not read",
        "lies too deep",
        "empty/current: there is no version `1`",
        "`1 2` cannot be a version",
        "other/1.md:2: `version` is `2`, and the file's name says `1`",
        "hollow: there is no version",
        "hollow place: there is no version",
    ] {
        assert!(problems.contains(expected), "{expected}: {problems}");
    }
    let held: Vec<_> = catalog.held().map(|(name, _)| name).collect();
    assert_eq!(held, ["a", "bad", "empty", "hollow", "other"]);
    assert!(!problems.contains("_parts") && !problems.contains(".git"));
}

#[test]
fn includes_are_put_in_and_counted_in_the_digest() {
    let directory = directory(&[
        (
            "p.md",
            "---\narguments:\n- {name: items, type: array}\n---\n{% for item in items %}\n{% include \"_parts/item.md\" %}\n{% endfor %}",
        ),
        ("_parts/item.md", "- {{ item }}{% include '_end.md' %}\n"),
        ("_end.md", ".\n"),
    ]);
    let catalog = scan(&directory);
    let items = [("items", r#"["{{ 7 * 7 }}", {"b": "ü"}]"#)];
    assert_eq!(
        text(&catalog, "p", &items),
        "- {{ 7 * 7 }}.\n- {\"b\":\"ü\"}."
    );
    let digest = |catalog: &PromptCatalog| catalog.version("p").unwrap().unwrap().digest;
    let before = digest(&catalog);
    write(directory.path(), "_end.md", "!");
    assert_ne!(digest(&scan(&directory)), before);
    write(
        directory.path(),
        "_end.md",
        "{% include \"_parts/item.md\" %}",
    );
    let catalog = scan(&directory);
    let problem = catalog.get("p").unwrap().current().unwrap_err().to_string();
    assert!(
        problem.contains("includes itself: _parts/item.md → _end.md → _parts/item.md"),
        "{problem}"
    );
}

#[test]
fn deep_and_many_includes_are_refused() {
    let directory = directory(&[("p.md", "---\n---\n{% include \"_0.md\" %}")]);
    for level in 0..20 {
        let next = format!("{{% include \"_{}.md\" %}}", level + 1);
        write(directory.path(), &format!("_{level}.md"), &next);
    }
    write(directory.path(), "_20.md", "end");
    let many: String = (0..40)
        .map(|it| format!("{{% include \"_many/{it}.md\" %}}"))
        .collect();
    write(directory.path(), "q.md", &format!("---\n---\n{many}"));
    for it in 0..40 {
        write(directory.path(), &format!("_many/{it}.md"), "x");
    }
    let catalog = scan(&directory);
    let problem = |name: &str| {
        catalog
            .get(name)
            .unwrap()
            .current()
            .unwrap_err()
            .to_string()
    };
    assert!(
        problem("p").contains("more than 8 levels deep"),
        "{}",
        problem("p")
    );
    assert!(
        problem("q").contains("more than 32 files"),
        "{}",
        problem("q")
    );
}

#[test]
fn hostile_files_are_bounded() {
    let directory = directory(&[("good.md", "---\n---\nx")]);
    let root = directory.path();
    fs::write(root.join("huge.md"), vec![b'a'; 10 * 1024 * 1024]).unwrap();
    fs::write(root.join("latin.md"), b"---\n---\n\xe9t\xe9").unwrap();
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("secret"), "---\n---\nsecret").unwrap();
    #[cfg(unix)]
    {
        let link = std::os::unix::fs::symlink::<std::path::PathBuf, std::path::PathBuf>;
        link(outside.path().join("secret"), root.join("leak.md")).unwrap();
        link(outside.path().to_owned(), root.join("away")).unwrap();
        link(outside.path().join("secret"), root.join("_leak.md")).unwrap();
        write(root, "user.md", "---\n---\n{% include \"_leak.md\" %}");
        link(root.to_owned(), root.join("loop")).unwrap();
    }
    let deep = format!(
        "---\n---\n{}x{}",
        "{% if true %}".repeat(5_000),
        "{% endif %}".repeat(5_000)
    );
    write(root, "deep.md", &deep);
    write(
        root,
        "brackets.md",
        &format!(
            "---\n---\n{{{{ {}1{} }}}}",
            "(".repeat(20_000),
            ")".repeat(20_000)
        ),
    );
    let catalog = scan(&directory);
    assert_eq!(text(&catalog, "good", &[]), "x");
    for name in ["huge", "latin", "leak", "away", "user", "deep", "brackets"] {
        let entry = catalog
            .get(name)
            .unwrap_or_else(|| panic!("{name} is lost: {:?}", catalog.problems()));
        let problem = entry.current().expect_err(name);
        assert!(!problem.to_string().contains("secret\""), "{problem}");
    }
}

#[test]
fn templates_that_do_not_end_are_stopped() {
    let started = Instant::now();
    for body in [
        "{% for a in range(100000) %}{% for b in range(100000) %}x{% endfor %}{% endfor %}",
        "{% macro again() %}{{ again() }}{% endmacro %}{{ again() }}",
        "{% for a in range(100) %}{{ 'x' * 100000 }}{% endfor %}",
        "{{ ('x' * 1000000000)|length }}",
        "{% set ns = namespace(x='x') %}{% for a in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}{{ ns.x|length }}",
    ] {
        let directory = directory(&[("p.md", &format!("---\n---\n{body}"))]);
        let catalog = scan(&directory);
        let version = catalog.version("p").unwrap().unwrap();
        let error = version.render(&BTreeMap::new()).expect_err(body);
        assert!(matches!(error, RenderError::Template(_)), "{body}: {error}");
    }
    assert!(started.elapsed() < Duration::from_secs(30));
}

#[test]
fn arguments_are_checked_and_their_mistakes_name_the_cure() {
    let file = "---\narguments:\n- {name: count, type: integer, minimum: 1, maximum: 5, default: 3}\n\
                - {name: tone, enum: [formal, friendly], required: true}\n\
                - {name: note, max_length: 5, examples: [hello, help]}\n\
                - {name: tags, type: array, max_items: 2}\n\
                - {name: data, type: object}\n\
                - {name: ok, type: boolean}\n---\n\
                {{ count }} {{ tone }}{% if note %} {{ note }}{% endif %}{% if data %} {{ data.a }}{% endif %}";
    let directory = directory(&[("p.md", file)]);
    let catalog = scan(&directory);
    let version = catalog.version("p").unwrap().unwrap();
    for (sent, expected) in [
        (vec![], "`tone`: it is missing; send it"),
        (vec![("tone", "rude")], "send one of `formal`, `friendly`"),
        (
            vec![("tone", "formal"), ("count", "x")],
            "`count`: `x` is no integer; send digits",
        ),
        (
            vec![("tone", "formal"), ("count", "9")],
            "too great; send at most 5",
        ),
        (
            vec![("tone", "formal"), ("count", "0")],
            "too small; send at least 1",
        ),
        (
            vec![("tone", "formal"), ("note", "too long")],
            "8 characters are too many; send at most 5",
        ),
        (
            vec![("tone", "formal"), ("tags", "a,b")],
            "is no array; send a list as JSON",
        ),
        (
            vec![("tone", "formal"), ("tags", "[1,2,3]")],
            "3 items are too many",
        ),
        (vec![("tone", "formal"), ("data", "[]")], "is no object"),
        (
            vec![("tone", "formal"), ("ok", "yes")],
            "send `true` or `false`",
        ),
        (
            vec![("tone", "formal"), ("tune", "x")],
            "`tune`: there is no such argument; did you mean `tone`?",
        ),
    ] {
        match version.render(&arguments(&sent)) {
            Err(RenderError::Arguments(mistakes)) => {
                let told = mistakes.join("; ");
                assert!(told.contains(expected), "{sent:?}: {told}");
            }
            other => panic!("{sent:?}: {other:?}"),
        }
    }
    let sent = [
        ("tone", "formal"),
        ("count", "5"),
        ("data", r#"{"a": [1, 2.5]}"#),
    ];
    assert_eq!(text(&catalog, "p", &sent), "5 formal [1,2.5]");
    assert_eq!(
        version.suggestions("tone", "F").unwrap(),
        ["formal", "friendly"]
    );
    assert_eq!(version.suggestions("tone", "fr").unwrap(), ["friendly"]);
    assert_eq!(
        version.suggestions("note", "hel").unwrap(),
        ["hello", "help"]
    );
    assert_eq!(version.suggestions("ok", "").unwrap(), ["true", "false"]);
    assert_eq!(version.suggestions("nothing", ""), None);
}

#[test]
fn a_value_that_is_not_there_is_not_written() {
    let file = "---\narguments:\n- {name: note}\n---\nA {{ note }}";
    let directory = directory(&[("p.md", file)]);
    let catalog = scan(&directory);
    let version = catalog.version("p").unwrap().unwrap();
    let error = version.render(&BTreeMap::new()).unwrap_err().to_string();
    assert!(
        error.contains("p.md:5: ") && error.contains("give the argument a default"),
        "{error}"
    );
}

#[test]
fn an_argument_that_was_not_sent_is_undefined() {
    let file = "---\narguments:\n- {name: i, type: integer}\n- {name: l, type: array}\n---\n\
                {{ i|default('none') }}{% if i is defined %} defined{% endif %}\
                {% if i %} true{% endif %}{% if not i %} false{% endif %}{{ i or '' }}\
                {% for one in l|default([]) %} {{ one }}{% endfor %}";
    let catalog = directory(&[
        ("p.md", file),
        (
            "q.md",
            "---\narguments:\n- {name: l, type: array}\n---\n{% for x in l %}{% endfor %}a",
        ),
    ]);
    let catalog = scan(&catalog);
    assert_eq!(text(&catalog, "p", &[]), "none false");
    assert_eq!(text(&catalog, "p", &[("i", "0")]), "0 defined false");
    let sent = [("i", "7"), ("l", "[1]")];
    assert_eq!(text(&catalog, "p", &sent), "7 defined true7 1");
    let version = catalog.version("q").unwrap().unwrap();
    let error = version.render(&BTreeMap::new()).unwrap_err().to_string();
    assert!(error.contains("give the argument a default"), "{error}");
}

#[test]
fn numbers_keep_their_digits_or_are_refused() {
    let file = "---\narguments:\n- {name: n, type: number, required: true}\n---\n{{ n }}";
    let directory = directory(&[("p.md", file)]);
    let catalog = scan(&directory);
    for (sent, written) in [
        ("1.10", "1.1"),
        ("-0.30000000000000004", "-0.30000000000000004"),
        ("1e3", "1000.0"),
        ("120e-2", "1.2"),
        ("-0.0", "-0.0"),
        ("9007199254740993", "9007199254740993"),
        ("18446744073709551615", "18446744073709551615"),
    ] {
        assert_eq!(text(&catalog, "p", &[("n", sent)]), written, "{sent}");
    }
    let version = catalog.version("p").unwrap().unwrap();
    for sent in [
        "12345678901234567890.12",
        "0.1234567890123456789",
        "18446744073709551617",
        "1e-400",
    ] {
        let error = version.render(&arguments(&[("n", sent)])).unwrap_err();
        let told = error.to_string();
        assert!(
            told.contains("has more digits than are kept; send at most 15"),
            "{told}"
        );
    }
    for sent in ["1e400", "NaN", "+1", "01", "inf"] {
        let error = version.render(&arguments(&[("n", sent)])).unwrap_err();
        assert!(error.to_string().contains("is no number"), "{error}");
    }
}

fn wait(watch: &PromptWatch, until: impl Fn(&PromptCatalog) -> bool) -> Arc<PromptCatalog> {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let catalog = watch.catalog();
        if until(&catalog) {
            return catalog;
        }
        assert!(Instant::now() < deadline, "{:?}", catalog.problems());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_prompt_that_breaks_is_held_or_by_the_setting_stays_as_it_was() {
    for broken in [Broken::Refuse, Broken::LastGood] {
        let directory = directory(&[("p.md", "---\n---\nbefore")]);
        let mut options = PromptOptions::new(directory.path());
        options.broken = broken;
        let watch = PromptWatch::start(options, WatchOptions::default()).unwrap();
        assert_eq!(text(&watch.catalog(), "p", &[]), "before");
        write(directory.path(), "p.md", "---\n---\n{{ broken");
        let catalog = wait(&watch, |it| !it.problems().is_empty());
        let entry = catalog.get("p").unwrap();
        match broken {
            Broken::Refuse => assert!(entry.current().is_err()),
            Broken::LastGood => {
                assert!(entry.stale().is_some());
                assert_eq!(text(&catalog, "p", &[]), "before");
            }
        }
        write(directory.path(), "p.md", "---\n---\nafter");
        let catalog = wait(&watch, |it| it.problems().is_empty());
        assert_eq!(text(&catalog, "p", &[]), "after");
        assert!(catalog.get("p").unwrap().stale().is_none());
        assert!(*watch.changes().borrow() >= 2);
    }
}

#[test]
fn a_directory_that_is_lost_holds_all_of_its_prompts() {
    let parent = directory(&[("prompts/p.md", "---\n---\nx")]);
    let root = parent.path().join("prompts");
    let watch = PromptWatch::start(PromptOptions::new(&root), WatchOptions::default()).unwrap();
    fs::rename(&root, parent.path().join("elsewhere")).unwrap();
    let catalog = wait(&watch, |it| !it.problems().is_empty());
    let problem = catalog.get("p").unwrap().current().unwrap_err();
    assert!(
        problem.to_string().contains("cannot be opened"),
        "{problem}"
    );
    fs::rename(parent.path().join("elsewhere"), &root).unwrap();
    let catalog = wait(&watch, |it| it.problems().is_empty());
    assert_eq!(text(&catalog, "p", &[]), "x");

    // An empty directory in its place, as of a volume that is not mounted.
    let aside = parent.path().join("aside");
    fs::create_dir(&aside).unwrap();
    fs::rename(root.join("p.md"), aside.join("p.md")).unwrap();
    let catalog = wait(&watch, |it| !it.problems().is_empty());
    let problem = catalog.get("p").unwrap().current().unwrap_err();
    assert!(
        problem.to_string().contains("there is no file"),
        "{problem}"
    );
    fs::rename(aside.join("p.md"), root.join("p.md")).unwrap();
    let catalog = wait(&watch, |it| it.problems().is_empty());
    assert_eq!(text(&catalog, "p", &[]), "x");
}

#[test]
fn a_directory_without_prompts_from_the_beginning_is_no_problem() {
    let directory = directory(&[]);
    let watch = PromptWatch::start(
        PromptOptions::new(directory.path()),
        WatchOptions::default(),
    );
    let catalog = watch.unwrap().catalog();
    assert!(catalog.problems().is_empty(), "{:?}", catalog.problems());
}

#[test]
fn a_boolean_is_written_as_clients_send_it() {
    let file = "---\narguments:\n- {name: deep, type: boolean}\n---\n{{ deep }} {{ not deep }} {{ [deep] }}";
    let directory = directory(&[("p.md", file)]);
    let text = text(&scan(&directory), "p", &[("deep", "true")]);
    assert_eq!(text, "true false [true]");
}

#[test]
fn a_broken_highest_version_holds_the_prompt_and_no_older_one_takes_its_place() {
    let directory = directory(&[
        ("p/1.md", "---\n---\none"),
        ("p/2.md", "---\ntitel: x\n---\ntwo"),
    ]);
    let catalog = scan(&directory);
    let held: Vec<_> = catalog.held().map(|(name, _)| name).collect();
    assert_eq!(held, ["p"]);
    assert!(catalog.version("p").unwrap().is_err());
    assert_eq!(text(&catalog, "p@1", &[]), "one");
}
