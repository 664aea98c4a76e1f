#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use super::*;

/// A file that `rage` wrote for two recipients and one of a kind that nobody knows.
const OF_RAGE: &str = "YWdlLWVuY3J5cHRpb24ub3JnL3YxCi0+IFgyNTUxOSBNS1lKaFdWcDZTVWZhQVBJcm5TUjhIQzc3RXZqdHJURFdPWDgrYVV3\
    MTBVCkNXVHVrU0Z0M0VEVXNGbnE2WVRUbjI1US8vNlVhdlIvWlVaNlN1d0cxREkKLT4gWDI1NTE5IHNHbUlQZzltVGtMaDhZT2p6dHo2SWFXSkxxZytm\
    TkFkSXVpZWxKNHFRQW8KYzhsa20ydzdsMmRHTXFrbzNsNDc1SE9ha1h6dnZSTjUrd2NRbm5tK1o5SQotPiB2Z0skJi1ncmVhc2UgQDNPRnU1IFYgZk90\
    NypNIH0KR242eStQNkpUcFVnZGdSbW16enA1WmlCaURhaVNJUzVhbnFZZURLaksvelN6cHNqRFNRYjdZZVlLTTVqbSs4cwpadjVhRkNyOEcxL21qSWxv\
    K2Q0UUVXb2FJa2R0di9oRlZNZTFYbHZEaGIrZENRCi0tLSBoWHpYN0NpN1RmNU9xekUzU1NvSC8ySjhDRWdiL2Yrcy9ORFdKS2FDTEx3CrgQMi9NsxJ/\
    AUN0/jAxrOdTqfmAzggu7fhaWCYpTa7hETb6oNR9Sxazw4Spbzph";
const IDENTITY_OF_RAGE: &str =
    "AGE-SECRET-KEY-1ZX3KDKR08W0UY2MXZNYJNM095QZTAAUFV2R64LNUDR32QKGFPQJSWP8XCS";
const RECIPIENT_OF_RAGE: &str = "age1wkrmk6p6a08gggzkkpqj7p5vdu05mw7dhxav990fujg05l7hf39qax5xpr";

fn encrypted(recipients: &[Recipient], content: &[u8]) -> Vec<u8> {
    let mut writer = encrypt(recipients, Vec::new()).unwrap();
    writer.write_all(content).unwrap();
    writer.finish().unwrap()
}

/// Content of a file as one of these identities reads it.
fn read(identities: &[Identity], file: &[u8]) -> Result<Vec<u8>, AgeError> {
    let mut content = Vec::new();
    decrypt(identities, file)?.read_to_end(&mut content)?;
    Ok(content)
}

/// Index at which the chunks begin.
fn payload(file: &[u8]) -> usize {
    let mac = file.windows(5).position(|it| it == b"\n--- ").unwrap();
    let end = file[mac + 1..].iter().position(|it| *it == b'\n').unwrap();
    mac + 1 + end + 1 + NONCE
}

#[test]
fn what_is_encrypted_is_read_by_each_recipient_and_by_nobody_else() {
    let [one, other, stranger] = [(); 3].map(|()| Identity::generate().unwrap());
    for length in [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, 3 * CHUNK + 7] {
        let content: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
        let file = encrypted(&[one.recipient(), other.recipient()], &content);
        for identity in [&one, &other] {
            let identities = [stranger.clone(), identity.clone()];
            assert!(read(&identities, &file).unwrap() == content, "{length}");
        }
        let refused = read(std::slice::from_ref(&stranger), &file);
        assert!(matches!(refused, Err(AgeError::NoMatch)), "{refused:?}");
        assert_eq!(
            file.len(),
            payload(&file) + length + TAG * length.div_ceil(CHUNK).max(1)
        );
    }
    let none = encrypt(&[], Vec::new()).unwrap_err();
    assert!(matches!(none, AgeError::Recipients));
}

#[test]
fn two_files_with_the_same_content_have_nothing_in_common() {
    let identity = Identity::generate().unwrap();
    let [one, other] = [(); 2].map(|()| encrypted(&[identity.recipient()], &[7; 1000]));
    assert_ne!(one[payload(&one)..], other[payload(&other)..]);
}

#[test]
fn a_file_of_another_program_is_read() {
    let file = base64::engine::general_purpose::STANDARD.decode(OF_RAGE);
    let identity: Identity = IDENTITY_OF_RAGE.parse().unwrap();
    assert_eq!(identity.recipient().to_string(), RECIPIENT_OF_RAGE);
    assert_eq!(*identity.text(), IDENTITY_OF_RAGE);
    let content = read(&[identity], &file.unwrap()).unwrap();
    assert_eq!(content, b"written by rage");
}

