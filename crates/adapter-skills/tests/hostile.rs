//! Trees and files made to do harm.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    ffi::OsStr,
    fs::{self, File, Permissions},
    os::unix::{
        ffi::OsStrExt,
        fs::{PermissionsExt, symlink},
        net::UnixListener,
    },
    path::{Path, PathBuf},
    process::Command,
};

use adapter_skills::{Problem, ProblemKind, ReadError, ScanOptions, SkillCatalog};
use tempfile::TempDir;

const SKILL: &str = "---\nname: s\ndescription: d\n---\n";

fn tree() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("skills");
    write(&root.join("a/s/SKILL.md"), SKILL);
    (directory, root)
}

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn skill(root: &Path, directory: &str, name: &str) {
    let text = format!("---\nname: {name}\ndescription: d\n---\n");
    write(&root.join(directory).join("SKILL.md"), &text);
}

fn scan(root: &Path) -> (SkillCatalog, Vec<Problem>) {
    SkillCatalog::scan(&ScanOptions::new(root))
}

/// The good skill is there, and nothing else; and exactly these problems.
fn check(root: &Path, expected: &[(&str, &str)]) -> SkillCatalog {
    let (catalog, problems) = scan(root);
    let uris: Vec<_> = catalog.iter().map(|it| it.uri().to_string()).collect();
    assert_eq!(uris, ["skill://a/s"], "{problems:#?}");
    assert_eq!(problems.len(), expected.len(), "{problems:#?}");
    for (path, text) in expected {
        let is_it = |problem: &Problem| {
            problem.path == root.join(path) && problem.kind.to_string().contains(text)
        };
        assert!(problems.iter().any(is_it), "{path} {text}: {problems:#?}");
    }
    catalog
}

#[test]
fn what_is_no_file_is_not_opened() {
    let (_directory, root) = tree();
    fs::create_dir_all(root.join("a/dir/SKILL.md")).unwrap();
    fs::create_dir_all(root.join("a/pipe")).unwrap();
    let made = Command::new("mkfifo")
        .arg(root.join("a/pipe/SKILL.md"))
        .status();
    assert!(made.unwrap().success());
    let _listener = UnixListener::bind(root.join("a/s/socket")).unwrap();
    check(
        &root,
        &[
            ("a/dir/SKILL.md", "not a regular file"),
            ("a/pipe/SKILL.md", "not a regular file"),
            ("a/s/socket", "not a regular file"),
        ],
    );
}

#[test]
fn links_do_not_lead_outside() {
    let (directory, root) = tree();
    let outside = directory.path().join("outside");
    write(
        &outside.join("evil/SKILL.md"),
        "---\nname: evil\ndescription: d\n---\n",
    );
    write(&outside.join("secret.txt"), "secret");
    symlink(&outside, root.join("b")).unwrap();
    symlink("../../outside/evil", root.join("a/evil")).unwrap();
    symlink(outside.join("secret.txt"), root.join("a/s/secret.txt")).unwrap();
    fs::create_dir(root.join("a/t")).unwrap();
    symlink(outside.join("evil/SKILL.md"), root.join("a/t/SKILL.md")).unwrap();
    symlink("nowhere", root.join("a/s/dangling")).unwrap();
    symlink("/", root.join("z")).unwrap();
    let told = "does not lead to a place in the skills directory";
    let catalog = check(
        &root,
        &[
            ("b", told),
            ("a/evil", told),
            ("a/s/secret.txt", told),
            ("a/t/SKILL.md", told),
            ("a/s/dangling", told),
            ("z", told),
        ],
    );
    assert_eq!(catalog.by_name("s").unwrap().files(), []);
}

