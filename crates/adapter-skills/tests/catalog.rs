//! A directory with skills, seen through the public interface.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    fs,
    path::{Path, PathBuf},
};

use adapter_skills::{
    ByteRange, Host, ProblemKind, ReadError, ResolveError, ScanOptions, Severity, SkillCatalog,
    SkillFilter, SkillMemory,
};
use proptest::prelude::*;
use tempfile::TempDir;

struct Tree {
    directory: TempDir,
}

impl Tree {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("capabilities")).unwrap();
        Self { directory }
    }

    fn root(&self) -> PathBuf {
        self.directory.path().join("capabilities")
    }

    fn write(&self, path: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.root().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        path
    }

    fn skill(&self, directory: &str, fields: &str) -> PathBuf {
        let name = Path::new(directory).file_name().unwrap().to_str().unwrap();
        let text = format!("---\nname: {name}\ndescription: Does {name}.\n{fields}---\nBody\n");
        self.write(&format!("{directory}/SKILL.md"), text)
    }

    fn options(&self) -> ScanOptions {
        ScanOptions::new(self.root())
    }

    fn scan(&self) -> (SkillCatalog, Vec<String>) {
        let (catalog, problems) = SkillCatalog::scan(&self.options());
        let root = format!("{}/", self.root().display());
        let problems = problems.iter().map(|it| it.to_string().replace(&root, ""));
        (catalog, problems.collect())
    }

    fn clean_scan(&self) -> SkillCatalog {
        let (catalog, problems) = self.scan();
        assert_eq!(problems, [""; 0]);
        catalog
    }
}

fn uris(catalog: &SkillCatalog) -> Vec<String> {
    catalog.iter().map(|it| it.uri().to_string()).collect()
}

#[test]
fn skills_are_found_at_any_depth_in_the_order_of_their_uris() {
    let tree = Tree::new();
    for directory in [
        "workflow/b",
        "entry",
        "a/b/c/deep",
        "交易/监控",
        "analytics/x y",
    ] {
        tree.skill(directory, "");
    }
    let catalog = tree.clean_scan();
    assert_eq!(
        uris(&catalog),
        [
            "skill://a/b/c/deep",
            "skill://analytics/x%20y",
            "skill://capabilities/entry",
            "skill://workflow/b",
            "skill://%E4%BA%A4%E6%98%93/%E7%9B%91%E6%8E%A7",
        ]
    );
    assert_eq!(catalog.by_name("监控").unwrap().category(), "交易");
    assert!(catalog.by_name("nobody").is_none());
}

#[test]
fn the_category_of_flat_skills_is_the_directory_or_configured() {
    let tree = Tree::new();
    tree.skill("entry", "");
    let category = |options: &ScanOptions| {
        let (catalog, _) = SkillCatalog::scan(options);
        catalog.iter().next().unwrap().category()
    };
    assert_eq!(category(&tree.options()), "capabilities");
    let options = tree.options().with_flat_category("my skills").unwrap();
    assert_eq!(category(&options), "my skills");
    assert!(tree.options().with_flat_category("a/b").is_err());
    assert_eq!(
        category(&ScanOptions::new(tree.root().join("."))),
        "capabilities"
    );
    let above = tree.root().join("entry/..");
    assert_eq!(category(&ScanOptions::new(above)), "capabilities");
}

#[test]
fn metadata_describes_the_file() {
    let tree = Tree::new();
    let path = tree.skill("shop/order", "title: Order\ntags: [x]\nlicense: MIT\n");
    let catalog = tree.clean_scan();
    let skill = catalog.by_name("order").unwrap();
    assert_eq!(skill.description(), "Does order.");
    assert_eq!(skill.title(), Some("Order"));
    assert_eq!(skill.tags(), ["x"]);
    assert_eq!(skill.mime_type(), "text/markdown");
    let metadata = fs::metadata(&path).unwrap();
    assert_eq!(skill.size(), metadata.len());
    assert_eq!(skill.last_modified(), metadata.modified().ok());
    assert_eq!(skill.etag().len(), 64);
    assert_eq!(skill.etag(), skill.read().unwrap().etag);
    assert_eq!(skill.path(), path);
    assert_eq!(skill.frontmatter().raw["license"], "MIT");
    let excerpt = skill.excerpt_at_line(8 * 1024);
    assert_eq!((excerpt.text, excerpt.is_cut), ("Body\n", false));
}

