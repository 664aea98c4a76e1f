use super::*;
use std::{fs, path::Path, process::Command};

/// An authority by OpenSSL, in a directory of its own.
struct Authority(tempfile::TempDir);

fn openssl(directory: &Path, arguments: &str) {
    let output = Command::new("openssl")
        .args(arguments.split_whitespace())
        .current_dir(directory)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "openssl {arguments}: {said}");
}

impl Authority {
    /// With keys of this kind, and a certificate for this use.
    fn new(key: &str, usage: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let config = format!(
            "[req]\ndistinguished_name = name\nprompt = no\n[name]\nCN = authority\n\
             [ca]\nbasicConstraints = critical, CA:true\n[tsa]\nextendedKeyUsage = critical, {usage}\n\
             [tsa_config]\nserial = serial\ndefault_policy = 1.2.3.4\ndigests = sha256\n\
             clock_precision_digits = 3\nsigner_digest = sha256\n"
        );
        fs::write(directory.path().join("config"), config).unwrap();
        let it = Self(directory);
        it.run(&format!("req -x509 -new -newkey {key} -nodes -keyout ca.key -out ca.pem -days 30 -config config -extensions ca"));
        it.run(&format!("req -new -newkey {key} -nodes -keyout tsa.key -out tsa.csr -config config -subj /CN=stamps"));
        it.run("x509 -req -in tsa.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out tsa.pem -days 30 -extfile config -extensions tsa");
        it
    }

    fn run(&self, arguments: &str) {
        openssl(self.0.path(), arguments);
    }

    fn answer(&self, request: &[u8]) -> Vec<u8> {
        fs::write(self.0.path().join("query"), request).unwrap();
        self.run("ts -reply -config config -section tsa_config -queryfile query -signer tsa.pem -inkey tsa.key -chain ca.pem -out answer");
        fs::read(self.0.path().join("answer")).unwrap()
    }

    fn authorities(&self) -> Authorities {
        Authorities::from_pem(&fs::read(self.0.path().join("ca.pem")).unwrap()).unwrap()
    }
}

const DIGEST: [u8; 32] = [7; 32];

#[test]
fn tokens_of_a_real_authority_are_believed_for_what_they_stamp_and_for_nothing_else() {
    for key in ["rsa:2048", "ec -pkeyopt ec_paramgen_curve:P-256"] {
        let authority = Authority::new(key, "timeStamping");
        let token = token(&authority.answer(&request(&DIGEST, u64::MAX))).unwrap();
        let authorities = authority.authorities();
        let stamp = verify(&token, &DIGEST, Some(u64::MAX), &authorities).unwrap();
        let now = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap();
        assert!(
            stamp.at.abs_diff(now) < Duration::from_secs(60),
            "{stamp:?}"
        );
        assert_eq!(verify(&token, &DIGEST, None, &authorities).unwrap(), stamp);

        let other = verify(&token, &[8; 32], None, &authorities).unwrap_err();
        assert!(matches!(other, TimestampError::OtherImprint), "{other}");
        let other = verify(&token, &DIGEST, Some(1), &authorities).unwrap_err();
        assert!(matches!(other, TimestampError::Wrong(_)), "{other}");
        // Of another authority of the same name.
        let stranger = Authority::new(key, "timeStamping").authorities();
        let other = verify(&token, &DIGEST, None, &stranger).unwrap_err();
        assert!(matches!(other, TimestampError::Signature(_)), "{other}");
        // The signature is what a token ends with.
        for at in token.len() - 60..token.len() {
            let mut changed = token.clone();
            changed[at] ^= 1;
            assert!(
                verify(&changed, &DIGEST, None, &authorities).is_err(),
                "{at}"
            );
        }
        // Before it are parts that nobody has signed, such as a list of algorithms; no change changes the stamp.
        let mut survived = 0;
        for at in (0..token.len()).step_by(7) {
            let mut changed = token.clone();
            changed[at] ^= 1;
            survived += usize::from(
                verify(&changed, &DIGEST, None, &authorities).is_ok_and(|it| it != stamp),
            );
        }
        assert_eq!(survived, 0);
    }
}

/// The content of a token, which anybody could sign.
fn content(token: &[u8]) -> Vec<u8> {
    let message = ContentInfo::from_der(token).unwrap();
    let signed: SignedData = message.content.decode_as().unwrap();
    signed.encap_content_info.econtent.unwrap().value().to_vec()
}