#[test]
fn chunks_that_are_missing_doubled_or_in_another_order_are_found() {
    let identity = Identity::generate().unwrap();
    let file = encrypted(&[identity.recipient()], &[7; 3 * CHUNK + 9]);
    let (header, chunks) = file.split_at(payload(&file));
    let chunks: Vec<&[u8]> = chunks.chunks(CHUNK + TAG).collect();
    let [one, two, three, last] = chunks[..] else {
        panic!("{}", chunks.len())
    };
    for (what, chunks) in [
        ("cut off", vec![one, two, three]),
        ("nothing", vec![]),
        ("half a chunk", vec![one, two, three, &last[..10]]),
        ("without the first", vec![two, three, last]),
        ("without the second", vec![one, three, last]),
        ("the last alone", vec![last]),
        ("another order", vec![two, one, three, last]),
        ("doubled", vec![one, one, two, three, last]),
        ("doubled end", vec![one, two, three, last, last]),
        ("more behind it", vec![one, two, three, last, b"\0"]),
    ] {
        let file = [header, &chunks.concat()].concat();
        let mut content = Vec::new();
        let mut reader = decrypt(std::slice::from_ref(&identity), &file[..]).unwrap();
        let error = reader.read_to_end(&mut content).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{what}");
        // What was read before is what was written.
        assert!(content.len().is_multiple_of(CHUNK) && content.iter().all(|it| *it == 7));
    }
}

#[test]
fn an_empty_chunk_is_the_last_one_of_nothing_but_an_empty_content() {
    let identity = Identity::generate().unwrap();
    let mut writer = encrypt(&[identity.recipient()], Vec::new()).unwrap();
    writer.write_all(&[7; CHUNK]).unwrap();
    writer.seal(false).unwrap();
    let file = writer.finish().unwrap();
    assert!(matches!(read(&[identity], &file), Err(AgeError::Io(_))));
}

#[test]
fn a_header_that_was_changed_is_refused() {
    let identity = Identity::generate().unwrap();
    let identities = [identity.clone()];
    let file = encrypted(&[identity.recipient()], b"paid");
    let changed = |from: &str, to: &str| {
        let header = String::from_utf8(file[..payload(&file) - NONCE].to_vec()).unwrap();
        assert!(header.contains(from), "{from}");
        let header = header.replacen(from, to, 1);
        [header.as_bytes(), &file[payload(&file) - NONCE..]].concat()
    };
    let mac = changed("--- ", "-> more\n\n--- ");
    assert!(matches!(read(&identities, &mac), Err(AgeError::Mac)));
    for (from, to) in [
        ("age-encryption.org/v1", "age-encryption.org/v2"),
        ("-> X25519 ", "-> X25519 more "),
        ("-> X25519 ", "-> X25519  "),
        ("-> X25519 ", "->X25519 "),
        ("--- ", "---  "),
        ("\n", "\r\n"),
    ] {
        let refused = read(&identities, &changed(from, to));
        assert!(
            matches!(refused, Err(AgeError::Header)),
            "{to:?}: {refused:?}"
        );
    }
    for length in 0..payload(&file) {
        assert!(read(&identities, &file[..length]).is_err(), "{length}");
    }
    // A share with which everybody knows the key.
    let end = file.windows(10).position(|it| it == b"-> X25519 ").unwrap() + 10;
    let mut weak = file.clone();
    weak[end..end + 43].fill(b'A');
    assert!(matches!(read(&identities, &weak), Err(AgeError::Header)));
}

#[test]
fn a_file_is_read_back_with_its_own_key() {
    let identity = Identity::generate().unwrap();
    let mut writer = encrypt(&[identity.recipient()], Vec::new()).unwrap();
    writer.write_all(b"paid").unwrap();
    let key = writer.file_key();
    let file = writer.finish().unwrap();
    let mut content = String::new();
    let mut reader = decrypt_with(&key, &file[..]).unwrap();
    reader.read_to_string(&mut content).unwrap();
    assert_eq!(content, "paid");
    let other = encrypt(&[identity.recipient()], Vec::new())
        .unwrap()
        .file_key();
    assert!(matches!(
        decrypt_with(&other, &file[..]),
        Err(AgeError::Mac)
    ));
}