#[test]
fn long_bodies_are_kept_in_part_and_cut_at_a_line() {
    let tree = Tree::new();
    let body = "0123456789abcde\n".repeat(2_000);
    let text = format!("---\nname: long\ndescription: d\n---\n\n\n{body}");
    tree.write("a/long/SKILL.md", text);
    let catalog = tree.clean_scan();
    let skill = catalog.by_name("long").unwrap();
    let excerpt = skill.excerpt_at_line(8 * 1024 + 5);
    assert_eq!((excerpt.text, excerpt.is_cut), (&body[..8 * 1024], true));
    let all_kept = skill.excerpt_at_line(usize::MAX);
    assert!(all_kept.is_cut && body.starts_with(all_kept.text));
}

#[test]
fn filters_combine() {
    let tree = Tree::new();
    tree.skill("ecommerce/order", "tags: [Urgent, shop]\n");
    tree.skill("ecommerce/eu/refund", "tags: [urgent]\n");
    tree.skill("ecommerce2/other", "tags: [urgent]\n");
    let catalog = tree.clean_scan();
    let names = |category: Option<&str>, tag: Option<&str>, uri: Option<&str>| {
        let filter = SkillFilter {
            category: category.map(str::to_owned),
            tag: tag.map(str::to_owned),
            uri: uri.map(|it| it.parse().unwrap()),
        };
        let found = catalog.matching(&filter).map(|it| it.name().to_owned());
        found.collect::<Vec<_>>().join(" ")
    };
    assert_eq!(names(None, None, None), "refund order other");
    assert_eq!(names(Some("ecommerce"), None, None), "refund order");
    assert_eq!(names(Some("ecommerce/eu"), None, None), "refund");
    assert_eq!(names(Some("ecom"), None, None), "");
    assert_eq!(names(None, Some("URGENT"), None), "refund order other");
    assert_eq!(names(None, Some("shop"), None), "order");
    assert_eq!(
        names(None, None, Some("skill://ecommerce/*")),
        "refund order"
    );
    assert_eq!(
        names(None, Some("urgent"), Some("skill://*/other")),
        "other"
    );
    assert_eq!(names(Some("ecommerce2"), Some("shop"), None), "");
}

#[test]
fn every_file_of_a_skill_has_a_uri() {
    let tree = Tree::new();
    tree.skill("a/s", "");
    tree.write("a/s/references/x.md", "# X");
    tree.write("a/s/scripts/run me.py", "print()");
    tree.write("a/s/assets/logo.PNG", b"\x89PNG\0");
    tree.write("a/s/.env", "SECRET=1");
    tree.write("a/s/.git/config", "");
    tree.write("a/unrelated.md", "");
    tree.skill("a/s/nested", "");
    let catalog = tree.clean_scan();

    let files = catalog.by_name("s").unwrap().files().iter().map(|file| {
        let uri = file.uri().to_string();
        (uri, file.mime_type(), file.size(), file.is_text())
    });
    let expected = [
        ("skill://a/s/assets/logo.PNG", "image/png", 5, false),
        ("skill://a/s/nested/SKILL.md", "text/markdown", 52, true),
        ("skill://a/s/references/x.md", "text/markdown", 3, true),
        ("skill://a/s/scripts/run%20me.py", "text/x-python", 7, true),
    ];
    let expected = expected.map(|(uri, kind, size, text)| (uri.to_owned(), kind, size, text));
    assert_eq!(files.collect::<Vec<_>>(), expected);

    let name = |uri: &str| {
        let found = catalog.resolve(uri).unwrap();
        (found.skill.name().to_owned(), found.file.is_some())
    };
    assert_eq!(name("skill://a/s"), ("s".to_owned(), false));
    assert_eq!(name("skill://a/s/SKILL.md"), ("s".to_owned(), false));
    assert_eq!(name("SKILL://a/%73"), ("s".to_owned(), false));
    assert_eq!(name("skill://a/s/nested"), ("nested".to_owned(), false));
    // The nested skill itself, not the file of the one above: its permissions are what counts.
    assert_eq!(
        name("skill://a/s/nested/SKILL.md"),
        ("nested".to_owned(), false)
    );
    assert_eq!(
        name("skill://a/s/scripts/run me.py".replace(' ', "%20").as_str()).0,
        "s"
    );
    let found = catalog.resolve("skill://a/s/references/x.md").unwrap();
    assert_eq!(found.read().unwrap().bytes, b"# X");
    assert_eq!((found.size(), found.mime_type()), (3, "text/markdown"));

    for absent in [
        "skill://a/t",
        "skill://a/s/.env",
        "skill://a/s/.git/config",
        "skill://a/s/references",
        "skill://a/unrelated.md",
        "skill://a/s/skill.md",
    ] {
        let error = catalog.resolve(absent).unwrap_err();
        assert!(matches!(error, ResolveError::NotFound(_)), "{absent}");
    }
    for bad in [
        "",
        "skill://a",
        "skill://a/s/../../etc/passwd",
        "file:///etc/passwd",
    ] {
        let error = catalog.resolve(bad).unwrap_err();
        assert!(matches!(error, ResolveError::Invalid(_)), "{bad}");
    }
}