#[test]
fn links_inside_are_followed_but_never_in_circles() {
    let (_directory, root) = tree();
    // As mounted configuration has it: a hidden directory of the real files, and links to it.
    skill(&root, "..data/k/mounted", "mounted");
    symlink("..data/k", root.join("k")).unwrap();
    symlink("..", root.join("a/s/up")).unwrap();
    let (catalog, problems) = scan(&root);
    let uris: Vec<_> = catalog.iter().map(|it| it.uri().to_string()).collect();
    assert_eq!(uris, ["skill://a/s", "skill://k/mounted"]);
    assert_eq!(problems.len(), 1, "{problems:#?}");
    assert_eq!(problems[0].path, root.join("a/s/up"));
    assert!(catalog.by_name("mounted").unwrap().read().is_ok());
}

#[test]
fn a_file_swapped_for_a_link_or_a_pipe_is_not_read() {
    let (directory, root) = tree();
    let secret = directory.path().join("secret");
    fs::write(&secret, "secret").unwrap();
    let catalog = check(&root, &[]);
    let skill = catalog.by_name("s").unwrap();
    let path = root.join("a/s/SKILL.md");
    let replaced = || matches!(skill.read(), Err(ReadError::Replaced));

    fs::remove_file(&path).unwrap();
    symlink(&secret, &path).unwrap();
    assert!(replaced());
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    assert!(replaced());
    fs::remove_dir(&path).unwrap();
    assert!(
        Command::new("mkfifo")
            .arg(&path)
            .status()
            .unwrap()
            .success()
    );
    assert!(replaced());

    // The directory above leads elsewhere, where there is a file of the same name.
    let elsewhere = directory.path().join("elsewhere");
    write(&elsewhere.join("SKILL.md"), "secret");
    fs::remove_dir_all(root.join("a/s")).unwrap();
    symlink(&elsewhere, root.join("a/s")).unwrap();
    assert!(replaced());
}

#[test]
fn a_huge_file_is_not_read() {
    let (_directory, root) = tree();
    let path = root.join("a/huge/SKILL.md");
    write(&path, "---\nname: huge\ndescription: d\n---\n");
    let file = File::options().write(true).open(&path).unwrap();
    file.set_len(100 << 30).unwrap();
    let asset = root.join("a/s/asset.bin");
    File::create(asset).unwrap().set_len(100 << 30).unwrap();
    let catalog = check(
        &root,
        &[
            ("a/huge/SKILL.md", "cannot be read"),
            ("a/s/asset.bin", "more than 16777216 bytes"),
        ],
    );
    // It may also grow after the scan.
    let path = root.join("a/s/SKILL.md");
    let file = File::options().write(true).open(path).unwrap();
    file.set_len(100 << 30).unwrap();
    let error = catalog.by_name("s").unwrap().read();
    assert!(matches!(
        error,
        Err(ReadError::TooLarge {
            max_bytes: 1_048_576
        })
    ));
}

#[test]
fn bombs_in_front_matter_are_reported() {
    let (_directory, root) = tree();
    let mut laughs = "---\nname: l\ndescription: d\na0: &a0 [x,x,x,x,x,x,x,x,x]\n".to_owned();
    for level in 1..30 {
        let aliases = vec![format!("*a{}", level - 1); 9].join(",");
        laughs.push_str(&format!("a{level}: &a{level} [{aliases}]\n"));
    }
    write(&root.join("a/laughs/SKILL.md"), &format!("{laughs}---\n"));
    let nested = format!("---\nname: n\ndescription: {}\n---\n", "[".repeat(60_000));
    write(&root.join("a/nested/SKILL.md"), &nested);
    let long = format!("---\nname: n\ndescription: {}\n---\n", "x".repeat(70_000));
    write(&root.join("a/long/SKILL.md"), &long);
    write(&root.join("a/open/SKILL.md"), &"---\n".repeat(200_000));
    check(
        &root,
        &[
            ("a/laughs/SKILL.md", "cannot be read"),
            ("a/nested/SKILL.md", "cannot be read"),
            ("a/long/SKILL.md", "longer than 65536 bytes"),
            ("a/open/SKILL.md", "not a map"),
        ],
    );
}