#[test]
fn a_misspelt_recipient_is_refused_and_never_repeated() {
    let text = RECIPIENT_OF_RAGE;
    assert_eq!(text.parse::<Recipient>().unwrap().to_string(), text);
    let of_a_plugin = bech32::encode_lower::<Bech32>(Hrp::parse("age1x").unwrap(), &[7; 32]);
    for (text, expected) in [
        (of_a_plugin.unwrap(), RecipientError::Misspelt),
        (text.replace('w', "x"), RecipientError::Misspelt),
        (text[..60].to_owned(), RecipientError::Misspelt),
        (format!("{text}q"), RecipientError::Misspelt),
        ("age1".to_owned(), RecipientError::Misspelt),
        (text.to_ascii_uppercase(), RecipientError::Other),
        (format!(" {text}"), RecipientError::Other),
        ("ssh-ed25519 AAAA".to_owned(), RecipientError::Other),
        (String::new(), RecipientError::Other),
        (IDENTITY_OF_RAGE.to_owned(), RecipientError::Identity),
        (
            IDENTITY_OF_RAGE.to_ascii_lowercase(),
            RecipientError::Identity,
        ),
    ] {
        let error = text.parse::<Recipient>().unwrap_err();
        assert_eq!(error, expected, "{text}");
        assert!(
            text.len() < 5 || !error.to_string().contains(&text),
            "{error}"
        );
    }
}

#[test]
fn identities_are_read_as_their_files_have_them() {
    let text =
        format!("# created: today\n# public key: {RECIPIENT_OF_RAGE}\n\n{IDENTITY_OF_RAGE}\r\n");
    let found = identities(&text).unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].recipient().to_string(), RECIPIENT_OF_RAGE);
    let shown = format!("{:?}", found[0]);
    assert_eq!(shown, format!("Identity({RECIPIENT_OF_RAGE})"));
    assert_eq!(identities("# none\n").unwrap_err(), IdentityError::None);
    for wrong in [
        RECIPIENT_OF_RAGE,
        &IDENTITY_OF_RAGE.replace('Q', "P"),
        "AGE-SECRET-KEY-1",
    ] {
        let error = identities(&format!("\n{wrong}")).unwrap_err();
        assert_eq!(error, IdentityError::Line(2));
        assert!(!error.to_string().contains(wrong) || wrong.len() < 20);
    }
}

/// Takes or has so many bytes, fails once, and then has no limit.
struct Failing {
    bytes: Vec<u8>,
    at: usize,
    until: usize,
}

impl Failing {
    fn left(&mut self, from: usize) -> io::Result<usize> {
        match self.until.checked_sub(from) {
            Some(0) => {
                self.until = usize::MAX;
                Err(io::Error::other("the disk is full"))
            }
            left => Ok(left.unwrap_or_default()),
        }
    }
}

impl Write for Failing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.left(self.bytes.len())?.min(bytes.len());
        self.bytes.extend_from_slice(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for Failing {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let left = self.left(self.at)?.min(into.len());
        let count = (&self.bytes[self.at..]).read(&mut into[..left])?;
        self.at += count;
        Ok(count)
    }
}

#[test]
fn a_writer_that_has_failed_writes_nothing_more() {
    let identity = Identity::generate().unwrap();
    let content = [7; 2 * CHUNK];
    let payload = payload(&encrypted(&[identity.recipient()], &content));
    for until in [payload, payload + 100, payload + CHUNK + TAG - 1] {
        let mut to = Failing {
            bytes: Vec::new(),
            at: 0,
            until,
        };
        let mut writer = encrypt(&[identity.recipient()], &mut to).unwrap();
        writer.write_all(&content[..CHUNK]).unwrap();
        for _ in 0..3 {
            assert!(writer.write(&content[CHUNK..]).is_err(), "{until}");
        }
        assert!(writer.finish().is_err(), "{until}");
        assert_eq!(to.bytes.len(), until);
    }
}

#[test]
fn a_reader_that_has_failed_reads_nothing_more() {
    let identity = Identity::generate().unwrap();
    let whole = encrypted(&[identity.recipient()], &[7; 3 * CHUNK]);
    let second = payload(&whole) + CHUNK + TAG;
    let mut changed = whole.clone();
    changed[second] ^= 1;
    // The end of what was cut off between two chunks is not one, however often it is asked for.
    let cut = whole[..second].to_vec();
    for (bytes, until, good) in [
        (whole.clone(), second, CHUNK),
        (whole.clone(), second + 100, CHUNK),
        (changed, usize::MAX, CHUNK),
        (cut, usize::MAX, 0),
    ] {
        let from = Failing {
            bytes,
            at: 0,
            until,
        };
        let from = io::BufReader::with_capacity(1, from);
        let mut reader = decrypt(std::slice::from_ref(&identity), from).unwrap();
        let mut content = Vec::new();
        let mut failed = 0;
        while failed < 3 {
            let mut part = [0; 1000];
            match reader.read(&mut part) {
                Ok(0) => panic!("it ends after {} bytes", content.len()),
                Ok(count) => content.extend_from_slice(&part[..count]),
                Err(_) => failed += 1,
            }
        }
        assert!(content.len() <= good, "{}", content.len());
    }
}