#[test]
fn a_file_belongs_to_the_innermost_skill_around_it() {
    let tree = Tree::new();
    tree.skill("a/s", "");
    tree.skill("a/s/group/nested", "");
    tree.write("a/s/group/nested/x.md", "# X");
    tree.write("a/s/y.md", "# Y");
    // A flat skill's URI is not its path, so that of a skill within is not below it.
    tree.skill("flat", "");
    tree.skill("flat/within", "");
    tree.write("flat/within/z.md", "# Z");
    let catalog = tree.clean_scan();
    for (uri, owner) in [
        ("skill://a/s/SKILL.md", "s"),
        ("skill://a/s/y.md", "s"),
        ("skill://a/s/group/nested/SKILL.md", "nested"),
        ("skill://a/s/group/nested/x.md", "nested"),
        ("skill://capabilities/flat/SKILL.md", "flat"),
        ("skill://capabilities/flat/within/SKILL.md", "within"),
        ("skill://capabilities/flat/within/z.md", "within"),
        ("skill://flat/within/SKILL.md", "within"),
        ("skill://flat/within/z.md", "within"),
    ] {
        let found = catalog.resolve(uri).unwrap();
        assert_eq!(found.skill.name(), owner, "{uri}");
    }
    let files_of = |name: &str| -> Vec<String> {
        let files = catalog.files_of(catalog.by_name(name).unwrap());
        files
            .map(|(uri, found)| {
                let content = found.read().unwrap();
                assert_eq!(
                    (found.etag(), found.size()),
                    (&*content.etag, content.size())
                );
                assert_eq!(
                    found.skill.uri(),
                    catalog.resolve(&uri.to_string()).unwrap().skill.uri()
                );
                format!("{uri} {}", found.skill.name())
            })
            .collect()
    };
    assert_eq!(
        files_of("s"),
        [
            "skill://a/s/SKILL.md s",
            "skill://a/s/group/nested/SKILL.md nested",
            "skill://a/s/group/nested/x.md nested",
            "skill://a/s/y.md s",
        ]
    );
    assert_eq!(
        files_of("flat"),
        [
            "skill://capabilities/flat/SKILL.md flat",
            "skill://capabilities/flat/within/SKILL.md within",
            "skill://capabilities/flat/within/z.md within",
        ]
    );
    assert_eq!(
        files_of("within"),
        [
            "skill://flat/within/SKILL.md within",
            "skill://flat/within/z.md within"
        ]
    );
}

#[test]
fn what_cannot_be_read_at_its_uri_is_no_file_of_its_skill() {
    let tree = Tree::new();
    tree.skill("s", "");
    tree.write("s/x", "a file whose URI is that of a skill");
    tree.skill("capabilities/s/x", "");
    let catalog = tree.clean_scan();
    let found = catalog.resolve("skill://capabilities/s/x").unwrap();
    assert_eq!((found.skill.name(), found.file.is_none()), ("x", true));
    let files: Vec<_> = catalog.files_of(catalog.by_name("s").unwrap()).collect();
    assert_eq!(files.len(), 1, "{files:?}");
}

#[test]
fn only_some_names_are_those_of_the_specification() {
    let tree = Tree::new();
    let long = "a".repeat(64);
    let too_long = "b".repeat(65);
    let good = ["order", "2-step", "a", &long];
    let bad = [
        "Order", "a_b", "-a", "a-", "a--b", "a b", "a.b", "监控", "é", &too_long,
    ];
    for name in good.iter().chain(&bad) {
        tree.skill(&format!("c/{name}"), "");
    }
    tree.write(
        "c/other/SKILL.md",
        "---\nname: another\ndescription: d\n---\n",
    );
    tree.write(
        "c/spaced/SKILL.md",
        "---\nname: ' spaced '\ndescription: d\n---\n",
    );
    let (catalog, problems) = tree.scan();
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert_eq!(catalog.len(), good.len() + bad.len() + 2);
    for skill in catalog.iter() {
        let expected = good.contains(&skill.name());
        assert_eq!(skill.has_standard_name(), expected, "{}", skill.uri());
    }
}

#[test]
fn the_first_of_two_skills_of_one_name_is_kept() {
    let tree = Tree::new();
    tree.write(
        "b/one/SKILL.md",
        "---\nname: twin\ndescription: second\n---\n",
    );
    tree.write(
        "a/one/SKILL.md",
        "---\nname: twin\ndescription: first\n---\n",
    );
    let (catalog, problems) = tree.scan();
    assert_eq!(catalog.by_name("twin").unwrap().description(), "first");
    assert_eq!(uris(&catalog), ["skill://a/one"]);
    let told = problems.iter().find(|it| it.starts_with("b/one/SKILL.md"));
    assert!(
        told.unwrap().contains("taken by a/one/SKILL.md"),
        "{problems:?}"
    );
}