#[test]
fn names_without_uri_are_reported() {
    let (_directory, root) = tree();
    skill(&root, "a/back\\slash", "one");
    skill(&root, "a/bell\u{7}", "two");
    write(&root.join("a/s/new\nline"), "");
    check(
        &root,
        &[
            ("a/back\\slash/SKILL.md", "has no URI"),
            ("a/bell\u{7}/SKILL.md", "has no URI"),
            ("a/s/new\nline", "has no URI"),
        ],
    );
    let latin = Path::new(OsStr::from_bytes(b"a/caf\xe9"));
    write(&root.join(latin).join("SKILL.md"), SKILL);
    let (_, problems) = scan(&root);
    assert_eq!(problems.len(), 4, "{problems:#?}");
}

#[test]
fn bounds_hold_and_are_told() {
    let (_directory, root) = tree();
    for index in 0..20 {
        write(&root.join(format!("a/s/file-{index:02}")), "0123456789");
    }
    for index in 0..5 {
        skill(
            &root,
            &format!("z/skill-{index}"),
            &format!("skill-{index}"),
        );
    }
    skill(&root, "z/1/2/3/4/deep", "deep");
    let mut options = ScanOptions::new(&root);
    let files = |options: &ScanOptions| {
        let (catalog, problems) = SkillCatalog::scan(options);
        (catalog.by_name("s").unwrap().files().len(), problems)
    };

    options.limits.max_files_per_skill = 11;
    let (count, problems) = files(&options);
    assert_eq!(count, 10);
    assert!(matches!(
        problems[0].kind,
        ProblemKind::TooManyFiles { max_files: 11 }
    ));

    let mut options = ScanOptions::new(&root);
    options.limits.max_bytes_per_skill = SKILL.len() as u64 + 35;
    let (count, problems) = files(&options);
    assert_eq!((count, problems.len()), (3, 17));
    assert!(matches!(problems[0].kind, ProblemKind::TooManyBytes { .. }));

    let mut options = ScanOptions::new(&root);
    options.limits.max_skills = 3;
    let (catalog, problems) = SkillCatalog::scan(&options);
    assert_eq!((catalog.len(), problems.len()), (3, 1));
    assert!(matches!(
        problems[0].kind,
        ProblemKind::TooManySkills { max_skills: 3 }
    ));

    let mut options = ScanOptions::new(&root);
    options.limits.max_entries = 10;
    let (catalog, problems) = SkillCatalog::scan(&options);
    assert_eq!((catalog.len(), problems.len()), (1, 1));
    assert!(matches!(
        problems[0].kind,
        ProblemKind::TooManyEntries { max_entries: 10 }
    ));

    let mut options = ScanOptions::new(&root);
    options.limits.max_depth = 6;
    assert!(SkillCatalog::scan(&options).0.by_name("deep").is_some());
    options.limits.max_depth = 5;
    let (catalog, problems) = SkillCatalog::scan(&options);
    assert!(catalog.by_name("deep").is_none());
    assert!(matches!(problems[..], [ref one] if one.path == root.join("z/1/2/3/4/deep")));
}

#[test]
fn what_may_not_be_read_is_told_and_costs_nothing_else() {
    let (_directory, root) = tree();
    skill(&root, "a/closed", "closed");
    fs::create_dir(root.join("b")).unwrap();
    let file = root.join("a/closed/SKILL.md");
    fs::set_permissions(&file, Permissions::from_mode(0o000)).unwrap();
    fs::set_permissions(root.join("b"), Permissions::from_mode(0o000)).unwrap();
    if File::open(&file).is_ok() {
        // Nothing is closed to this user.
        return;
    }
    check(
        &root,
        &[
            ("a/closed/SKILL.md", "cannot be read"),
            ("b", "cannot be looked into"),
        ],
    );
    fs::set_permissions(root.join("b"), Permissions::from_mode(0o755)).unwrap();
}