#[test]
fn a_certificate_for_another_use_and_a_signature_that_names_none_stamp_nothing() {
    let key = "ec -pkeyopt ec_paramgen_curve:P-256";
    // Before there is anything to sign, since no certificate is good for what is older than itself.
    let signers = [
        ("timeStamping", "-cades", true),
        ("serverAuth", "-cades", false),
        ("timeStamping", "", false),
    ]
    .map(|it| (Authority::new(key, it.0), it));
    let real = Authority::new(key, "timeStamping");
    let content = content(&token(&real.answer(&request(&DIGEST, 1))).unwrap());
    for (signer, (usage, cades, is_believed)) in signers {
        fs::write(signer.0.path().join("content"), &content).unwrap();
        signer.run(&format!(
            "cms -sign -binary -nodetach -nosmimecap {cades} -md sha256 -econtent_type 1.2.840.113549.1.9.16.1.4 \
             -in content -signer tsa.pem -inkey tsa.key -outform DER -out token"
        ));
        let token = fs::read(signer.0.path().join("token")).unwrap();
        let stamp = verify(&token, &DIGEST, Some(1), &signer.authorities());
        assert_eq!(stamp.is_ok(), is_believed, "{usage} {cades}: {stamp:?}");
    }
}

#[test]
fn a_certificate_in_the_place_of_the_one_that_was_signed_with_is_not_believed() {
    // The same key, issuer and number, as an authority could make another one of at any time.
    let key = "ec -pkeyopt ec_paramgen_curve:P-256";
    let authority = Authority::new(key, "timeStamping");
    for (name, days) in [("signer", 30), ("other", 60)] {
        authority.run(&format!(
            "x509 -req -in tsa.csr -CA ca.pem -CAkey ca.key -set_serial 77 -out {name}.pem -days {days} \
             -extfile config -extensions tsa"
        ));
    }
    let content = content(&token(&authority.answer(&request(&DIGEST, 1))).unwrap());
    fs::write(authority.0.path().join("content"), content).unwrap();
    for (certificate, is_believed) in [("signer", true), ("other", false)] {
        authority.run(&format!(
            "cms -sign -binary -nodetach -nosmimecap -cades -nocerts -md sha256 \
             -econtent_type 1.2.840.113549.1.9.16.1.4 -certfile {certificate}.pem -in content \
             -signer signer.pem -inkey tsa.key -outform DER -out token"
        ));
        let token = fs::read(authority.0.path().join("token")).unwrap();
        let stamp = verify(&token, &DIGEST, Some(1), &authority.authorities());
        assert_eq!(stamp.is_ok(), is_believed, "{certificate}: {stamp:?}");
    }
}

#[test]
fn refusals_and_other_bytes_are_no_tokens() {
    let authority = Authority::new("ec -pkeyopt ec_paramgen_curve:P-256", "timeStamping");
    let good = request(&DIGEST, 1);
    let mut bad = good.clone();
    // An algorithm that the authority does not take.
    let at = bad.windows(2).position(|it| it == [0x02, 0x01]).unwrap();
    bad[at + 10] = 0x7f;
    let refused = token(&authority.answer(&bad));
    assert!(
        matches!(refused, Err(TimestampError::Refused(2))),
        "{refused:?}"
    );
    let answer = authority.answer(&good);
    for length in 0..answer.len() {
        assert!(token(&answer[..length]).is_err());
    }
    let stamped = token(&answer).unwrap();
    for length in 0..stamped.len() {
        let cut = verify(&stamped[..length], &DIGEST, None, &authority.authorities());
        assert!(cut.is_err());
    }
    assert!(Authorities::from_pem(b"").is_err());
    assert!(
        Authorities::from_pem(b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
            .is_err()
    );
}

#[test]
fn a_request_is_read_by_openssl() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("query"), request(&DIGEST, 77)).unwrap();
    let output = Command::new("openssl")
        .args(["ts", "-query", "-in", "query", "-text"])
        .current_dir(directory.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    for said in [
        "Hash Algorithm: sha256",
        "Nonce: 0x4D",
        "Certificate required: yes",
    ] {
        assert!(text.contains(said), "{said}: {text}");
    }
}