#[test]
fn the_first_of_two_skills_of_one_uri_is_kept() {
    let tree = Tree::new();
    tree.skill("x", "");
    tree.write(
        "capabilities/x/SKILL.md",
        "---\nname: y\ndescription: d\n---\n",
    );
    let (catalog, problems) = SkillCatalog::scan(&tree.options());
    assert_eq!(uris(&catalog), ["skill://capabilities/x"]);
    let lost = problems.iter().find(|it| it.severity() == Severity::Error);
    let ProblemKind::DuplicateUri { kept, .. } = &lost.unwrap().kind else {
        panic!("{problems:?}");
    };
    assert_eq!(*kept, tree.root().join("capabilities/x/SKILL.md"));
}

#[test]
fn a_skill_with_unmet_prerequisites_is_not_loaded() {
    let tree = Tree::new();
    tree.skill("a/needy", "owlclaw: {prerequisites: {env: [ERP_TOKEN]}}\n");
    let mut options = tree.options();
    options.host = Host::default();
    let (catalog, problems) = SkillCatalog::scan(&options);
    assert!(catalog.is_empty());
    assert!(
        problems[0].to_string().contains("`ERP_TOKEN` is not set"),
        "{problems:?}"
    );
    options.host.variables.insert("ERP_TOKEN".to_owned());
    let (catalog, problems) = SkillCatalog::scan(&options);
    assert_eq!((catalog.len(), problems.len()), (1, 0));
}

#[test]
fn a_bad_file_is_reported_with_its_place_and_costs_nothing_else() {
    let tree = Tree::new();
    tree.skill("a/good", "");
    tree.write("a/bad/SKILL.md", "---\nname: bad\ndescription: b: c\n---\n");
    tree.write("a/latin/SKILL.md", b"---\nname: caf\xe9\n---\n");
    tree.write("SKILL.md", "---\nname: root\ndescription: d\n---\n");
    let (catalog, problems) = tree.scan();
    assert_eq!(uris(&catalog), ["skill://a/good"]);
    for start in [
        "SKILL.md: not served, because the skills directory itself",
        "a/bad/SKILL.md:3:15: not served: the front matter cannot be read",
        "a/latin/SKILL.md: not served, because it is not UTF-8 from byte 13",
    ] {
        assert!(
            problems.iter().any(|it| it.starts_with(start)),
            "{start}: {problems:#?}"
        );
    }
    assert_eq!(problems.len(), 3);
}

#[test]
fn warnings_do_not_cost_the_skill() {
    let tree = Tree::new();
    tree.write(
        "a/dir/SKILL.md",
        "---\nname: other\ndescription: d\nowlclaw: {risk_level: hihg}\n---\n",
    );
    let (catalog, problems) = SkillCatalog::scan(&tree.options());
    let skill = catalog.by_name("other").unwrap();
    assert!(skill.frontmatter().owlclaw.requires_confirmation);
    assert_eq!(problems.len(), 2);
    // One costs the tool, and none the skill.
    let severities: Vec<_> = problems.iter().map(|it| it.severity()).collect();
    assert_eq!(severities, [Severity::Error, Severity::Warning]);
    assert!(problems.iter().all(|it| !it.hint().is_empty()));
}

#[test]
fn without_a_directory_there_are_no_skills_and_one_problem() {
    let tree = Tree::new();
    let (catalog, problems) = SkillCatalog::scan(&ScanOptions::new(tree.root().join("nowhere")));
    assert!(catalog.is_empty());
    assert!(matches!(problems[..], [ref one] if matches!(one.kind, ProblemKind::NoDirectory(_))));
    let file = tree.write("file", "");
    let (_, problems) = SkillCatalog::scan(&ScanOptions::new(file));
    assert!(matches!(problems[..], [ref one] if matches!(one.kind, ProblemKind::NoDirectory(_))));
}

#[test]
fn a_changed_file_is_read_as_it_is_and_a_vanished_one_is_gone() {
    let tree = Tree::new();
    let path = tree.skill("a/s", "");
    let catalog = tree.clean_scan();
    let skill = catalog.by_name("s").unwrap();
    let text = "---\nname: s\ndescription: d\n---\nNew\n";
    fs::write(&path, text).unwrap();
    let content = skill.read().unwrap();
    assert_eq!(content.bytes, text.as_bytes());
    assert_ne!(content.etag, skill.etag());
    assert!(catalog != tree.clean_scan());
    fs::remove_dir_all(tree.root()).unwrap();
    assert!(matches!(skill.read(), Err(ReadError::Vanished)));
}

#[test]
fn parts_are_cut_from_the_bytes() {
    let tree = Tree::new();
    let path = tree.skill("a/s", "");
    let catalog = tree.clean_scan();
    let content = catalog.by_name("s").unwrap().read().unwrap();
    let whole = fs::read(path).unwrap();
    let range = ByteRange {
        offset: 4,
        length: Some(7),
    };
    let part = content.part(range).unwrap();
    assert_eq!(part.bytes, &whole[4..11]);
    assert_eq!((part.offset, part.size), (4, whole.len() as u64));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Property 7: what is read is what is on disk, whatever the line ends.
    #[test]
    fn content_is_byte_for_byte_that_of_the_file(
        bom in any::<bool>(),
        line_end in prop_oneof![Just("\n"), Just("\r\n")],
        body in "(\\PC|\r\n|\n|\r|\t|\0|\u{feff}|---\n){0,64}",
        asset in prop::collection::vec(any::<u8>(), 0..256),
    ) {
        let tree = Tree::new();
        let head = ["---", "name: s", "description: d", "---", ""].join(line_end);
        let text = format!("{}{head}{body}", if bom { "\u{feff}" } else { "" });
        let path = tree.write("c/s/SKILL.md", &text);
        tree.write("c/s/assets/a.bin", &asset);
        let catalog = tree.clean_scan();

        let found = catalog.resolve("skill://c/s").unwrap();
        let content = found.read().unwrap();
        prop_assert_eq!(&content.bytes, &fs::read(path).unwrap());
        prop_assert_eq!(&content.bytes, &text.into_bytes());
        prop_assert_eq!(content.mime_type, "text/markdown");
        prop_assert_eq!(content.etag.as_str(), found.etag());
        prop_assert_eq!(content.size(), found.size());

        let found = catalog.resolve("skill://c/s/assets/a.bin").unwrap();
        let content = found.read().unwrap();
        prop_assert_eq!(content.is_text, found.file.unwrap().is_text());
        prop_assert_eq!(content.bytes, asset);
    }
}

#[test]
fn a_file_that_is_nearly_called_so_is_a_problem_of_its_directory() {
    const TEXT: &str = "---\nname: x\ndescription: X.\n---\n";
    for name in [
        "SKILLS.md",
        "SKIL.md",
        "SKLIL.md",
        "SKILL.markdown",
        "SKILL.md.txt",
        "SKILL .md",
        "SKILL.md~",
        "SKILL-md",
        "SKILL",
        ".SKILL.md",
        "../.pay/SKILL.md",
    ] {
        let tree = Tree::new();
        tree.write("pay/notes.md", "");
        tree.write(&format!("pay/{name}"), TEXT);
        let (catalog, problems) = tree.scan();
        assert_eq!(problems.len(), 1, "{name}: {problems:?}");
        let told = hold(&catalog, "pay").unwrap();
        assert!(
            told.contains("SKILL") && told.contains("not served"),
            "{told}"
        );
        assert_eq!(hold(&catalog, "x"), None, "{name}");
    }
    // Beside a skill, and below one without front matter, they are something else.
    let tree = Tree::new();
    tree.skill("pay", "");
    tree.write("pay/SKILLS.md", TEXT);
    tree.write("pay/references/skills.md", "# Skills\n");
    tree.write("shop/skillful.md", TEXT);
    tree.write("shop/.git/config", "");
    tree.write("skills.md", "# All skills\n");
    tree.clean_scan();
}

#[test]
fn rules_below_the_front_matter_hold_the_tool_back() {
    let tree = Tree::new();
    let early = "---\nname: pay\ndescription: P.\n---\nowlclaw:\n  risk_level: high\n---\nBody\n";
    tree.write("pay/SKILL.md", early);
    let (catalog, problems) = tree.scan();
    assert!(problems[0].starts_with("pay/SKILL.md:5: "), "{problems:?}");
    assert!(hold(&catalog, "pay").is_some());

    let example = "---\nname: pay\ndescription: P.\n---\n```yaml\nowlclaw:\n```\n";
    tree.write("pay/SKILL.md", example);
    tree.clean_scan();
}

fn hold(catalog: &SkillCatalog, tool: &str) -> Option<String> {
    let hold = catalog.hold_of(tool, |name| name == "refund" || name == "other");
    hold.map(|hold| hold.problem.rsplit('/').next().unwrap().to_owned())
}

#[test]
fn a_broken_skill_holds_every_tool_that_it_may_govern() {
    let torn = "---\nname: refund\ndescription: [\n---\n";
    let rows: [(&str, &str, &[&str]); 9] = [
        // By its name, whatever its directory is.
        ("v2/SKILL.md", torn, &["refund", "v2"]),
        // By its directory.
        ("refund/SKILL.md", "", &["refund"]),
        (
            "refund/skill.md",
            "---\nname: x\ndescription: X.\n---\n",
            &["refund", "x"],
        ),
        // A skill of a name that no tool has, in the directory of one that is a tool.
        (
            "refund/SKILL.md",
            "---\nname: refnud\ndescription: X.\n---\n",
            &["refund"],
        ),
        // Of a name that a tool has: it is about that one.
        (
            "refund/SKILL.md",
            "---\nname: other\ndescription: X.\n---\n",
            &[],
        ),
        // With everything that it binds.
        (
            "refund/SKILL.md",
            "---\nname: refund\ndescription: X.\nowlclaw: {risk_level: hihg}\ntools: {pay: {binding: {}}}\n---\n",
            &["refund", "pay"],
        ),
        // In the directory itself.
        (
            "SKILL.md",
            "---\nname: refund\ndescription: X.\n---\n",
            &["refund"],
        ),
        (
            "a/SKILL.md",
            "---\nname: refund\ndescription: X.\ntags: 3\n---\n",
            &[],
        ),
        ("refund/notes.md", "no skill", &[]),
    ];
    for (path, text, expected) in rows {
        let tree = Tree::new();
        tree.write(path, text);
        let (catalog, _) = tree.scan();
        for tool in ["refund", "other", "v2", "x", "pay"] {
            let held = catalog.hold_of(tool, |name| name == "refund" || name == "other");
            assert_eq!(held.is_some(), expected.contains(&tool), "{path}: {tool}");
        }
    }
}

#[test]
fn two_skills_of_one_name_hold_its_tool_unless_they_say_the_same() {
    for (second, is_held) in [("", true), ("owlclaw: {risk_level: high}\n", false)] {
        let tree = Tree::new();
        tree.skill("a/refund", "owlclaw: {risk_level: high}\n");
        tree.skill("b/refund", second);
        assert_eq!(
            hold(&tree.scan().0, "refund").is_some(),
            is_held,
            "{second}"
        );
    }
}

#[test]
fn a_directory_that_is_not_read_to_its_end_holds_all_tools_without_a_skill() {
    let tree = Tree::new();
    tree.skill("a/refund", "");
    tree.skill("b/other", "");
    let mut options = tree.options();
    options.limits.max_skills = 1;
    let (catalog, _) = SkillCatalog::scan(&options);
    assert!(hold(&catalog, "refund").is_none());
    assert!(hold(&catalog, "other").is_some() && hold(&catalog, "third").is_some());
}

#[test]
fn rules_stay_in_force_when_their_file_is_deleted() {
    let tree = Tree::new();
    let path = tree.skill("a/refund", "tools: {pay: {binding: {}}}\n");
    let governed = |catalog: &SkillCatalog| {
        let rules = catalog.rules();
        rules.map(|(tool, _)| tool.to_owned()).collect::<Vec<_>>()
    };
    let first = tree.clean_scan();
    assert_eq!(governed(&first), ["pay", "refund"]);
    // Broken beyond recognition: all that it was about is held, also if it is forgotten.
    fs::write(&path, "").unwrap();
    for forgets in [false, true] {
        let broken = tree.scan().0.following(&first, forgets);
        assert_eq!(governed(&broken), ["pay", "refund"]);
        assert!(hold(&broken, "refund").is_some() && hold(&broken, "pay").is_some());
        assert_eq!(broken.gone().count(), 0);
        // For as long as it is.
        let still = tree.scan().0.following(&broken, forgets);
        assert!(hold(&still, "pay").is_some());
    }
    // Gone: its rules are known, and so is that it is gone.
    fs::remove_file(&path).unwrap();
    let gone = tree.scan().0.following(&first, false);
    assert_eq!(governed(&gone), ["pay", "refund"]);
    assert!(hold(&gone, "refund").is_none());
    assert_eq!(gone.by_name("refund").unwrap().path(), path);
    assert_eq!(gone.gone().count(), 2);
    assert!(gone.is_empty() && gone.resolve("skill://a/refund").is_err());
    assert_ne!(gone, tree.scan().0);
    assert_eq!(governed(&tree.scan().0.following(&gone, true)), [""; 0]);
    // Moved: the new file is what counts.
    tree.skill("b/refund", "");
    let moved = tree.scan().0.following(&gone, false);
    assert_eq!(governed(&moved), ["pay", "refund"]);
    assert_eq!(
        moved.gone().map(|(tool, _)| tool).collect::<Vec<_>>(),
        ["pay"]
    );
}

#[test]
fn a_tool_whose_skill_has_gone_between_two_processes_is_held() {
    let tree = Tree::new();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("data/ledger-skills.jsonl");
    let is_tool = |name: &str| name != "prose";
    let start = |forgets| {
        let mut memory = SkillMemory::read(file.clone()).unwrap();
        let catalog = tree.scan().0.following(&memory.catalog(), forgets);
        memory.keep(&catalog, is_tool).unwrap();
        let names = ["refund", "prose", "other"];
        names.map(|name| hold(&catalog, name).is_some())
    };
    let path = tree.skill("a/refund", "");
    tree.skill("a/prose", "");
    // A directory that becomes empty is another matter.
    fs::write(tree.root().join("README.md"), "skills").unwrap();
    assert_eq!(start(false), [false; 3]);
    let kept = fs::read_to_string(&file).unwrap();
    assert_eq!(kept, format!("[\"refund\",{:?}]\n", path.to_str().unwrap()));
    // Broken for one process, and gone for the next ones, forgotten by none that saw it broken.
    fs::write(&path, "").unwrap();
    assert_eq!(start(true), [true, false, false]);
    fs::remove_dir_all(tree.root().join("a")).unwrap();
    for _ in 0..2 {
        assert_eq!(start(false), [true, false, false]);
    }
    // There again, and gone while it runs: its rules are known until the end of the process.
    tree.skill("b/refund", "");
    assert_eq!(start(false), [false; 3]);
    let mut memory = SkillMemory::read(file.clone()).unwrap();
    let first = tree.scan().0.following(&memory.catalog(), false);
    fs::remove_dir_all(tree.root().join("b")).unwrap();
    let gone = tree.scan().0.following(&first, false);
    memory.keep(&gone, is_tool).unwrap();
    assert_eq!(start(false), [true, false, false]);
    // Forgotten on purpose, in both ways.
    assert_eq!(start(true), [false; 3]);
    assert_eq!(fs::read_to_string(&file).unwrap(), "");
    fs::write(&file, kept).unwrap();
    assert_eq!(start(false), [true, false, false]);
    fs::write(&file, "\n").unwrap();
    assert_eq!(start(false), [false; 3]);
    // What cannot be read is not taken for nothing.
    fs::write(&file, "refund\n").unwrap();
    let error = SkillMemory::read(file).unwrap_err();
    assert!(error.to_string().contains("skills.jsonl:1: "), "{error}");
}

#[test]
fn rules_that_were_known_before_a_skill_broke_are_those_that_stay() {
    let most = |catalog: &SkillCatalog| {
        let (_, skill) = catalog.rules().find(|(tool, _)| *tool == "refund").unwrap();
        skill.frontmatter().owlclaw.constraints.max_daily_calls
    };
    for broken in [
        "owlclow: {constraints: {max_daily_calls: 3}}\n",
        "owlclaw: {max_daily_calls: 3}\n",
        "owlclaw:\n",
        "owlclaw: {constraints: {max_daily_calls: }}\n",
    ] {
        let tree = Tree::new();
        let path = tree.skill("a/refund", "owlclaw: {constraints: {max_daily_calls: 3}}\n");
        let first = tree.clean_scan();
        tree.skill("a/refund", broken);
        let mut last = tree.scan().0.following(&first, false);
        for _ in 0..2 {
            assert!(hold(&last, "refund").is_some(), "{broken}");
            assert_eq!(most(&last), Some(3), "{broken}");
            last = tree.scan().0.following(&last, true);
        }
        fs::remove_file(&path).unwrap();
        for _ in 0..2 {
            last = tree.scan().0.following(&last, false);
            assert!(hold(&last, "refund").is_none(), "{broken}");
            assert_eq!((most(&last), last.gone().count()), (Some(3), 1), "{broken}");
        }
        // Other rules, once they can be read.
        tree.skill("a/refund", "owlclaw: {constraints: {max_daily_calls: 4}}\n");
        assert_eq!(most(&tree.scan().0.following(&last, false)), Some(4));
    }
}

#[test]
fn a_skill_that_could_never_be_used_holds_its_tool_also_when_it_is_gone() {
    for text in [
        "---\nname: refund\ndescription: [\n---\n",
        "---\nname: refund\ndescription: X.\nowlclaw: {risk_level: hihg}\n---\n",
        "---\nname: refund\ndescription: X.\nowlclow: {}\n---\n",
        "",
    ] {
        let tree = Tree::new();
        let path = tree.write("a/refund/SKILL.md", text);
        let first = tree.scan().0;
        fs::remove_file(&path).unwrap();
        let gone = tree.scan().0.following(&first, false);
        let still = tree.scan().0.following(&gone, false);
        assert!(hold(&gone, "refund").is_some() && hold(&still, "refund").is_some());
        // There and broken again, and gone again.
        tree.write("a/refund/SKILL.md", text);
        let again = tree.scan().0.following(&still, false);
        fs::remove_file(&path).unwrap();
        let gone = tree.scan().0.following(&again, false);
        assert!(hold(&gone, "refund").is_some(), "{text}");
        // Until that is said to be so on purpose, or another one is there.
        let forgotten = tree.scan().0.following(&gone, true);
        assert_eq!(hold(&forgotten, "refund"), None, "{text}");
        tree.skill("b/refund", "");
        assert_eq!(hold(&tree.scan().0.following(&gone, false), "refund"), None);
    }
}

#[test]
fn a_directory_that_is_lost_takes_no_rule_along() {
    let tree = Tree::new();
    tree.skill("a/refund", "owlclaw: {constraints: {max_daily_calls: 3}}\n");
    let first = tree.clean_scan();
    let away = tree.directory.path().join("away");
    fs::rename(tree.root(), &away).unwrap();
    for is_file in [false, true] {
        if is_file {
            fs::write(tree.root(), "no directory").unwrap();
        }
        let (lost, _) = SkillCatalog::scan(&tree.options().required());
        // Also if what is gone is to be forgotten: this is not known to be gone.
        let lost = lost.following(&first, true);
        assert_eq!(lost.rules().count(), 1);
        assert_eq!(hold(&lost, "refund"), None);
        // Nothing is known of other tools.
        assert!(hold(&lost, "other").is_some() && lost.incomplete().is_some());
    }
    // One that nobody has said to be there is none that is lost.
    assert_eq!(hold(&tree.scan().0, "other"), None);
    fs::remove_file(tree.root()).unwrap();
    fs::rename(&away, tree.root()).unwrap();
    let (back, _) = SkillCatalog::scan(&tree.options().required());
    assert_eq!(hold(&back, "other"), None);
}

#[test]
fn a_skill_whose_name_is_nearly_that_of_a_tool_holds_it() {
    let rules = "owlclaw: {constraints: {max_daily_calls: 3}}\n";
    for (name, fields, is_held) in [
        ("Refund", rules, true),
        ("re-fund", rules, true),
        ("RE_FUND", rules, true),
        ("refunds", rules, false),
        ("other", rules, false),
        ("Refund", "", false),
    ] {
        let tree = Tree::new();
        tree.skill(&format!("a/{name}"), fields);
        let catalog = tree.clean_scan();
        assert_eq!(hold(&catalog, "refund").is_some(), is_held, "{name}");
        let without: Vec<_> = catalog
            .without_tool(|name| name == "refund" || name == "other")
            .map(|skill| skill.name())
            .collect();
        let is_told = !fields.is_empty() && name != "other";
        assert_eq!(without, if is_told { vec![name] } else { vec![] });
    }
    // One that is about the tool itself counts.
    let tree = Tree::new();
    tree.skill("a/Refund", rules);
    tree.skill("a/refund", "");
    assert_eq!(hold(&tree.clean_scan(), "refund"), None);
}

#[test]
fn a_directory_that_has_become_empty_takes_no_rule_along() {
    let tree = Tree::new();
    tree.skill("a/refund", "owlclaw: {constraints: {max_daily_calls: 3}}\n");
    let first = tree.clean_scan();
    fs::remove_dir_all(tree.root()).unwrap();
    fs::create_dir(tree.root()).unwrap();
    fs::create_dir(tree.root().join("lost+found")).unwrap();
    let mut before = first;
    for forgets in [false, true, true] {
        let (emptied, _) = SkillCatalog::scan(&tree.options());
        before = emptied.following(&before, forgets);
        assert_eq!(before.rules().count(), 1);
        assert_eq!(hold(&before, "refund"), None);
        let problem = hold(&before, "other").unwrap();
        assert!(problem.contains("has become empty"), "{problem}");
        assert!(before.incomplete().is_some());
    }
    // Somebody has been there, and means it.
    fs::write(tree.root().join("README.md"), "none any more").unwrap();
    let kept = SkillCatalog::scan(&tree.options())
        .0
        .following(&before, false);
    assert_eq!((kept.rules().count(), kept.incomplete()), (1, None));
    let forgotten = SkillCatalog::scan(&tree.options()).0.following(&kept, true);
    assert_eq!(
        (forgotten.rules().count(), hold(&forgotten, "other")),
        (0, None)
    );
    // One that was empty from the beginning has lost nothing.
    fs::remove_file(tree.root().join("README.md")).unwrap();
    let empty = SkillCatalog::scan(&tree.options()).0;
    assert_eq!(
        empty.following(&SkillCatalog::default(), true).incomplete(),
        None
    );
}
